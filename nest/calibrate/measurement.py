"""A measured collective."""

from attrs import field, frozen, validators

from nest.instance.cluster import PHASES


@frozen
class Measurement:
    """Seconds that a collective took.

    Attributes:
        table: what it was read from, for reports.
        kind: `all_reduce`, `all_gather`, `reduce_scatter` or `all_to_all`.
        bytes: as PROBLEM.md section 1 counts them: the full buffer; for an all-to-all what each member holds.
        shape: members per group of each level, innermost first.
        seconds: of one call.
        links: of the catalogue, one for each level; the last is what the measurement tells something about.
        bandwidths: nominal bytes per second of each level; None: the link's own.
    """

    table: str
    kind: str = field(validator=validators.in_(PHASES))
    bytes: float = field(validator=validators.gt(0))
    shape: tuple[int, ...] = field(validator=validators.min_len(1))
    seconds: float = field(validator=validators.gt(0))
    links: tuple[str, ...]
    bandwidths: tuple[float | None, ...]

    @property
    def link(self) -> str:
        """The outermost link."""
        return self.links[-1]
