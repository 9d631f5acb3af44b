"""Graphs that were captured: what scripts wrote down of `torch.export`, and graphs with fewer blocks than the model.

The rules by which calls become operators are those of `nest capture` (`nest.graph.program`), with three differences, by
which the graph is the model as it is trained rather than the program as it was traced: attention that a decomposition
wrote out is one operator again, small operators of one module run together, and logits get the loss they are made for.
"""

from typing import Any

from attrs import evolve, frozen

from nest.errors import InputErrors
from nest.graph import OperatorGraph
from nest.graph.program.assembling import graph_of
from nest.graph.program.layering import layering, shorten
from nest.graph.program.naming import name_axes
from nest.graph.repeat import repeated
from nest.models.building.layer import activation_itemsize
from nest.models.captured.attention import attentions, rewritten
from nest.models.captured.fusing import fused
from nest.models.captured.loss import with_loss
from nest.models.captured.node import nodes
from nest.models.captured.placeholders import placeholders
from nest.models.captured.source import CapturedSource, captured, is_captured
from nest.models.captured.tracing import Traced, Tracer, model_dtype
from nest.models.operator_graph import importer as written
from nest.spec import Training

LOSS_ADDED = "the program ends with logits; their cross-entropy follows, as in training."
"""Said where it does."""


@frozen
class CapturedProgramImporter:
    """An importer of captured programs, for one sample of the training's length.

    Attributes:
        name: as `nest models` lists it.
    """

    name: str = "captured_program"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a mapping that holds one list of nodes, or under `graph` an operator graph."""
        return is_captured(source)

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """The operator graph.

        Raises:
            InputErrors: an option or a node is none, sizes do not fit, or the samples are not of the training's length.
        """
        said = captured(source)
        graph = written.load(said.graph, training) if said.graph else _graph(said, training)
        return graph if said.repeat is None else repeated(graph, said.repeat)

    def sequence_length(self, source: Any) -> int:
        """Tokens of the samples it was captured for; 0: it has no sequence.

        Raises:
            InputErrors: as `load`.
        """
        said = captured(source)
        return written.sequence_length(said.graph) if said.graph else _traced(said, Training(1)).sequence


def _graph(said: CapturedSource, training: Training) -> OperatorGraph:
    traced = _traced(said, training)
    if traced.sequence and traced.sequence != training.sequence_length:
        asked = "missing" if training.sequence_length is None else str(training.sequence_length)
        raise InputErrors(
            [
                f"training.sequence_length is {asked}, but the program was captured for samples of {traced.sequence} "
                "tokens; make them the same, or capture it anew."
            ]
        )
    operators = fused(traced.operators)
    if not operators:
        raise InputErrors(["the program computes nothing from inputs or parameters."])
    name_axes(operators)
    trained = with_loss(operators, fused=training.loss == "fused")
    shorten(trained)
    graph = graph_of(trained, layering(trained), CapturedProgramImporter().name)
    added = [LOSS_ADDED] if len(trained) > len(operators) else []
    return evolve(graph, assumptions=(*traced.assumptions, *added))


def _traced(said: CapturedSource, training: Training) -> Traced:
    program = nodes(said.nodes)
    found = attentions(program)
    given = placeholders(program, said.parameters)
    program = rewritten(program, found)
    itemsize = int(activation_itemsize(training))
    tracer = Tracer(given, found, model_dtype(program), itemsize, said.causal, training.stores_scores)
    return tracer.traced(program)


importer = CapturedProgramImporter()
