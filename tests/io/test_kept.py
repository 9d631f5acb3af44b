"""Files kept for the next run: read as they were written, and made again where that cannot be."""

import os
import pickle
from pathlib import Path

import pytest

from nest.errors import InputError
from nest.io import KEPT_IN, KEPT_NOWHERE, KEPT_WITH_CACHES, kept
from nest.io.kept import keep, kept_file, read_kept


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KEPT_IN, str(tmp_path / "cache"))
    return tmp_path / "cache"


def file(asked: str) -> Path:
    path = kept_file(asked)
    assert path is not None
    return path


def test_what_is_kept_is_read_again(folder: Path) -> None:
    assert read_kept(file("a")) is None
    keep(file("a"), [1, 2])
    keep(file("b"), [3])
    assert (read_kept(file("a")), read_kept(file("b"))) == ([1, 2], [3])
    assert {path.parent for path in (file("a"), file("b"))} == {folder}


@pytest.mark.parametrize("name", ["", None, KEPT_NOWHERE])
def test_nothing_is_kept_without_a_folder(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEPT_IN, "elsewhere")
    monkeypatch.delenv(KEPT_IN) if name is None else monkeypatch.setenv(KEPT_IN, name)
    assert kept_file("a") is None


def test_other_code_has_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file("a")
    assert before == file("a")
    monkeypatch.setattr(kept, "code", lambda: "other")
    assert before != file("a")


def test_code_is_told_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "inner" / "__pycache__").mkdir(parents=True)
    module, compiled = tmp_path / "inner" / "module.py", tmp_path / "inner" / "__pycache__" / "module.pyc"
    module.write_text("a = 1\n")
    first = kept._files(tmp_path)
    compiled.write_text("compiled")
    assert kept._files(tmp_path) == first
    os.utime(module, ns=(0, 0))
    assert kept._files(tmp_path) != first


def test_what_is_damaged_is_not_read(folder: Path) -> None:
    keep(file("a"), list(range(1000)))
    file("a").write_bytes(file("a").read_bytes()[:-5])
    assert read_kept(file("a")) is None
    file("a").write_bytes(b"something else")
    assert read_kept(file("a")) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system knows no owners of files")
def test_what_is_somebody_elses_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(file("a"), 1)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert read_kept(file("a")) is None


def test_what_is_too_large_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(file("a"), b"1")
    monkeypatch.setattr(kept, "LARGEST", 1000)
    keep(file("a"), b"2" * 1000)
    assert read_kept(file("a")) == b"1"
    assert list(folder.iterdir()) == [file("a")]


def test_what_is_too_deep_is_not_written(folder: Path) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    keep(file("a"), deep)
    assert list(folder.iterdir()) == []


def test_what_was_not_used_for_longest_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(pickle.dumps(b"1" * 500))
    for number, name in enumerate("abc"):
        keep(file(name), b"1" * 500)
        os.utime(file(name), ns=(number, number))
    (folder / "note.txt").write_text("of somebody")
    assert read_kept(file("a")) is not None  # It is used now.
    monkeypatch.setattr(kept, "MOST", 3 * size + 10)
    keep(file("d"), b"1" * 500)
    assert [name for name in "abcd" if file(name).exists()] == ["a", "c", "d"]
    assert (folder / "note.txt").exists()
    monkeypatch.setattr(kept, "MOST", 0)
    keep(file("e"), b"1" * 500)
    assert [name for name in "abcde" if file(name).exists()] == ["e"]


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of caches of a user who names none."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name, appauthor: tmp_path / "caches" / name)
    monkeypatch.setenv(KEPT_IN, KEPT_WITH_CACHES)
    return tmp_path / "caches"


def test_it_is_kept_with_caches(caches: Path) -> None:
    keep(file("a"), 1)
    assert file("a").parent == caches / "nest"
    assert read_kept(file("a")) == 1


@pytest.mark.skipif(os.name == "nt", reason="this system knows no such modes of files")
def test_nobody_else_can_write_there(caches: Path) -> None:
    keep(file("a"), 1)
    assert file("a").parent.stat().st_mode & 0o077 == 0


def test_caches_that_cannot_be_written_to_are_done_without(caches: Path) -> None:
    caches.write_text("no folder")
    keep(file("a"), 1)
    assert read_kept(file("a")) is None


def test_somebody_without_a_home_has_no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name, appauthor: Path("~") / ".cache" / name)
    monkeypatch.setenv(KEPT_IN, KEPT_WITH_CACHES)
    assert kept_file("a") is None


def test_a_folder_that_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(KEPT_IN, str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match=f"{KEPT_IN}: .*file/cache: cannot make this folder"):
        keep(file("a"), 1)
