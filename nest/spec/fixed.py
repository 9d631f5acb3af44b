"""The `fixed` section of a problem: decisions already taken (FORMATS.md)."""

from typing import ClassVar

from attrs import frozen


@frozen
class Fixed:
    """Decisions already taken; `nest evaluate` gives what is left out the usual framework default.

    Attributes:
        values: by name: any name constraints know (a strategy's degree, `pp`, `dp`, `replicas`, `micro_batch`,
            `micro_batches`, `devices`, `zero`), `sp` (true or false), `etp`, `recompute`, `schedule`, `chunks`,
            `rank_order`, `zero_degree`.
        stages: per stage either a list of layer names, or a count of transformer blocks.
    """

    REST_IN: ClassVar[str] = "values"

    values: dict[str, int | float | str | bool]
    stages: tuple[int | tuple[str, ...], ...] | None = None
