"""Attention written out in an exported program: scores, softmax and weighted sum, as decompositions write it.

Where they stand, one call stands for them: which kernel computes attention is the training's choice
(`training.attention`), as with nest's own models. The sum it makes is kept under the name of the second product.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve, frozen

from nest_torch.exported.node import Node
from nest_torch.exported.placeholders import PRODUCTS, TRANSPOSED, origin
from nest_torch.program.targets import SOFTMAXES
from nest_torch.program.values import PARAMETER

FUSED = "scaled_dot_product_attention"
"""PyTorch's name of attention as one call; its kernels have longer names that begin or end likewise."""

SCALED = ("_to_copy", "to", "float", "mul", "div", "type_as", "clone", "contiguous", "expand", "view", "reshape")
"""Calls that only change format, scale or view of one operand of a product."""

COMPARED = ("le", "lt", "ge", "gt")
"""Comparisons by which a mask lets a query see the keys in front of it."""

CUT = ("tril", "triu")
"""Halves of a matrix, which a causal mask is too."""

CHECKS = ("_assert", "sym_", "_check")
"""Prefixes of calls that only check known facts."""


@frozen
class Attention:
    """Attention in an exported program.

    Attributes:
        node: that makes the result.
        query: name of the queries, `(..., heads, sequence, head)`.
        key: name of the keys; transposed for scores when `turned`.
        value: name of the values.
        turned: the last two dimensions of the keys are swapped.
        causal: a mask hides later keys; None: unknown.
        mask: name of a learned summand of the scores, such as a bias by distance; empty: nothing.
    """

    node: Node
    query: str
    key: str
    value: str
    turned: bool
    causal: bool | None
    mask: str = ""


def attentions(nodes: Sequence[Node]) -> dict[str, Attention]:
    """The attention of a program, by the name of the node that makes its result."""
    known = {node.name: node for node in nodes}
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    found = {}
    for node in nodes:
        if is_fused(node.target) and len(node.inputs) >= 3:
            query, key, value, *rest = node.inputs
            causal = _is_causal(rest, known) if rest else None
            found[node.name] = Attention(node, query, key, value, False, causal, _learned(rest, known))
        elif node.target in SOFTMAXES:
            whole = _around(node, known, readers)
            if whole is not None:
                found[whole.node.name] = whole
    return found


def is_fused(target: str) -> bool:
    """Return whether a call is attention in one piece."""
    return target.startswith((FUSED, f"_{FUSED}")) and "backward" not in target


def _around(softmax: Node, known: Mapping[str, Node], readers: Mapping[str, Sequence[Node]]) -> Attention | None:
    """The attention that a softmax is part of; None: it stands elsewhere, in a router or in front of a loss."""
    scores = _reached(softmax, lambda node: [known[name] for name in node.inputs if name in known], known)
    sums = _reached(softmax, lambda node: readers.get(node.name, ()), known)
    if len(scores) != 1 or len(sums) != 1 or len(scores[0].shape) < 3 or not sums[0].shape:
        return None
    first, second = scores[0], sums[0]
    operands = first.inputs[-2:]
    between = _between(first, second, known)
    value = next((name for name in second.inputs[-2:] if name not in between), None)
    if len(operands) < 2 or value is None:
        return None
    *_, rows, keys = first.shape
    head = known[operands[0]].shape[-1] if operands[0] in known and known[operands[0]].shape else 0
    outer = _outer(first.shape)
    query, _ = _followed(operands[0], (rows, head), outer, known, turned=False)
    key, turned = _followed(operands[1], (keys, head), outer, known, turned=True)
    value, _ = _followed(value, (keys, second.shape[-1]), outer, known, turned=False)
    masks = [name for node in between.values() for name in node.inputs if name not in between and name != first.name]
    if first.target == "baddbmm":
        masks.append(first.inputs[0])
    return Attention(second, query, key, value, turned, _is_causal(masks, known), _learned(masks, known))


def _outer(shape: Sequence[int]) -> int:
    count = 1
    for size in shape[:-2]:
        count *= size
    return count


def _is_product(node: Node, known: Mapping[str, Node]) -> bool:
    """Return whether a node multiplies two tensors neither of which is a parameter."""
    if node.target not in PRODUCTS:
        return False
    for name in node.inputs:
        while name in known and len(known[name].inputs) == 1:
            name = known[name].inputs[0]
        if origin(name) == PARAMETER and name not in known:
            return False
    return True


