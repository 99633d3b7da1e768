"""How an index is written: files under names of their own, then one `meta.json` that names them.

Replacing `meta.json` is the moment at which a new index takes the place of an old one. A writer that
is killed before leaves the old one as it was.
"""

import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from ..errors import ELQError, Errors

FORMAT = 2
META = "meta.json"
INDEX_MESSAGES = {"missing": Errors.E030, "damaged": Errors.E031, "format": Errors.E032}
# what the names of our files look like: a role and the stamp of its writer
_OURS = re.compile(r"[a-z]+-[0-9a-f]{8}\.(npy|jsonl|faiss)")


def read_meta(
    folder: Path, *, format: Union[int, str] = FORMAT, messages: Mapping[str, str] = INDEX_MESSAGES
) -> Dict[str, Any]:
    """Read `meta.json` and check that the files it names are there and whole.

    format (Union[int, str]): The format that it must have.
    messages (Mapping[str, str]): Templates of the errors.
    RETURNS (Dict[str, Any]): The meta data; "files" maps a role to name and size of its file.
    """
    if not (folder / META).is_file():
        raise ELQError(messages["missing"].format(path=folder))

    def damaged(file: str, problem: str) -> ELQError:
        return ELQError(messages["damaged"].format(path=folder, file=file, problem=problem))

    try:
        meta = json.loads((folder / META).read_text(encoding="utf8"))
    except ValueError:
        raise damaged(META, "is not valid JSON") from None
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != format:
        raise ELQError(messages["format"].format(path=folder, found=found, expected=format))
    if "files" not in meta:
        raise damaged(META, "names no files")
    for entry in meta["files"].values():
        path = folder / entry["name"]
        if not path.is_file():
            raise damaged(entry["name"], "is missing")
        if path.stat().st_size != entry["bytes"]:
            problem = f"has {path.stat().st_size} bytes instead of {entry['bytes']}"
            raise damaged(entry["name"], problem)
    return meta


def work_folder(output: Path) -> Path:
    """RETURNS (Path): A new folder inside the folder of an index, for the files of the index being made."""
    work = output / f"partial-{os.getpid()}"
    work.mkdir(parents=True, exist_ok=True)
    return work


def commit(folder: Path, work: Path, meta: Dict[str, Any], roles: Iterable[str]) -> None:
    """Move the files of `work` into `folder`, name them in `meta.json`, drop what it does not name.

    roles (Iterable[str]): The names of the files in `work`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stamp = uuid.uuid4().hex[:8]
    files = {}
    for role in roles:
        source = work / role
        name = f"{source.stem}-{stamp}{source.suffix}"
        _sync(source)
        os.replace(source, folder / name)
        files[role] = {"name": name, "bytes": (folder / name).stat().st_size}
    write_meta(folder, {"format": FORMAT, **meta, "files": files})
    shutil.rmtree(work)


def write_meta(folder: Path, meta: Dict[str, Any]) -> None:
    """Make the files that `meta` names the index of a folder, and drop those of the one before."""
    write_json(folder / META, meta)
    named = {entry["name"] for entry in meta["files"].values()}
    for path in folder.iterdir():
        if path.name not in named and _OURS.fullmatch(path.name) and path.is_file():
            path.unlink()


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically: the file is always either the old or the new one."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf8")
    _sync(temporary)
    os.replace(temporary, path)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links.

    Files of an index are never changed in place, so that both names are safe to use.
    """
    temporary = target.with_name(target.name + ".new")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copy2(source, temporary)
    os.replace(temporary, target)


def record_place(path: Path, folder: Optional[Path]) -> List[str]:
    """RETURNS (List[str]): Where an index is, from `folder`, so that both can be moved together, and from
    the root.
    """
    here = [] if folder is None else [os.path.relpath(path, folder.absolute())]
    return [*here, str(path)]


def find_place(paths: Sequence[str], folder: Optional[Path], *, message: str, name: str) -> Path:
    """Find an index again.

    paths (Sequence[str]): What `record_place` returned.
    folder (Optional[Path]): Where the folder is now.
    message (str): Template of the error if it is nowhere, with `paths` and the `name` of the component.
    RETURNS (Path): The first of the paths that exists.
    """
    places = [(folder or Path()) / path for path in paths]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        looked = ", ".join(str(place.resolve()) for place in places)
        raise ELQError(message.format(paths=looked, name=name))
    return found.resolve()


def check_disk(folder: Path, needed: int) -> None:
    """Check that there is enough disk space where a folder is, or will be.

    RAISES (ELQError): If there is not.
    """
    free = shutil.disk_usage(_nearest(folder)).free
    if free < needed:
        raise ELQError(Errors.E083.format(path=folder, needed=_megabytes(needed), free=_megabytes(free)))


def bytes_to_copy(files: Iterable[Path], folder: Path) -> int:
    """RETURNS (int): How many bytes `link_or_copy` would write to put files into a folder."""
    device = _device(_nearest(folder))
    return sum(path.stat().st_size for path in files if _device(path) != device)


def _device(path: Path) -> int:
    return path.stat().st_dev


def _nearest(folder: Path) -> Path:
    """RETURNS (Path): The folder, or the first above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _megabytes(bytes_: int) -> str:
    return f"{bytes_ / 1e6:,.0f}"


def _sync(path: Path) -> None:
    with path.open("rb") as file_:
        os.fsync(file_.fileno())
