"""Exported programs (`torch.export`) as models: node by node, as scripts write them down.

The rules by which calls become operators are those of `nest capture` (`nest_torch.program`), with three differences, by
which the graph is the model as it is trained rather than the program as it was traced: attention that a decomposition
wrote out is one operator again, small operators of one module run together, and logits get the loss they are made for.
PyTorch is not needed to read a program.
"""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from nest.errors import InputErrors
from nest.graph import OperatorGraph
from nest.graph.repeat import repeated
from nest.spec import Training
from nest_torch.exported.attention import attentions, rewritten
from nest_torch.exported.node import nodes
from nest_torch.exported.options import ExportedSource, exported_nodes, read_source
from nest_torch.exported.placeholders import placeholders
from nest_torch.exported.tracer import Traced, Tracer, model_dtype
from nest_torch.program.axis_names import name_axes
from nest_torch.program.fusion import fused
from nest_torch.program.graph import graph_of
from nest_torch.program.layers import layering, shorten
from nest_torch.program.loss import with_loss
from nest_torch.program.scans import scans

LOSS_ADDED = "the program ends with logits; their cross-entropy follows, as in training."
"""Said where it does."""

_WORDS = {"name": "words", "op": "aten.embedding.default", "inputs": ["p_words", "tokens"], "shape": [1, 64, 16]}
_HEAD = {"name": "head", "op": "aten.linear.default", "inputs": ["words", "p_head"], "shape": [1, 64, 96]}
EXAMPLE = {"graph": [{**each, "dtype": "torch.bfloat16"} for each in (_WORDS, _HEAD)]}
"""A program of two calls, for samples of 64 tokens."""


@frozen
class ExportedProgramImporter:
    """An importer of exported programs, for one sample of the training's length.

    Attributes:
        name: as `nest models` lists it.
        examples: sources it accepts, for `nest.testing`.
    """

    name: str = "exported_program"
    examples: tuple[Mapping[str, Any], ...] = field(default=(EXAMPLE,), eq=False)

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping that holds one list of nodes, itself or under `graph`."""
        return exported_nodes(source) is not None

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """The operator graph.

        Raises:
            InputErrors: an option or a node is none, sizes do not fit, or the samples are not of the training's length.
        """
        read = read_source(source)
        graph = _graph(read, training)
        return graph if read.repeat is None else repeated(graph, read.repeat)

    def sequence_length(self, source: Any) -> int:
        """Tokens of the samples it was exported for; 0: it has no sequence.

        Raises:
            InputErrors: as `load`.
        """
        return _traced(read_source(source), Training(1)).sequence


def _graph(source: ExportedSource, training: Training) -> OperatorGraph:
    traced = _traced(source, training)
    if traced.sequence and traced.sequence != training.sequence_length:
        asked = "missing" if training.sequence_length is None else str(training.sequence_length)
        raise InputErrors(
            [
                f"training.sequence_length is {asked}, but the program was exported for samples of {traced.sequence} "
                "tokens; make them the same, or export it anew."
            ]
        )
    operators = fused(scans(traced.operators))
    if not operators:
        raise InputErrors(["the program computes nothing from inputs or parameters."])
    name_axes(operators)
    trained = with_loss(operators, fused=training.loss == "fused")
    shorten(trained)
    graph = graph_of(trained, layering(trained), importer.name)
    added = [LOSS_ADDED] if len(trained) > len(operators) else []
    return evolve(graph, assumptions=(*graph.assumptions, *traced.assumptions, *added))


def _traced(source: ExportedSource, training: Training) -> Traced:
    program = nodes(source.nodes)
    found = attentions(program)
    given = placeholders(program, source.parameters)
    program = rewritten(program, found)
    # Activations travel and are saved in bfloat16 in the 8- and 4-bit precisions, as in nest's own models.
    itemsize = 4 if training.precision == "fp32" else 2
    tracer = Tracer(given, found, model_dtype(program), itemsize, source.causal, training.stores_scores)
    return tracer.traced(program)


importer = ExportedProgramImporter()
"""Programs that `torch.export` traced and somebody's script wrote down, node by node."""