def _reached(start: Node, following: Callable[[Node], Sequence[Node]], known: Mapping[str, Node]) -> list[Node]:
    """The products first met from `start` on, going where `following` leads."""
    waiting, seen, found = [start], {start.name}, []
    while waiting:
        node = waiting.pop()
        for each in following(node):
            if each.name in seen or each.target.startswith(CHECKS):
                continue
            seen.add(each.name)
            if each.target in PRODUCTS:
                if _is_product(each, known):
                    found.append(each)
                else:
                    return []
            else:
                waiting.append(each)
            if len(seen) > 200:  # The written-out form is a dozen calls; this leads elsewhere.
                return []
    return found


def _between(first: Node, second: Node, known: Mapping[str, Node]) -> dict[str, Node]:
    """The nodes that lead from the first product to the second, without them."""
    leads: dict[str, bool] = {first.name: True}

    def reaches(name: str) -> bool:
        if name not in leads:
            leads[name] = False
            # Every way is gone, so that no node on one is missed; what lies behind another product leads to no scores.
            ways = known[name].inputs if name in known and known[name].target not in PRODUCTS else ()
            leads[name] = sum(reaches(each) for each in ways) > 0
        return leads[name]

    for name in second.inputs:
        reaches(name)
    return {name: known[name] for name, does in leads.items() if does and name != first.name}


def _followed(
    name: str, wanted: tuple[int, int], outer: int, known: Mapping[str, Node], *, turned: bool
) -> tuple[str, bool]:
    """The tensor that an operand of attention was made of by changes of view, format and scale only.

    Args:
        name: of the operand.
        wanted: sizes of the last two dimensions of what is looked for.
        outer: the product of its other sizes.
        known: nodes by name.
        turned: whether the operand has the last two dimensions swapped.
    """
    best, state, best_state = name, turned, turned
    while name in known:
        node = known[name]
        tensors = [each for each in node.inputs if each not in known or known[each].shape]
        if len(tensors) != 1 or tensors[0] not in known:
            break
        source = known[tensors[0]]
        swaps = node.target in TRANSPOSED and source.shape[:-2] == node.shape[:-2] and state
        if node.target not in SCALED and not swaps:
            break
        state = state and not swaps
        expected = wanted[::-1] if state else wanted
        if source.shape[-2:] != expected or _outer(source.shape) != outer:
            break
        name = source.name
        if len(source.shape) == 4 or len(known[best].shape) != 4:
            best, best_state = name, state
    return best, best_state


def _is_causal(masks: Sequence[str], known: Mapping[str, Node]) -> bool:
    """Return whether a mask compares places with places, or is half a matrix; tables looked up by place are not."""
    return any(_hides(node) for name in masks for node in _ancestors(name, known))


def _learned(masks: Sequence[str], known: Mapping[str, Node]) -> str:
    """The first of the masks that parameters go into."""
    for name in masks:
        waiting, seen = [name], set()
        while waiting:
            each = waiting.pop()
            if each not in known and origin(each) == PARAMETER:
                return name
            if each not in seen and each in known:
                seen.add(each)
                waiting += known[each].inputs
    return ""


def _hides(node: Node) -> bool:
    return node.target in CUT or (node.target in COMPARED and len(node.inputs) > 1)


def _ancestors(name: str, known: Mapping[str, Node]) -> Iterator[Node]:
    waiting, seen = [name], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in known or known[name].target == "embedding":
            continue
        seen.add(name)
        yield known[name]
        waiting += known[name].inputs


def _read(at: Attention) -> tuple[str, ...]:
    return (at.query, at.key, at.value, *([at.mask] if at.mask else []))


def rewritten(nodes: Sequence[Node], found: Mapping[str, Attention]) -> tuple[Node, ...]:
    """`nodes` with one call for each attention, without those that nothing reads any more."""
    changed = []
    for node in nodes:
        at = found.get(node.name)
        changed.append(node if at is None else evolve(node, target=FUSED, inputs=_read(at)))
    read = {name for node in nodes if not node.target.startswith(CHECKS) for name in node.inputs}
    wanted = {node.name for node in nodes if node.name not in read and node.shapes}
    kept = []
    for node in reversed(changed):
        if node.name in wanted:
            wanted.update(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))
