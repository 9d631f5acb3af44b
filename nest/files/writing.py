"""Writing files whole or not at all."""

import os
import tempfile
from pathlib import Path

from nest.errors import InputError


def replace(path: Path, text: str) -> None:
    """Put `text` at `path` in one step.

    Raises:
        InputError: the folder does not exist or cannot be written to.
    """
    if path.is_dir():
        raise InputError(f"{path}: cannot write a file here, there is a folder of that name.")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise InputError(f"{path}: cannot write here: {error.strerror}.") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot write here: {error.strerror}.") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
