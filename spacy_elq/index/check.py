"""Look for damage in an index: read everything and compare it with the sums."""

from pathlib import Path
from typing import List, NamedTuple, Union

from ..errors import ELQError, Errors
from .database import DATABASE, Database, check_database
from .files import ENCODER, SEARCH, check_files, sum_folder


class Damage(NamedTuple):
    """Something that is wrong with an index.

    file (str): Where.
    problem (str): What.
    remedy (str): The command that makes it good again, or what else can be done.
    """

    file: str
    problem: str
    remedy: str


def check_index(path: Union[str, Path]) -> List[Damage]:
    """Read every byte of an index.

    path (Union[str, Path]): The folder.
    RETURNS (List[Damage]): What is wrong; empty if nothing is.
    """
    folder = Path(path).absolute()
    if not (folder / DATABASE).is_file():
        raise ELQError(Errors.E030.format(path=folder))
    restore = "restore a copy, or encode the catalogue again"
    try:
        database = Database.open(folder / DATABASE)
        problems = check_database(database) or _check_parts(database)
        found = [Damage(DATABASE, problem, restore) for problem in problems]
        for role, problem in check_files(database):
            again = f"python -m spacy elq compact {folder} --force"
            found.append(Damage(role, problem, again if role == SEARCH else restore))
        sums = database.get_meta("encoder_files")
        database.close()
    except ELQError as err:
        return [Damage(DATABASE, str(err), restore)]
    if sums is not None and sum_folder(folder / ENCODER) != sums:
        again = "bundle the pipeline again with `spacy elq bundle --encoder`"
        found.append(Damage(ENCODER, "the entity encoder has other bytes than were written", again))
    return found


def _check_parts(database: Database) -> List[str]:
    """RETURNS (List[str]): What an index has to have, and is not there."""
    with database.reading():
        needed = ("base", "files", "catalogue", "encoder")
        missing = [f"there is no entry `{key}`" for key in needed if database.get_meta(key) is None]
        if missing:
            return missing
        rows = database.get_meta("base")["next"] - len(database.get_array("gaps", "int64"))
        popularity, names = (database.get_array(key, "uint8").nbytes for key in ("popularity", "names"))
    is_whole = popularity == 4 * rows and names > 0
    return [] if is_whole else ["what is known about names and popularity is not complete"]
