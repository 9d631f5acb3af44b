"""Names of axes: those strategies know where a program tells them, numbers elsewhere."""

from collections import Counter
from collections.abc import Iterable, Sequence

from nest.graph import OTHER_SAMPLES
from nest.graph.operator import Shape
from nest_torch.program.axes import Atom, Dim, leaves
from nest_torch.program.values import INPUT, Extent, Recorded

SPLIT = ("heads", "kv_heads", "ffn", "vocab")
"""Axes that tensor parallelism splits: no operator may need whole rows of them."""

BATCH = "batch"

SECOND = {"sequence": "keys", BATCH: OTHER_SAMPLES}
"""Names of axes where a tensor has them a second time: scores have a row of sequence for each of sequence, and what
compares samples one of all samples for each."""


def name_axes(operators: Sequence[Recorded]) -> None:
    """Name the axes of a program: `vocab`, `positions`, `hidden`, `ffn`; heads were named where attention was met."""
    _name_tables(operators)
    _name_width(operators)
    _name_vocabulary(operators)
    _name_experts(operators)
    _name_side_by_side(operators)
    _name_feed_forward(operators)
    whole = {leaf for operator in operators for dim in operator.reduced for leaf in leaves(dim)}
    for operator in operators:
        for leaf in _all_leaves(operator):
            if leaf.name in SPLIT and leaf in whole:
                leaf.name = ""


def _single(dim: Dim) -> Atom | None:
    """The atom a dimension consists of; None: of several, or of none."""
    found = leaves(dim)
    return found[0] if len(found) == 1 else None


def _name(dim: Dim, name: str) -> None:
    atom = _single(dim)
    if atom is not None and not atom.name:
        atom.name = name


def _name_tables(operators: Sequence[Recorded]) -> None:
    """Rows of tables that are looked up by what comes with the data are a vocabulary, by anything else positions."""
    for operator in operators:
        if operator.kind == "embedding" and operator.parameters:
            rows, columns = operator.parameters[0].dims
            asked = any(stored.origin == INPUT for stored in operator.inputs)
            _name(rows, "vocab" if asked else "positions")
            _name(columns, "hidden")


def _name_width(operators: Sequence[Recorded]) -> None:
    """Without look-ups the width of the model is the last axis that most operators write."""
    if any(leaf.name == "hidden" for operator in operators for leaf in _all_leaves(operator)):
        return
    last = Counter(
        atom
        for operator in operators
        for stored in operator.outputs
        if stored.dims and (atom := _single(stored.dims[-1])) is not None and not atom.name
    )
    if last:
        atom, count = max(last.items(), key=lambda row: row[1])
        if count > 1:
            atom.name = "hidden"


def _name_vocabulary(operators: Sequence[Recorded]) -> None:
    """A product as wide as a vocabulary makes its logits, whether or not it shares the table.

    What another product sums over is no logits, however wide it is.
    """
    summed = {
        atom
        for operator in operators
        if operator.kind == "matmul"
        for extent in operator.space
        if extent.contracted
        for atom in leaves(extent.dim)
    }
    sizes = {leaf.size for operator in operators for leaf in _all_leaves(operator) if leaf.name == "vocab"}
    for operator in operators:
        if operator.kind == "matmul" and operator.outputs[0].dims:
            atom = _single(operator.outputs[0].dims[-1])
            if atom is not None and atom.size in sizes and atom not in summed:
                _name((atom,), "vocab")


def _name_experts(operators: Sequence[Recorded]) -> None:
    """Of products of experts: the experts, the ways a token goes through them, and their inner width."""
    made: set[Atom] = set()
    for operator in operators:
        if operator.experts is None:
            continue
        _name(operator.experts, "experts")
        rows = [leaf for leaf in leaves(operator.space[0].dim) if not leaf.name]
        _name(tuple(rows), "top_k")
        inner = next(extent.dim for extent in operator.space if extent.contracted)
        atom = _single(inner)
        if atom in made:
            _name(inner, "expert_ffn")
        made.update(leaves(operator.outputs[0].dims[-1])[-1:])


