"""Expert parallelism.

Lepikhin et al., GShard, arXiv 2006.16668, section 3; Rajbhandari et al., DeepSpeed-MoE, arXiv 2201.05596, section 5.
Every rank holds a share of the routed experts. Tokens travel to the experts they chose by an all-to-all (dispatch)
and back by another (combine). Expert ranks are laid over the ranks of tensor and context parallelism, and reach over
several copies of the attention part where those are too few (Liu et al., MoE Parallel Folding, arXiv 2504.14960).
"""

from collections.abc import Sequence
from math import gcd

from attrs import evolve

from nest.graph import Axis, Block, Collective, Communication, Operator, Tensor, axis_size, divide
from nest.graph.sharded_graph import Crossing, surround
from nest.hooks.protocols import StrategyContext

GROUP = "expert"
"""The parameter group of routed experts."""

AXIS = "experts"
"""The axis of their parameters that is divided."""


class ExpertParallelism:
    """Splits the routed experts over ranks that each keep their own tokens.

    Loads are taken to be balanced: a rank sends out as many tokens as it gets, each `top_k` times. The ranks divide
    experts, not tokens: what passes through the experts of one rank stays as it was. Ranks of tensor parallelism that
    hold the same tokens each send theirs, and experts see them as often; Megatron Core refuses that and asks for
    sequence parallelism, where every token is sent once.
    """

    name = "ep"
    after: tuple[str, ...] = ("tp", "sp", "cp")
    within = GROUP

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Divisors of every number of experts whose ranks can be laid over blocks that the cluster admits."""
        return [degree for degree in _divisors(_experts(block)) if degree == 1 or _fits(block, degree, context)]

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """The share of one of `degree` ranks, with the all-to-alls in front of and behind its experts."""
        routing = next((operator.routing for operator in block.graph.operators if operator.routing), None)

        def exchange(tensor: Tensor) -> Collective:
            calls = (Communication("all_to_all", tensor.bytes, self.name, routing=routing),)
            return Collective(calls, calls if tensor.differentiable else (), overlap="experts")

        def share(operator: Operator) -> Operator:
            parameters = tuple(
                evolve(p, shape=divide(p.shape, AXIS, degree)) if p.group == GROUP else p for p in operator.parameters
            )
            return evolve(operator, parameters=parameters)

        crossing = Crossing("exchange", inside=lambda shape: shape, enter=exchange, leave=exchange)
        graph = surround(block.graph, GROUP, crossing, share)
        folded = block.folded(GROUP, (Axis(self.name, degree),))
        return folded.applied(self.name, degree, graph)


def _experts(block: Block) -> int:
    """The greatest common divisor of the numbers of experts; 1 without any."""
    sizes = [
        axis_size(p.shape, AXIS) for operator in block.graph.operators for p in operator.parameters if p.group == GROUP
    ]
    return max(gcd(*sizes), 1)


def _divisors(number: int) -> list[int]:
    return [degree for degree in range(1, number + 1) if number % degree == 0]


def _fits(block: Block, degree: int, context: StrategyContext) -> bool:
    width = block.width_over(degree)
    return width is not None and context.cluster.admits(width)
