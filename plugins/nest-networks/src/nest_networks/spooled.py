"""Standard input as a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from nest.errors import InputError


@contextmanager
def spooled(source: str) -> Iterator[str]:
    """Yield a file with the piped content for `-`, or a part of it (`-#NAME`); others unchanged."""
    from nest.io.source import STANDARD_INPUT, read_text_of

    name, mark, part = source.partition("#")
    if name != str(STANDARD_INPUT):
        yield source
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        path.write_text(read_text_of(STANDARD_INPUT))
        try:
            yield f"{path}{mark}{part}"
        except InputError as error:
            raise InputError(str(error).replace(str(path), "<stdin>")) from None
