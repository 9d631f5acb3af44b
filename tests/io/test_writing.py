"""Writing: whole or not at all, whatever goes wrong."""

import os
import stat
from pathlib import Path

import pytest

from nest import io
from nest.errors import InputError


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_the_text_and_usual_permissions(tmp_path: Path) -> None:
    io.write_text(tmp_path / "plan.json", "zwölf\n")
    assert (tmp_path / "plan.json").read_bytes() == "zwölf\n".encode()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o666 & ~mask
    assert left(tmp_path) == ["plan.json"]


@pytest.mark.parametrize("broken", ["write", "replace"])
def test_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if broken == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(InputError, match=r"plan.json: cannot write here: No space left on device\."):
        io.write_text(path, "new")
    assert path.read_text() == "old"
    assert left(tmp_path) == ["plan.json"]


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        io.write_text(tmp_path / "none" / "plan.json", "")
    with pytest.raises(InputError, match="there is a folder of that name"):
        io.write_text(tmp_path, "")
    with pytest.raises(InputError, match="cannot write here"):
        io.write_text(tmp_path / ("x" * 300), "")
    with pytest.raises(InputError, match="cannot write here"):
        io.write_text(tmp_path / "a\0b", "")
    assert left(tmp_path) == []


def test_what_a_link_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "plan.json")
    io.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plan.json").read_text() == "new"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        io.write_text(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_files_go_into_a_folder_beside_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    io.write_files(folder, {"a.txt": "a", "in/b.sh": "#!/bin/sh\n"})
    (folder / "kept").write_text("kept")
    io.write_files(folder, {"a.txt": "other"})
    assert left(folder) == ["a.txt", "in", "kept"]
    assert ((folder / "a.txt").read_text(), (folder / "kept").read_text()) == ("other", "kept")
    assert os.access(folder / "in" / "b.sh", os.X_OK)
    assert not os.access(folder / "a.txt", os.X_OK)


@pytest.mark.parametrize("fails_at", [1, 2])
def test_files_are_all_there_or_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    (tmp_path / "a").write_text("old")
    moved = Path.replace
    calls = 0

    def fail(path: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == fails_at + 1:
            raise OSError(28, "No space left on device")
        return moved(path, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match="cannot write here: No space left on device"):
        io.write_files(tmp_path, {"a": "new", "in/b": "new", "in/c": "new"})
    assert left(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_files_cannot_take_the_place_of_folders(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="there is something else of that name"):
        io.write_files(tmp_path, {"a": "new", "b": "new"})
    assert left(tmp_path) == ["b"]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write here"):
        io.write_files(tmp_path / "file" / "deep", {"a": "new"})


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    problem = tmp_path / "problem.yaml"
    problem.write_text("nest: 1")
    (tmp_path / "link.yaml").symlink_to(problem)
    for path in (problem, tmp_path / "link.yaml", tmp_path / ".." / tmp_path.name / "problem.yaml"):
        with pytest.raises(InputError, match="would overwrite the input"):
            io.check_writable(path, {"nest": 1}, str(problem))
    other = tmp_path / "other.yaml"
    other.write_text("nest: 1")
    io.check_writable(other, problem, tmp_path / "missing.yaml")
    io.check_writable(tmp_path / "new.yaml", problem)
    io.check_writable(Path(os.devnull), os.devnull)
