"""What all ranks of a block must have together, and how often they repeat it: rules of their own, nothing of `nest`.

Everything is compared per sample of the micro-batch, since a block may hold several copies of the attention part. Ranks
together have once what the unsplit model has, except that

* heads, key-value heads, feed-forward widths and the vocabulary are dealt out in whole units: `tp` ranks that each hold
  the largest share hold `tp * ceil(size / tp)` units (a padded vocabulary, repeated key-value heads);
* without sequence parallelism the `tp` ranks repeat what has no such axis;
* labels and token ids are read whole by ranks that share a vocabulary, with sequence parallelism too;
* `etp` ranks that gather each other's tokens repeat what passes their experts at the width of the model, and share
  what has an expert's inner width;
* without sequence parallelism, ranks with the same tokens repeat the experts unless `etp` splits them.
"""

from collections.abc import Mapping
from fractions import Fraction

from attrs import frozen

from nest.graph import Operator, OperatorGraph, Shape

UNITS = ("heads", "kv_heads", "ffn", "vocab")
"""Axes dealt out to tensor-parallel ranks in whole units."""


@frozen
class Degrees:
    """One combination."""

    tp: int = 1
    sp: bool = False
    cp: int = 1
    ep: int = 1
    etp: int = 1

    @classmethod
    def of(cls, degrees: Mapping[str, int]) -> "Degrees":
        """From what a block says was applied."""
        return cls(degrees["tp"], degrees["sp"] > 1, degrees["cp"], degrees["ep"], degrees["etp"])

    @property
    def alike(self) -> int:
        """Ranks that hold the same tokens."""
        return 1 if self.sp else self.tp

    @property
    def expert_ranks(self) -> int:
        """Ranks over which one set of experts is laid; all that hold the same tokens, where nothing splits experts."""
        return self.ep * self.etp if self.ep * self.etp > 1 else self.alike

    @property
    def width(self) -> int:
        """Devices of a block (FORMATS.md, `fixed`)."""
        return max(self.tp * self.cp, self.ep * self.etp)

    @property
    def copies(self) -> int:
        """Copies of the attention part in a block."""
        return self.width // (self.tp * self.cp)

    def times(self, shape: Shape, *, inside_experts: bool = False, whole: bool = False) -> Fraction:
        """How often all ranks of one copy hold together what the unsplit model holds once."""
        sizes = dict(shape)
        units = [sizes[axis] for axis in UNITS if axis in sizes]
        assert len(units) <= 1, shape
        if units:
            return Fraction(-(-units[0] // self.tp) * self.tp, units[0])
        if inside_experts:
            # Ranks with tokens of their own gather them; ranks with the same tokens have them already.
            gathered = self.etp if self.alike == 1 else self.tp
            return Fraction(gathered, self.etp) if "expert_ffn" in sizes else Fraction(gathered)
        return Fraction(self.tp if whole else self.alike)


@frozen
class Amounts:
    """What a layer has: forward FLOP, backward FLOP and bytes saved, of all ranks and per sample."""

    forward: Fraction
    backward: Fraction
    saved: Fraction


def holds_experts(operator: Operator) -> bool:
    """Whether an operator of an unsplit model works on what was sent to the experts."""
    return "expert_ffn" in dict(operator.space) or any(each.group == "expert" for each in operator.parameters)


def expected(operators: tuple[Operator, ...], degrees: Degrees, kept: frozenset[str], made: frozenset[str]) -> Amounts:
    """What the ranks of a block must have together of one unsplit layer.

    Args:
        operators: of the unsplit layer, for one sample.
        degrees: of the block.
        kept: names of the tensors kept for the backward pass.
        made: names of the tensors that any operator of the model makes; the others are data.
    """
    forward = backward = saved = Fraction(0)
    waiting = set(kept)
    for operator in operators:
        inside = holds_experts(operator)
        times = degrees.times(operator.space, inside_experts=inside)
        forward += times * Fraction(operator.flops)
        backward += times * Fraction(operator.backward_flops)
        for tensor in (*operator.inputs, *operator.outputs):
            if tensor.name in waiting and (tensor.name in operator.saves or not _saved_by_any(operators, tensor.name)):
                waiting.remove(tensor.name)
                data = tensor.name not in made and any(axis in dict(operator.space) for axis in UNITS)
                saved += degrees.times(tensor.shape, inside_experts=inside, whole=data) * Fraction(tensor.bytes)
    assert not waiting
    return Amounts(forward, backward, saved)


def _saved_by_any(operators: tuple[Operator, ...], name: str) -> bool:
    return any(name in operator.saves for operator in operators)


def parameters(graph: OperatorGraph, group: str, degrees: Degrees) -> Fraction:
    """Scalars of `group` that ranks with different parameters must hold together."""
    total = Fraction(0)
    for operator in graph.operators:
        for parameter in operator.parameters:
            if parameter.group != group:
                continue
            if group == "expert":
                # Where nothing splits experts, ranks with the same tokens have the same gradients and reduce none.
                # Ranks that divide an expert's width each hold the bias of its last projection, which has none of it.
                whole = 1 if any(axis == "expert_ffn" for axis, _ in parameter.shape) else degrees.etp
                times = Fraction(degrees.alike if degrees.ep * degrees.etp == 1 else whole)
            else:
                # What has no unit to deal out is held by every tensor-parallel rank.
                sizes = dict(parameter.shape)
                units = any(axis in sizes for axis in UNITS)
                times = degrees.times(parameter.shape) if units else Fraction(degrees.tp)
            total += times * parameter.count
    return total
