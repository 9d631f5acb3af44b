"""Files that a launch script speaks of: those that it writes itself, and those that lie where it does."""

from pathlib import Path

from attrs import define, field

from nest.errors import InputError
from nest.exporters.megatron.reading.tokens import UNKNOWN
from nest.io.source import read_text_of


@define
class Files:
    """Files by the name that the script has for them.

    Attributes:
        folder: where the script lies; None: nowhere, and no file is read.
        written: contents of those that the script writes out of here-documents.
    """

    folder: Path | None = None
    written: dict[str, str] = field(factory=dict)

    def text(self, name: str | None) -> str | None:
        """The content of a file; None: it is not here, or cannot be read."""
        if not name:
            return None
        if name in self.written:
            return self.written[name]
        if UNKNOWN in name:  # Such as `$(dirname $0)/arguments.sh`.
            name = name.rpartition(UNKNOWN)[2].lstrip("/")
        if name in self.written or self.folder is None:
            return self.written.get(name)
        path = self.folder / name
        try:
            return read_text_of(path) if path.is_file() else None
        except (InputError, OSError, ValueError):
            return None
