"""Loops along the sequence, of which a trace has every step: one operator, as the kernels that replace them are.

A recurrence such as Mamba's (arXiv 2312.00752, section 3.3) is traced as some operators for each place of the sequence,
of which each step reads what the one before has made. A kernel goes through the sequence once: it reads what the steps
read and writes what is read of them, and states stay on the chip; the backward pass computes them again.
"""

from collections.abc import Mapping, Sequence
from math import prod

from nest_torch.program.axes import size
from nest_torch.program.values import Recorded, Stored

SCAN = "scan"
"""Kind of the operator that takes the place of a loop."""

FEWEST, LONGEST = 4, 64
"""Steps of a loop, and operators of a step, at least and at most."""

JOINS = ("stack", "cat", "concat")
"""Calls that lay what the steps have made side by side."""


def scans(operators: Sequence[Recorded]) -> list[Recorded]:
    """`operators` with one in place of each loop whose steps hand something on."""
    signs = [_sign(operator) for operator in operators]
    readers: dict[Stored, list[Recorded]] = {}
    for operator in operators:
        for stored in _whole(operator.inputs):
            readers.setdefault(stored, []).append(operator)
    found: list[Recorded] = []
    absorbed: set[int] = set()
    index = 0
    while index < len(operators):
        length = _loop(operators, signs, index)
        if length:
            found.append(_scan(operators[index : index + length], readers, absorbed))
        elif id(operators[index]) not in absorbed:
            found.append(operators[index])
        index += length or 1
    return found


def _sign(operator: Recorded) -> tuple[object, ...]:
    """Signature that two equal steps share."""
    sizes = tuple(tuple(map(size, stored.dims)) for stored in operator.outputs)
    return (operator.target, operator.path, sizes, len(operator.inputs), len(operator.parameters))


def _whole(items: Sequence[Stored]) -> list[Stored]:
    return list(dict.fromkeys(each for stored in items for each in stored.whole()))


def _loop(operators: Sequence[Recorded], signs: Sequence[object], start: int) -> int:
    """Number of operators from `start` on that form a loop; 0 if none do."""
    for period in range(1, min(LONGEST, (len(signs) - start) // FEWEST) + 1):
        end = start + period
        while end < len(signs) and signs[end] == signs[end - period]:
            end += 1
        steps = (end - start) // period
        if steps >= FEWEST and _hands_on(operators[start : start + steps * period], period):
            return steps * period
    return 0


def _hands_on(rows: Sequence[Recorded], period: int) -> bool:
    """Return whether every step reads something that the one before has made."""
    made: set[Stored] = set()
    for begin in range(0, len(rows), period):
        step = rows[begin : begin + period]
        if begin and not any(stored in made for operator in step for stored in _whole(operator.inputs)):
            return False
        made = {stored for operator in step for stored in _whole(operator.outputs)}
    return True


def _scan(rows: Sequence[Recorded], readers: Mapping[Stored, Sequence[Recorded]], absorbed: set[int]) -> Recorded:
    """The operator in place of `rows`; what joins their results is noted as `absorbed`."""
    made = _whole([stored for operator in rows for stored in operator.outputs])
    inside, members = set(made), {id(operator) for operator in rows}
    outputs: list[Stored] = []
    for stored in made:
        for reader in readers.get(stored, ()):
            if id(reader) in members:
                continue
            if reader.target in JOINS and all(each in inside for each in _whole(reader.inputs)):
                absorbed.add(id(reader))
                outputs += reader.outputs
            else:
                outputs.append(stored)
    outputs = list(dict.fromkeys(outputs)) or list(rows[-1].outputs)
    inputs = [each for each in _whole([s for operator in rows for s in operator.inputs]) if each not in inside]
    flops = sum(operator.flops_per_point * _points(operator) for operator in rows)
    return Recorded(
        SCAN,
        rows[0].path,
        SCAN,
        inputs,
        list(dict.fromkeys(each for operator in rows for each in operator.parameters)),
        outputs,
        flops_per_point=flops / max(1, outputs[0].elements),
        saves=[each for each in inputs if each.differentiable],
    )


def _points(operator: Recorded) -> int:
    """Points of its iteration space."""
    if operator.space:
        return prod(size(extent.dim) for extent in operator.space)
    return operator.outputs[0].elements if operator.outputs else 0
