"""Writing files whole or not at all."""

import os
import tempfile
from pathlib import Path

from nest.errors import InputError


def check_writable(path: Path) -> None:
    """Make sure, before hours are spent on what should be written, that `path` can name a file.

    Raises:
        InputError: its folder does not exist, or it is a folder itself.
    """
    if path.is_dir():
        raise InputError(f"{path}: cannot write a file here, there is a folder of that name.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot write here, there is no folder {str(path.parent)!r}.")


def replace(path: Path, text: str) -> None:
    """Put `text` at `path` in one step; what a link points to is replaced, and a device is written to as it is.

    Raises:
        InputError: the folder does not exist or cannot be written to.
    """
    try:
        check_writable(path)
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8", newline="\n")
        else:
            _replace(target, text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot write here: {reason}.") from None


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".nest-", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
