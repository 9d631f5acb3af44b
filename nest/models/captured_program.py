"""Operator graphs that scripts made with `torch.export`: a list of nodes with name, call, inputs, sizes and module."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from nest.errors import InputErrors
from nest.graph import OperatorGraph
from nest.graph.program.assembling import graph_of
from nest.graph.program.layering import layering
from nest.graph.program.naming import name_axes
from nest.models.building.layer import activation_itemsize
from nest.models.captured.attention import attentions, rewritten
from nest.models.captured.fusing import fused
from nest.models.captured.loss import with_loss
from nest.models.captured.node import KEYS, nodes
from nest.models.captured.placeholders import placeholders
from nest.models.captured.tracing import Tracer, model_dtype
from nest.spec import Training


@frozen
class CapturedProgramImporter:
    """An importer of captured programs, for one sample of the training's length.

    Attributes:
        name: as `nest models` lists it.
    """

    name: str = "captured_program"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a mapping one of whose values is a list of nodes."""
        return isinstance(source, Mapping) and len(_lists(source)) == 1

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """The operator graph.

        Raises:
            InputErrors: a node is none, sizes do not fit, or the samples are not of the training's length.
        """
        key = _lists(source)[0]
        return _graph(source[key], training)


def _lists(source: Mapping[str, Any]) -> list[str]:
    """The keys under which nodes are."""
    return [key for key, value in source.items() if _is_program(value)]


def _is_program(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return isinstance(value[0], Mapping) and value[0].keys() >= KEYS


def _graph(rows: Sequence[Any], training: Training) -> OperatorGraph:
    program = nodes(rows)
    found = attentions(program)
    given = placeholders(program, {})
    program = rewritten(program, found)
    tracer = Tracer(given, found, model_dtype(program), int(activation_itemsize(training)), False)
    traced = tracer.traced(program)
    if traced.sequence and traced.sequence != training.sequence_length:
        raise InputErrors(
            [
                f"training.sequence_length is {training.sequence_length}, but the program was captured for samples of "
                f"{traced.sequence} tokens; make them the same, or capture it anew."
            ]
        )
    operators = fused(traced.operators)
    name_axes(operators)
    operators = with_loss(operators)
    return graph_of(operators, layering(operators), "captured_program")


importer = CapturedProgramImporter()
