"""What a framework's flags say, as far as a problem has words for it."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class FlagsRead:
    """Flags of a framework in the words of a problem.

    Attributes:
        settings: keys of a problem with what the flags say of them: `model`, `training`, `fixed`, as far as they go.
        devices: how many the flags are launched on; None: they do not say.
        vocabulary: keys in `settings` of the number of tokens of the vocabulary, which is missing there; empty: it is
            there, or there is no model.
        notes: what was passed over or assumed, a sentence each.
    """

    settings: Mapping[str, Any]
    devices: int | None = None
    vocabulary: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
