"""Results of a sweep so far: a line of JSON for each point, beside the output, that survives a kill."""

import json
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from nest.errors import InputError

SUFFIX = ".journal"


def journal_of(output: Path) -> Path:
    """The journal of an output: `results.csv.journal` beside `results.csv`."""
    return output.with_name(output.name + SUFFIX)


class Journal:
    """Answers by key, on disk; in memory are only the places of their lines, so that any number of them fits.

    A line that was not written to its end, as the process was killed, is taken for none and written over.
    """

    def __init__(self, path: Path) -> None:
        """Open the journal at `path`, made if need be.

        Raises:
            InputError: it cannot be written, is no journal, or another sweep has it open.
        """
        self._path = path
        try:
            self._writing = path.open("ab", buffering=0)
            self._file: BinaryIO = path.open("rb")
            self._lock()
        except OSError as error:
            raise InputError(f"{path}: cannot write here: {error.strerror or error}.") from None
        self._places: dict[str, int] = {}
        self._read()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        if not self._places:
            self._path.unlink(missing_ok=True)
        self._writing.close()

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def append(self, key: str, line: str) -> None:
        """Keep the answer of a point: once this returns, no crash loses it.

        Raises:
            InputError: it cannot be written, as on a full disk.
        """
        place, rest = os.fstat(self._writing.fileno()).st_size, memoryview(line.encode() + b"\n")
        try:
            while rest:
                rest = rest[self._writing.write(rest) :]
            os.fsync(self._writing.fileno())
        except OSError as error:
            with suppress(OSError):
                self._writing.truncate(place)
            raise InputError(f"{self._path}: cannot write here: {error.strerror or error}.") from None
        self._places[key] = place

    def answer(self, key: str) -> dict[str, Any]:
        """The answer of a point that is there."""
        self._file.seek(self._places[key])
        answer: dict[str, Any] = json.loads(self._file.readline())
        return answer

    def _read(self) -> None:
        """Note where each whole line begins; what is behind the last is cut off."""
        self._file.seek(0)
        end = 0
        for line in self._file:
            key = _key(line)
            if key is None:
                if line.endswith(b"\n"):
                    raise InputError(f"{self._path}: not a journal of a sweep; move it, or name another --output.")
                break
            self._places.setdefault(key, end)
            end += len(line)
        self._writing.truncate(end)

    def _lock(self) -> None:
        """Keep other sweeps out, where the system can; the lock ends with the process."""
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._writing, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                self._writing.close()
                raise InputError(f"{self._path}: another sweep writes to it; wait, or name another --output.") from None


def _key(line: bytes) -> str | None:
    """The key of a whole line; None: it is none."""
    if not line.endswith(b"\n"):
        return None
    with suppress(ValueError, KeyError, TypeError):
        answer = json.loads(line)
        return answer["key"] if isinstance(answer["key"], str) and isinstance(answer["row"], dict) else None
    return None
