"""A strategy of two axes that do not have its name: heads, widths and vocabulary by rows, the sequence by columns.

It is sound, and tests plant mistakes in it. Rows split as tensor parallelism does (arXiv 1909.08053), columns as
context parallelism with gathered keys and values (arXiv 2407.21783, section 3.3.2).
"""

from collections.abc import Sequence

from attrs import evolve

from nest.graph import Block, Operator
from nest.hooks.protocols import StrategyContext
from nest.strategies.cp import ContextParallelism
from nest.strategies.tp import TensorParallelism

ROWS, COLUMNS = "rows", "columns"
AXES = {"tp": ROWS, "cp": COLUMNS}
SHAPES = {4: (2, 2), 8: (2, 4)}
"""Rows and columns of each degree: as many of both, and fewer of one."""


class Grid:
    """Ranks in rows and columns.

    Attributes:
        telling: whether operators say by axis who divided them (`rows`, `columns`), or by the strategy's name where
            both axes did.
    """

    name = "grid"
    after: tuple[str, ...] = ()

    def __init__(self, telling: bool = True) -> None:
        self.telling = telling

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Blocks that nothing else divides."""
        return (1, *SHAPES) if block.width == 1 else (1,)

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        rows, columns = SHAPES[degree]
        gathering = evolve(context, training=evolve(context.training, context_exchange="all_gather"))
        by_rows = TensorParallelism().apply(block, rows, context)
        made = ContextParallelism().apply(by_rows, columns, gathering)
        return evolve(
            made,
            graph=made.graph.map_operators(lambda operator: (self._renamed(operator),)),
            axes=tuple(evolve(axis, name=AXES[axis.name]) for axis in made.axes),
            replicated=tuple((group, AXES[axis]) for group, axis in made.replicated),
            degrees=(*block.degrees, (self.name, degree)),
        )

    def _renamed(self, operator: Operator) -> Operator:
        split = tuple(AXES[name] for name in operator.split)
        if not self.telling and set(split) == {ROWS, COLUMNS}:
            split = (self.name,)
        if operator.collective is None:
            return evolve(operator, split=split)
        calls = operator.collective
        forward, backward = (
            tuple(evolve(call, axis=AXES[call.axis]) for call in way) for way in (calls.forward, calls.backward)
        )
        return evolve(operator, split=split, collective=evolve(calls, forward=forward, backward=backward))
