"""Files kept for the next run: read as they were written, and made again where that cannot be."""

import errno
import os
from pathlib import Path

import pytest

from nest.errors import NotKept
from nest.io import KEPT_IN, KEPT_NOWHERE, KEPT_WITH_CACHES
from nest.whatif import disk_cache
from nest.whatif.disk_cache import kept_file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KEPT_IN, str(tmp_path / "cache"))
    return tmp_path / "cache"


Numbers = tuple[int, ...]


def keep(asked: str, answer: object, kind: object = Numbers) -> None:
    disk_cache.keep(file(asked), asked, answer, kind)


def read_kept(asked: str, kind: object = Numbers) -> object:
    return disk_cache.read_kept(file(asked), asked, kind)


def file(asked: str) -> Path:
    path = kept_file(asked)
    assert path is not None
    return path


def test_what_is_kept_is_read_again(folder: Path) -> None:
    assert read_kept("a") is None
    keep("a", (1, 2))
    keep("b", (3,))
    assert (read_kept("a"), read_kept("b")) == ((1, 2), (3,))
    assert {path.parent for path in (file("a"), file("b"))} == {folder}


@pytest.mark.parametrize("name", ["", None, KEPT_NOWHERE])
def test_nothing_is_kept_without_a_folder(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEPT_IN, "elsewhere")
    monkeypatch.delenv(KEPT_IN) if name is None else monkeypatch.setenv(KEPT_IN, name)
    assert kept_file("a") is None


def test_other_code_has_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file("a")
    assert before == file("a")
    monkeypatch.setattr(disk_cache, "code", lambda: "other")
    assert before != file("a")


def test_code_is_told_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "inner" / "__pycache__").mkdir(parents=True)
    module, compiled = tmp_path / "inner" / "module.py", tmp_path / "inner" / "__pycache__" / "module.pyc"
    module.write_text("a = 1\n")
    first = disk_cache._files(tmp_path)
    compiled.write_text("compiled")
    assert disk_cache._files(tmp_path) == first
    os.utime(module, ns=(0, 0))
    assert disk_cache._files(tmp_path) != first


def test_code_that_was_changed_since_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "code", disk_cache.code.__wrapped__)
    keep("a", (1,))
    monkeypatch.setattr(disk_cache, "LOADED", Path(disk_cache.__file__).stat().st_ctime_ns - 1)
    assert kept_file("a") is None


@pytest.mark.parametrize("data", [b"", b"something else", b"\x80\x04K\x01.", b"\n[1]", b"[" * 100_000])
def test_what_is_no_answer_is_not_read(folder: Path, data: bytes) -> None:
    folder.mkdir()
    file("a").write_bytes(data)
    assert read_kept("a") is None


def test_the_answer_to_another_question_is_not_read(folder: Path) -> None:
    keep("a", (1,))
    file("a").rename(file("b"))
    assert read_kept("b") is None


@pytest.mark.parametrize("answer", [(object(),), 5, {"a": 1}])
def test_what_would_read_as_something_else_is_not_kept(folder: Path, answer: object) -> None:
    keep("a", answer)
    assert not folder.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system knows no owners of files")
def test_what_is_somebody_elses_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("a", (1,))
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert read_kept("a") is None


def test_what_is_too_large_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("a", (1,))
    monkeypatch.setattr(disk_cache, "LARGEST", 1000)
    keep("a", (2,) * 1000)
    assert read_kept("a") == (1,)
    assert list(folder.iterdir()) == [file("a")]


def test_what_was_not_used_for_longest_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate("abc"):
        keep(name, (1,) * 500)
        os.utime(file(name), ns=(number, number))
    size = file("a").stat().st_size
    (folder / "note.txt").write_text("of somebody")
    assert read_kept("a") is not None  # It is used now.
    monkeypatch.setattr(disk_cache, "MOST", 3 * size + 10)
    keep("d", (1,) * 500)
    assert [name for name in "abcd" if file(name).exists()] == ["a", "c", "d"]
    assert (folder / "note.txt").exists()
    monkeypatch.setattr(disk_cache, "MOST", 0)
    keep("e", (1,) * 500)
    assert [name for name in "abcde" if file(name).exists()] == ["e"]


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of caches of a user who names none."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name, appauthor: tmp_path / "caches" / name)
    monkeypatch.setenv(KEPT_IN, KEPT_WITH_CACHES)
    return tmp_path / "caches"


def test_it_is_kept_with_caches(caches: Path) -> None:
    keep("a", (1,))
    assert file("a").parent == caches / "nest"
    assert read_kept("a") == (1,)


@pytest.mark.skipif(os.name == "nt", reason="this system knows no such modes of files")
def test_nobody_else_can_write_there(caches: Path) -> None:
    keep("a", (1,))
    assert file("a").parent.stat().st_mode & 0o077 == 0


def test_somebody_without_a_home_has_no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name, appauthor: Path("~") / ".cache" / name)
    monkeypatch.setenv(KEPT_IN, KEPT_WITH_CACHES)
    assert kept_file("a") is None


def test_a_folder_that_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(KEPT_IN, str(tmp_path / "file" / "cache"))
    with pytest.warns(NotKept, match=f"{KEPT_IN}: .*file/cache: cannot cache the answer: Not a directory"):
        keep("a", (1,))


def test_a_full_disk_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(NotKept, match="No space left on device"):
        keep("a", (1,))
    assert list(folder.iterdir()) == []
