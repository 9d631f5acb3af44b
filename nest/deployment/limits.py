"""What a framework can run, as data: for refusing a plan, and for searching only among what it can run."""

from collections.abc import Mapping

from attrs import field, frozen


@frozen
class Limits:
    """What a framework can run; what is left out, it can.

    Attributes:
        strategies: names of the strategies it has; others keep degree 1. None: any.
        schedules: names of its pipeline schedules; None: any.
        zero: ZeRO stages it has.
        recompute: recompute modes it has; None: any.
        offload: what it can keep in the host's memory (`training.offload`).
        rank_orders: rank orders it has; None: any, its ranks may be laid over the devices as one likes.
        zero_degrees: whether ZeRO may shard over fewer ranks than hold the same parameters.
        mixed: whether stages may differ in their candidates.
        even_stages: whether every stage must hold as many transformer blocks as any other, the embedding with the
            first and the head with the last; where layers are no transformer blocks, as many layers.
        all_devices: whether it must use every device of the cluster.
        constraints: expressions of docs/reference/constraints.md that every plan of it satisfies, each with the reason:
            a clause that reads on after "because", such as "Megatron-LM has one recompute policy for all stages".
            A layer that `same_stage` names and a model lacks asks for nothing.
    """

    strategies: tuple[str, ...] | None = None
    schedules: tuple[str, ...] | None = None
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[str, ...] | None = None
    offload: tuple[str, ...] = ()
    rank_orders: tuple[str, ...] | None = None
    zero_degrees: bool = False
    mixed: bool = False
    even_stages: bool = False
    all_devices: bool = False
    constraints: Mapping[str, str] = field(factory=dict)
