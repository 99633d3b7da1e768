"""Look for damage in an index: read everything and compare it with the sums."""

from pathlib import Path
from typing import List, NamedTuple, Union

from ..errors import ELQError
from .connections import LOG, LogLeft
from .database import DATABASE, Database, check_database
from .entries import find_invalid
from .files import ENCODER, SEARCH, check_files, check_is_index, read_entries, sum_folder
from .log import check_log
from .milvus import is_remote
from .sync import count_expected, open_collection


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
    """Read every byte of an index. If the log of its database is damaged, nothing else is read: SQLite would
    remove what is left of it.

    path (Union[str, Path]): The folder.
    RETURNS (List[Damage]): What is wrong; empty if nothing is.
    """
    folder = Path(path).absolute()
    check_is_index(folder)
    if problem := check_log(folder / f"{DATABASE}{LOG}"):
        repeat = "restore a copy, or make the last changes again: those before the damage are kept"
        return [Damage(f"{DATABASE}{LOG}", problem, repeat)]
    restore = "restore a copy, or encode the catalogue again"
    try:
        database = Database.open(folder / DATABASE)
        problems = _check_parts(database) or check_database(database)
        found = [Damage(DATABASE, problem, restore) for problem in problems]
        for role, problem in check_files(database):
            again = f"python -m spacy elq compact {folder} --force"
            found.append(Damage(role, problem, again if role == SEARCH else restore))
        if not found and is_remote(database.get_meta("backend")):
            found += _check_collection(database)
        sums = database.get_meta("encoder_files")
        database.close()
    except LogLeft:
        raise
    except ELQError as err:
        return [Damage(DATABASE, str(err), restore)]
    if sums is not None and sum_folder(folder / ENCODER) != sums:
        again = "bundle the pipeline again with `spacy elq bundle --encoder`"
        found.append(Damage(ENCODER, "the entity encoder has other bytes than were written", again))
    return found


def _check_collection(database: Database) -> List[Damage]:
    """RETURNS (List[Damage]): What is wrong with what is in Milvus: it does not answer, is that of another
    index, or has more or fewer entities. They are counted again if the index changes meanwhile.
    """
    folder = database.path.parent
    while True:
        with database.reading():
            state, (least, most) = database.counters(), count_expected(database)
            collection = open_collection(database)
        try:
            found = collection.count()
        except ELQError as err:
            refill = f"python -m spacy elq index VECTORS {folder} --backend milvus --uri {collection.uri}"
            return [Damage(collection.name, str(err), f"start Milvus with its data, or {refill}")]
        finally:
            collection.close()
        if least <= found <= most:
            return []
        if database.counters() == state:
            remedy = (
                f"python -m spacy elq compact {folder} --force sends the last changes again; if that does "
                "not help, index the vectors again"
            )
            return [Damage(collection.name, f"has {found} entities instead of {most}", remedy)]


def _check_parts(database: Database) -> List[str]:
    """RETURNS (List[str]): What an index has to have, and is not there or cannot be used."""
    with database.reading():
        read_entries(database)
        if invalid := find_invalid(database):
            is_there = {key: database.get_meta(key) is not None for key in invalid}
            return [
                f"the entry `{x}` is not valid" if is_there[x] else f"there is no entry `{x}`"
                for x in invalid
            ]
        popularity, names, gaps = (
            database.get_array(key, "uint8").nbytes for key in ("popularity", "names", "gaps")
        )
        rows = database.get_meta("base")["next"] - gaps // 8
    is_whole = popularity == 4 * rows and names > 0
    return [] if is_whole else ["what is known about names and popularity is not complete"]
