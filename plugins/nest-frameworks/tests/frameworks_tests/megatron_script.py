"""A public launch script, and what is to be read of it."""

from typing import Any

from attrs import field, frozen


@frozen
class Script:
    """A script, and what is read of it: `ranks` and decisions, or words of the refusal in `refused`.

    `beside`: files that lie where the script does, by name.
    """

    source: str
    text: str
    ranks: int | None = None
    fixed: dict[str, Any] = field(factory=dict)
    training: dict[str, Any] = field(factory=dict)
    refused: str = ""
    options: dict[str, Any] = field(factory=dict)
    beside: dict[str, str] = field(factory=dict)