def _name_side_by_side(operators: Sequence[Recorded]) -> None:
    """Of a product, what both tensors have and the result too: heads, where weights made them of a wider dimension.

    So have attention without a softmax (arXiv 2006.16236) and other products head by head.
    """
    outermost = {
        found[0]
        for operator in operators
        if operator.kind == "matmul" and operator.parameters
        for dim in operator.outputs[0].dims[-1:]
        if len(found := leaves(dim)) > 1
    }
    for operator in operators:
        read = [*operator.inputs, *operator.parameters]
        if operator.kind != "matmul" or operator.experts is not None or len(read) < 2:
            continue
        inner = {leaf for extent in operator.space if extent.contracted for leaf in leaves(extent.dim)}
        every = ({leaf for dim in stored.dims for leaf in leaves(dim)} for stored in read)
        own = [each for each in every if each & inner]  # What is added to a product, as a bias, is none of its two.
        for extent in operator.space:
            for leaf in leaves(extent.dim):
                if not extent.contracted and leaf in outermost and sum(leaf in each for each in own) > 1:
                    _name((leaf,), "heads")


def _name_feed_forward(operators: Sequence[Recorded]) -> None:
    """Between two products with weights, what the first makes and the second sums over."""
    made = {
        atom
        for operator in operators
        if operator.kind == "matmul" and operator.parameters
        for atom in [*leaves(operator.outputs[0].dims[-1])][-1:]
    }
    for operator in operators:
        if operator.kind == "matmul" and operator.parameters:
            inner = [extent.dim for extent in operator.space if extent.contracted]
            atom = _single(inner[0]) if len(inner) == 1 else None
            if atom is not None and atom in made:
                _name((atom,), "ffn")


def _all_leaves(operator: Recorded) -> Iterable[Atom]:
    for stored in (*operator.inputs, *operator.outputs, *operator.parameters):
        for each in (stored, *stored.whole()):
            for dim in each.dims:
                yield from leaves(dim)
    for extent in operator.space:
        yield from leaves(extent.dim)


class Shapes:
    """Shapes with names, in which no name occurs twice.

    Axes that have none are numbered: those of a single layer within it, so that equal layers read the same.

    Args:
        operators: all of a program.
        layers: for each the index of its layer.
    """

    def __init__(self, operators: Sequence[Recorded], layers: Sequence[int]) -> None:
        seen: dict[Atom, set[int]] = {}
        for operator, layer in zip(operators, layers, strict=True):
            for leaf in _all_leaves(operator):
                seen.setdefault(leaf, set()).add(layer)
        counts: Counter[int] = Counter()
        self._numbered: dict[Atom, str] = {}
        for leaf, where in seen.items():
            place = next(iter(where)) if len(where) == 1 else -1
            counts[place] += 1
            self._numbered[leaf] = f"{'common' if place < 0 else 'axis'}_{counts[place]}"

    def shape(self, dims: Sequence[Dim]) -> Shape:
        """The named axes of a tensor."""
        return self.space([Extent(dim) for dim in dims])[0]

    def space(self, extents: Sequence[Extent]) -> tuple[Shape, tuple[str, ...]]:
        """The named axes of an iteration space, and those of them that are summed over."""
        rows: list[tuple[str, int, bool]] = []
        for extent in extents:
            atoms = leaves(extent.dim)
            if extent.label and atoms:
                length = 1
                for atom in atoms:
                    length *= self._size(atom)
                rows.append((extent.label, length, extent.contracted))
            else:
                rows += [(self._name(atom), self._size(atom), extent.contracted) for atom in atoms]
        taken: set[str] = set()
        named = []
        for name, length, contracted in rows:
            unique, count = name, 1
            while unique in taken:
                count += 1
                unique = SECOND.get(name, f"{name}_2") if count == 2 else f"{name}_{count}"
            taken.add(unique)
            named.append((unique, length, contracted))
        inner = tuple(name for name, _, contracted in named if contracted)
        return tuple((name, length) for name, length, _ in named), inner

    def _size(self, atom: Atom) -> int:
        """One sample, whatever number was traced."""
        return 1 if atom.found().name == BATCH else atom.size

    def _name(self, atom: Atom) -> str:
        found = atom.found()
        return found.name or self._numbered[found]
