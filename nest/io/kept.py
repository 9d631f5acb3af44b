"""Files kept from one run for the next (`NEST_CACHE`), each of which can be made again: all are safe to delete.

The command keeps them in the user's folder of caches unless told otherwise, and nothing is said where that cannot be
written to. In Python nothing is kept unless the variable says where.

They are pickles, which can run code when they are read, as Python's own bytecode caches can: a file is read only where
it belongs to whoever runs nest.
"""

import gc
import os
import pickle
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from nest.errors import InputError
from nest.io import KEPT_IN, KEPT_NOWHERE, KEPT_WITH_CACHES, replacing

LARGEST = 2**26
"""Bytes of a file at most: what is larger takes long to read, too."""

MOST = 2**28
"""Bytes of all files at most: those not used for the longest time make room."""

SUFFIX = ".pickle"


class TooLarge(Exception):  # noqa: N818 - not an error: it is not kept
    """Raised by writing what takes more than `LARGEST` bytes."""


class Reader(Protocol):
    """Reads one object, as `pickle.Unpickler` does."""

    def load(self) -> Any:
        """The object."""


class Writer(Protocol):
    """Writes one object, as `pickle.Pickler` does."""

    def dump(self, what: Any, /) -> None:
        """Write `what`."""


def kept_file(asked: str) -> Path | None:
    """The file with what follows from a text and from nest's own code; None: nothing is kept."""
    folder = _folder()
    if folder is None:
        return None
    return folder / f"{_digest(f'{code()} {asked}')}{SUFFIX}"


def _digest(text: str) -> str:
    from hashlib import sha256  # OpenSSL, which takes a hundredth of a short solve to load.

    return sha256(text.encode()).hexdigest()


def _folder() -> Path | None:
    named = os.environ.get(KEPT_IN)
    if named in (None, "", KEPT_NOWHERE):
        return None
    if named != KEPT_WITH_CACHES:
        return Path(named)
    from platformdirs import user_cache_path

    folder = user_cache_path("nest", appauthor=False)
    return folder if folder.is_absolute() else None  # Somebody without a home.


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage: what is read or written is one heap of objects that all live on."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def read_kept(path: Path, reader: Callable[[Any], Reader] = pickle.Unpickler) -> Any:
    """What is kept in a file; None: there is none, or it is damaged or somebody else's."""
    try:
        with path.open("rb") as file, _uncollected():
            if hasattr(os, "geteuid") and os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            found = reader(file).load()
    except Exception:  # Not there, cut short, or not a file of ours: pickle raises what it likes. It is made again.
        return None
    with suppress(OSError):  # The folder may be somebody else's, to read from.
        os.utime(path)
    return found


def keep(path: Path, what: Any, writer: Callable[[Any], Writer] = pickle.Pickler) -> None:
    """Write a file, unless it would be too large or too deep; a reader meets the old one or the new one, whole.

    Raises:
        InputError: the folder that the user names cannot be written to.
    """
    try:
        _write(path, what, writer)
    except InputError:
        if os.environ.get(KEPT_IN) != KEPT_WITH_CACHES:  # The user named the folder.
            raise


def _write(path: Path, what: Any, writer: Callable[[Any], Writer]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # Who can write here can run code.
    except OSError as error:
        raise InputError(f"{KEPT_IN}: {path.parent}: cannot make this folder: {error.strerror}.") from None
    # Too deep, or another thread changes it.
    with suppress(TooLarge, RuntimeError), replacing(path) as temporary, temporary.open("wb") as file, _uncollected():
        writer(_Limited(file.write)).dump(what)
    _make_room(path)


class _Limited:
    """A file of at most `LARGEST` bytes."""

    def __init__(self, write: Callable[[Any], int]) -> None:
        self._write, self._left = write, LARGEST

    def write(self, data: Any) -> int:
        """Write bytes, or what holds some."""
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            raise TooLarge
        return self._write(data)


def _make_room(latest: Path) -> None:
    """Delete the files that were used longest ago until `MOST` bytes hold the others; `latest` stays."""
    files = []
    for path in latest.parent.glob(f"*{SUFFIX}"):
        with suppress(OSError):  # Another process deleted it.
            state = path.stat()
            files.append((path != latest, -state.st_mtime_ns, state.st_size, path))
    room = MOST
    for _, _, size, path in sorted(files):
        room -= size
        if room < 0 and path != latest:
            with suppress(OSError):
                path.unlink()


@cache
def code() -> str:
    """A digest of what answers follow from beside what is asked: nest's own files, Python and numpy.

    Files are told apart by their size and the time they were changed, as Python does for its bytecode.
    """
    import numpy

    files = sorted(_files(Path(__file__).resolve().parents[1]))
    return _digest(f"{platform.python_version()} {numpy.__version__} {files}")


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """Path, size and time of change of the files in a folder, but for what Python compiles of them."""
    found, waiting = [], [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting += [entry.path] if entry.name != "__pycache__" else []
                else:
                    state = entry.stat()
                    found.append((entry.path, state.st_size, state.st_mtime_ns))
    return found
