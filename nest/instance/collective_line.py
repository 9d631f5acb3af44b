"""One way to run a collective inside one level of a network, as communication libraries plan with it."""

from attrs import field, frozen, validators

PHASES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""How often a ring goes round: an all-reduce is a reduce-scatter and an all-gather (PROBLEM.md section 1)."""


@frozen
class CollectiveLine:
    """A protocol of a communication library: `base + p (m - 1) step + p n ((m - 1) + own)/m / bandwidth` seconds.

    `m` members hold `n` bytes, as PROBLEM.md section 1 counts them, and `p` is 2 for an all-reduce, else 1. With a base
    and an own share of 0 that is the ring of PROBLEM.md. A reduction in the switch moves `n` bytes once, up and down
    at the same time: `base + p (m - 1) step + n / bandwidth`. The form is that of NCCL's own plans (NVIDIA/nccl,
    src/graph/tuning.cc): a base latency of the protocol, one latency for each step, and a bandwidth.

    Attributes:
        kinds: the collectives it runs: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`.
        base: seconds of a call, however many members.
        step: seconds of each step.
        bandwidth: bytes per second, per device and direction, that it reaches.
        own: what the share of the buffer that a member need not receive costs, as part of what a share received costs.
        in_switch: whether the switches reduce; all-reduces only.
        members: fewest members with which the library uses it.
    """

    kinds: tuple[str, ...] = field(validator=validators.deep_iterable(validators.in_(PHASES), validators.min_len(1)))
    base: float = field(validator=validators.ge(0))
    step: float = field(validator=validators.ge(0))
    bandwidth: float = field(validator=validators.gt(0))
    own: float = field(default=0.0, validator=[validators.ge(0), validators.le(1)])
    in_switch: bool = False
    members: int = field(default=2, validator=validators.ge(2))

    def fits(self, kind: str, members: int) -> bool:
        """Whether it runs `kind` among so many members."""
        return kind in self.kinds and members >= self.members

    def received(self, members: int) -> float:
        """Parts of a member's bytes that cost time in one phase, of all it holds."""
        return 1.0 if self.in_switch else (members - 1 + self.own) / members

    def figures(self, kind: str, members: int) -> tuple[float, float]:
        """Seconds, and seconds per byte, of `kind` among members of one group."""
        phases = PHASES[kind]
        passes = 1 if self.in_switch else phases
        latency = self.base + phases * (members - 1) * self.step
        return latency, passes * self.received(members) / self.bandwidth
