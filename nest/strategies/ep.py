"""Expert parallelism, and the routed experts' own degree of tensor parallelism.

Lepikhin et al., GShard, arXiv 2006.16668, section 3; Rajbhandari et al., DeepSpeed-MoE, arXiv 2201.05596, section 5.
Every rank holds a share of the routed experts. Tokens travel to the chosen experts by an all-to-all (dispatch) and back
by another (combine). Expert ranks are laid over the ranks of tensor and context parallelism, and over several copies of
the attention part if those are too few (Liu et al., MoE Parallel Folding, arXiv 2504.14960).

Expert-tensor parallelism: Narayanan et al. split experts like the rest; Megatron Core gives them a separate degree
(`--expert-tensor-parallel-size`; Liu et al., section 3). The inner width of every routed expert is divided over the
ranks, which first gather each other's tokens; their sums are scattered back. If tensor-parallel ranks hold the same
tokens anyway (no sequence parallelism), they are summed as in Megatron-LM (arXiv 1909.08053, section 3).
"""

from collections.abc import Sequence
from math import gcd

from attrs import evolve

from nest.graph import (
    Axis,
    Block,
    Collective,
    Communication,
    Operator,
    Shape,
    Tensor,
    axis_size,
    divide,
    has_axis,
    scale,
)
from nest.graph.sharded_graph import Crossing, surround
from nest.hooks.protocols import StrategyContext

GROUP = "expert"  # The parameter group of routed experts.

EXPERTS, INNER = "experts", "expert_ffn"
"""The divided axes of their parameters: the experts, and the inner width of each."""


class ExpertParallelism:
    """Splits the routed experts over ranks that each keep their own tokens.

    Loads are taken as balanced: a rank sends out as many tokens as it gets, each `top_k` times. The ranks divide
    experts, not tokens, so the experts of one rank see as many as before. Ranks of tensor parallelism with the same
    tokens each send theirs, and experts see them as often; Megatron Core refuses that and asks for sequence
    parallelism, with which every token is sent once.
    """

    name = "ep"
    after: tuple[str, ...] = ("tp", "sp", "cp")
    within = GROUP

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return divisors of every number of experts whose ranks can be laid over blocks the cluster admits."""
        return [degree for degree in _divisors(_experts(block)) if degree == 1 or _fits(block, degree, context)]

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """Return the share of one of `degree` ranks, with the all-to-alls before and after its experts."""
        routing = next((operator.routing for operator in block.graph.operators if operator.routing), None)

        def exchange(tensor: Tensor) -> Collective:
            calls = (Communication("all_to_all", tensor.bytes, self.name, routing=routing),)
            return Collective(calls, calls if tensor.differentiable else (), overlap="experts")

        def share(operator: Operator) -> Operator:
            parameters = tuple(
                evolve(p, shape=divide(p.shape, EXPERTS, degree)) if p.group == GROUP else p
                for p in operator.parameters
            )
            return evolve(operator, parameters=parameters)

        crossing = Crossing("exchange", inside=lambda shape: shape, enter=exchange, leave=exchange)
        graph = surround(block.graph, GROUP, crossing, share)
        folded = block.folded(GROUP, (Axis(self.name, degree),))
        return folded.applied(self.name, degree, graph)


class ExpertTensorParallelism:
    """Splits every routed expert over adjacent ranks.

    Its default in `nest evaluate` is the degree of `tp` (FORMATS.md, `fixed.etp`).
    """

    name = "etp"
    after: tuple[str, ...] = ("tp", "sp", "cp", "ep")
    follows = "tp"
    within = GROUP

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return divisors of every expert's width whose ranks can be laid over blocks the cluster admits.

        If tensor-parallel ranks hold the same tokens, they split the experts too or repeat them.
        """
        sizes = [axis_size(shape, INNER) for shape in _parameter_shapes(block) if has_axis(shape, INNER)]
        common = gcd(*sizes)
        if not common:
            return (1,)
        if _shares_tokens(block):
            shared = block.degree("tp")
            return (1, shared) if common % shared == 0 and _fits(block, shared * block.degree("ep"), context) else (1,)
        return [
            degree
            for degree in range(1, min(common, context.cluster.size) + 1)
            if common % degree == 0 and (degree == 1 or _fits(block, degree * block.degree("ep"), context))
        ]

    def searched(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return 1 and the degree of `tp`, the only ones frameworks choose themselves; others are tried if named."""
        return (1, block.degree("tp"))

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """Return the share of one of `degree` ranks, with its collectives."""

        def share(operator: Operator) -> Operator:
            parameters = tuple(evolve(p, shape=divide(p.shape, INNER, degree)) for p in operator.parameters)
            return evolve(operator, parameters=parameters, split=(*operator.split, self.name))

        crossing = self._summed(degree) if _shares_tokens(block) else self._gathered(degree)
        graph = surround(block.graph, GROUP, crossing, share)
        ranks = (Axis(self.name, degree), Axis("ep", block.degree("ep")))
        return block.folded(GROUP, ranks).applied(self.name, degree, graph)

    def _gathered(self, degree: int) -> Crossing:
        """Return the collectives of ranks with different tokens: a gather, and a reduction to each rank's own."""

        def inside(shape: Shape) -> Shape:
            return divide(scale(shape, "sequence", degree), INNER, degree)

        def calls(kind: str, tensor: Tensor) -> tuple[Communication, ...]:
            return (Communication(kind, tensor.bytes * degree, self.name),)

        def enter(tensor: Tensor) -> Collective:
            gradients = calls("reduce_scatter", tensor) if tensor.differentiable else ()
            return Collective(calls("all_gather", tensor), gradients, overlap="experts")

        def leave(tensor: Tensor) -> Collective:
            gradients = calls("all_gather", tensor) if tensor.differentiable else ()
            return Collective(calls("reduce_scatter", tensor), gradients, overlap="experts")

        return Crossing("gather", inside, enter, leave)

    def _summed(self, degree: int) -> Crossing:
        """Return the collectives of ranks with the same tokens: sums of partial results and of input gradients."""

        def calls(tensor: Tensor) -> tuple[Communication, ...]:
            return (Communication("all_reduce", tensor.bytes, self.name),)

        return Crossing(
            "sum",
            inside=lambda shape: divide(shape, INNER, degree),
            enter=lambda tensor: Collective(backward=calls(tensor) if tensor.differentiable else (), overlap="experts"),
            leave=lambda tensor: Collective(forward=calls(tensor), overlap="experts"),
        )


def _experts(block: Block) -> int:
    """Return the greatest common divisor of the numbers of experts; 1 without any."""
    sizes = [
        axis_size(p.shape, EXPERTS)
        for operator in block.graph.operators
        for p in operator.parameters
        if p.group == GROUP
    ]
    return max(gcd(*sizes), 1)


def _divisors(number: int) -> list[int]:
    return [degree for degree in range(1, number + 1) if number % degree == 0]


def _parameter_shapes(block: Block) -> list[Shape]:
    return [p.shape for operator in block.graph.operators for p in operator.parameters]


def _shares_tokens(block: Block) -> bool:
    """Return whether the ranks of tensor parallelism hold the same tokens."""
    return block.degree("tp") > 1 and block.degree("sp") == 1


def _fits(block: Block, ranks: int, context: StrategyContext) -> bool:
    width = block.width_over(ranks)
    return width is not None and context.cluster.admits(width)
