"""Built-in sub-graph strategies: one a file, both of experts in one.

Belongs here: rewriting of graphs. Does not: prices.
"""

from nest.hooks.protocols import Strategy
from nest.hooks.spec import hook


@hook
def nest_strategies() -> list[Strategy]:
    """Return tensor, sequence, context, expert and batch parallelism."""
    from nest.strategies.batch import BatchParallelism
    from nest.strategies.cp import ContextParallelism
    from nest.strategies.ep import ExpertParallelism, ExpertTensorParallelism
    from nest.strategies.sp import SequenceParallelism
    from nest.strategies.tp import TensorParallelism

    return [
        TensorParallelism(),
        SequenceParallelism(),
        ContextParallelism(),
        ExpertParallelism(),
        ExpertTensorParallelism(),
        BatchParallelism(),
    ]
