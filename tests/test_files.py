import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.errors import ELQError, explain
from spacy_elq.files import (
    check_file,
    check_folder,
    check_output,
    check_text,
    loading,
    parse_json,
    replace_file,
)


def write(path, text="new"):
    with replace_file(path) as new:
        new.write_text(text, encoding="utf8")


def fail(path, error, text="half", **settings):
    with replace_file(path, **settings) as new:
        new.write_text(text, encoding="utf8")
        raise error


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_the_folders_above_it(tmp_path):
    write(tmp_path / "a" / "b" / "x.txt")
    assert (tmp_path / "a" / "b" / "x.txt").read_text() == "new"
    assert names(tmp_path / "a" / "b") == ["x.txt"]


def test_the_old_file_is_there_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with replace_file(path) as new:
        new.write_text("new")
        assert new.parent == tmp_path
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["x.txt"]


@pytest.mark.parametrize("error", [ELQError, OSError, KeyboardInterrupt])
def test_an_error_leaves_everything_as_it_was(tmp_path, error):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(error):
        fail(path, error("stop"))
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_what_was_finished_can_be_kept_and_the_message_says_where(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(ELQError, match=r"E142.*\.partial\nbad line") as raised:
        fail(path, ELQError("bad line"), keep=True)
    assert path.read_text() == "old"
    (kept,) = tmp_path.glob("x.txt.*.partial")
    assert kept.read_text() == "half"
    assert str(kept) in str(raised.value)


@pytest.mark.parametrize(("text", "error"), [("", ELQError), ("half", OSError)])
def test_nothing_is_kept_of_nothing_or_when_the_disk_is_full(tmp_path, text, error):
    with pytest.raises(error, match=r"^stop$"):
        fail(tmp_path / "x.txt", error("stop"), text, keep=True)
    assert names(tmp_path) == []


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.txt").write_text("old")
    (tmp_path / "link").symlink_to("real/x.txt")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "x.txt").read_text() == "new"
    assert names(tmp_path / "real") == ["x.txt"]


def test_a_link_to_nothing_gets_its_file(tmp_path):
    (tmp_path / "link").symlink_to("x.txt")
    write(tmp_path / "link")
    assert (tmp_path / "x.txt").read_text() == "new"


def test_another_name_of_the_old_file_keeps_it(tmp_path):
    (tmp_path / "x.txt").write_text("old")
    os.link(tmp_path / "x.txt", tmp_path / "y.txt")
    write(tmp_path / "x.txt")
    assert (tmp_path / "y.txt").read_text() == "old"


def test_a_new_file_has_the_usual_mode_and_a_replaced_one_keeps_its_own(tmp_path):
    (tmp_path / "usual").touch()
    write(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    write(tmp_path / "new", "newer")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_devices_are_never_replaced():
    write(Path("/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    thread = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    thread.start()
    write(tmp_path / "pipe")
    thread.join(timeout=60)
    assert read == ["new"]
    assert names(tmp_path) == ["pipe"]


def test_a_long_name_is_no_problem(tmp_path):
    write(tmp_path / ("ü" * 127))
    assert names(tmp_path) == ["ü" * 127]


def test_a_folder_is_no_output_file(tmp_path):
    with pytest.raises(ELQError, match=r"E140.*Name the file to write"):
        write(tmp_path)
    assert names(tmp_path) == []


def test_a_loop_of_links_is_an_error(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for check in (write, check_output, check_folder, lambda path: check_file(path, "")):
        with pytest.raises(OSError, match="loop"):
            check(tmp_path / "loop")
    assert names(tmp_path) == ["loop"]


def test_input_is_checked(tmp_path):
    (tmp_path / "x.txt").touch()
    check_file(tmp_path / "x.txt", "hint")
    with pytest.raises(ELQError, match=r"E140.*is a folder.*hint"):
        check_file(tmp_path, "hint")
    for missing in (tmp_path / "no", tmp_path / "x.txt" / "no"):
        with pytest.raises(ELQError, match=r"E022.*hint"):
            check_file(missing, "hint")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").touch()
    for path in (tmp_path / "x", tmp_path / "x" / "y" / "z"):
        with pytest.raises(ELQError, match=r"E141.*/x is a file"):
            check_folder(path)
    with pytest.raises(ELQError, match="E141"):
        check_output(tmp_path / "x" / "y")
    check_folder(tmp_path / "new" / "folder")
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("name", ["in.txt", "hard", "soft", "folder/../in.txt", "linked/in.txt"])
def test_output_that_is_an_input_by_whatever_name_is_refused(tmp_path, name):
    (tmp_path / "in.txt").write_text("old")
    os.link(tmp_path / "in.txt", tmp_path / "hard")
    (tmp_path / "soft").symlink_to("in.txt")
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(".")
    with pytest.raises(ELQError, match="E045"):
        check_output(tmp_path / name, tmp_path / "other", tmp_path / "in.txt")
    check_output(tmp_path / "out.txt", tmp_path / "in.txt")


def test_what_may_not_be_written_is_said_before_the_work(tmp_path, nobody):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x.txt").write_text("old")
    (folder / "x.txt").chmod(0o444)
    folder.chmod(0o777)
    with nobody(), pytest.raises(PermissionError, match=r"x\.txt"):
        write(folder / "x.txt")
    folder.chmod(0o555)
    with nobody(), pytest.raises(PermissionError, match=r"folder'$"):
        write(folder / "new.txt")
    with nobody(), pytest.raises(PermissionError, match=r"folder'$"):
        check_folder(folder / "new" / "folder")
    folder.chmod(0o755)
    assert (folder / "x.txt").read_text() == "old"


@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_json_that_is_nested_too_deeply_is_a_value_error(bracket):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(bracket * 100_000)


def test_a_value_that_can_be_read_but_not_written_is_refused():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deeply"):
        check_text(value)


@pytest.mark.parametrize("value", ["a \ud800", {"\udfff": 1}, [["\ud83d"]]])
def test_half_a_surrogate_pair_is_named(value):
    with pytest.raises(ValueError, match=r"^\\ud.{3} is half of a surrogate pair"):
        check_text(value)


@given(st.recursive(st.text(st.characters(exclude_categories=["Cs"])), st.lists))
def test_text_is_valid(value):
    check_text(value)


@pytest.mark.parametrize("error", [ValueError("first\nsecond"), KeyError("first"), RecursionError("first")])
def test_what_a_parser_raises_names_the_file(tmp_path, error):
    problem = rf"E144.*model cannot be read: {type(error).__name__}: .?first.?\."
    with pytest.raises(ELQError, match=problem) as raised, loading(tmp_path / "model"):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [ELQError("x"), FileNotFoundError(2, "x"), KeyboardInterrupt()])
def test_what_speaks_for_itself_stays(tmp_path, error):
    with pytest.raises(type(error)) as raised, loading(tmp_path):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "?", "a/b"), "a/b: Permission denied. Check its permissions"),
        (OSError(28, "?", "a/b"), "a/b: No space left on device. Free some space"),
        (OSError(5, "?", "a/b"), "a/b: Input/output error."),
        (OSError("the hub\nis away"), "OSError: the hub."),
        (OSError(), "OSError: no reason given."),
    ],
)
def test_what_the_system_refuses_is_explained_in_a_line(error, text):
    message = explain(error)
    assert message.startswith(f"[spacy-elq E145] {text}")
    assert "\n" not in message
