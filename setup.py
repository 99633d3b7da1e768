"""All is in setup.cfg but one step: the wheel gets a copy of configs/, for `spacy elq init-config`."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Build the package with configs/ inside. An editable install finds them in the checkout."""

    def run(self) -> None:
        """Copy the modules, then the configs."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "spacy_elq" / "configs"
            self.mkpath(str(target))
            for path in sorted((Path(__file__).parent / "configs").glob("*.cfg")):
                self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": BuildWithConfigs})
