"""Files that people name: what is read is checked first; what is written replaces the old file only when it
is complete.
"""

import json
import os
import secrets
import shutil
import stat
from contextlib import contextmanager
from errno import EACCES
from pathlib import Path
from typing import Any, Iterator

from .errors import ELQError, Errors


def check_file(path: Path, hint: str) -> None:
    """Check that there is something to read; pipes and devices count.

    hint (str): What was expected, or how to make it.
    RAISES (ELQError): If there is nothing, or a folder.
    """
    mode = _mode(path)
    if not mode:
        raise ELQError(Errors.E022.format(path=path, hint=hint))
    if stat.S_ISDIR(mode):
        raise ELQError(Errors.E140.format(path=path, hint=hint))


def check_folder(path: Path) -> None:
    """Check that there is, or can be, a folder to write to.

    RAISES (ELQError): If it, or one above it, is a file.
    RAISES (PermissionError): If it may not be written to.
    """
    above = (path.absolute(), *path.absolute().parents)
    place, mode = next((place, mode) for place in above if (mode := _mode(place)))
    if not stat.S_ISDIR(mode):
        raise ELQError(Errors.E141.format(path=place))
    if not os.access(place, os.W_OK | os.X_OK):
        raise _refused(place)


def check_output(output: Path, *inputs: Path) -> None:
    """Check a file that will be written.

    inputs (Path): Files that it must not replace, by whatever name.
    RAISES (ELQError): If it is one of them, or cannot be a file.
    RAISES (PermissionError): If it may not be written.
    """
    if _is_special(output):
        return
    mode = _mode(output)
    if stat.S_ISDIR(mode):
        raise ELQError(Errors.E140.format(path=output, hint="Name the file to write."))
    # renaming another file to its name would need no permission for the file itself
    if mode and not os.access(output, os.W_OK):
        raise _refused(output)
    check_folder(Path(os.path.realpath(output)).parent)
    for path in inputs:
        if mode and _mode(path) and output.samefile(path):
            raise ELQError(Errors.E045.format(path=path))


@contextmanager
def replace_file(path: Path, *, keep: bool = False) -> Iterator[Path]:
    """Write a file that takes the place of another only when it is complete. Folders above it are made.

    A link stays, and the file it points to is replaced. Pipes and devices are written to directly.

    keep (bool): Whether to keep what was written before an `ELQError`, whose message then says where it is.
    YIELDS (Path): The file to write, beside the other.
    """
    check_output(path)
    if _is_special(path):
        yield path
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    # nobody can foresee the name
    new = target.with_name(f"{target.name[:50]}.{secrets.token_hex(4)}.partial")
    new.touch(exist_ok=False)
    try:
        yield new
        with new.open("rb") as file_:
            os.fsync(file_.fileno())
        if target.exists():
            shutil.copymode(target, new)
        os.replace(new, target)
    except BaseException as err:
        if keep and isinstance(err, ELQError) and new.stat().st_size:
            raise ELQError(Errors.E142.format(problem=err, path=new)) from None
        new.unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """RETURNS (int): The mode of what is at a path, or 0 if there is nothing."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _is_special(path: Path) -> bool:
    """RETURNS (bool): Whether a path is a pipe or a device, such as /dev/null."""
    mode = _mode(path)
    return bool(mode) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _refused(path: Path) -> PermissionError:
    return PermissionError(EACCES, os.strerror(EACCES), str(path))


def parse_json(text: str) -> Any:
    """RETURNS (Any): What JSON says.

    RAISES (ValueError): If it is not JSON, or nested too deeply to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def check_text(value: Any) -> None:
    r"""Check the texts in what JSON said: an escape such as \ud800 is half a character.

    RAISES (ValueError): If one cannot be written as UTF-8, or the value is nested too deeply to be written.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode("utf8")
    except UnicodeEncodeError as err:
        half = ascii(err.object[err.start])[1:-1]
        raise ValueError(f"{half} is half of a surrogate pair, not a character") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """Turn what a parser raises on a damaged file of a pipeline into an error with its path.

    RAISES (ELQError): For anything but an `OSError`, which has the path.
    """
    try:
        yield
    except (ELQError, OSError):
        raise
    except Exception as err:  # msgpack and thinc raise anything on damaged files
        raise ELQError(Errors.E144.format(path=path, problem=describe(err))) from err


def describe(err: BaseException) -> str:
    """RETURNS (str): An exception in one line."""
    lines = str(err).strip().splitlines()
    return f"{type(err).__name__}: {lines[0]}" if lines else type(err).__name__
