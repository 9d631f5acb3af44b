"""Built-in sub-graph strategies: one a file."""

from nest.hooks.protocols import Strategy
from nest.hooks.spec import hook


@hook
def nest_strategies() -> list[Strategy]:
    """Tensor, sequence and batch parallelism."""
    from nest.strategies.batch import BatchParallelism
    from nest.strategies.sp import SequenceParallelism
    from nest.strategies.tp import TensorParallelism

    return [TensorParallelism(), SequenceParallelism(), BatchParallelism()]
