"""Products of two tensors, and of several by the letters of their dimensions."""

from collections.abc import Sequence
from string import ascii_letters

from attrs import evolve

from nest.errors import InputError
from nest_torch.program.axes import Dim, size, unify
from nest_torch.program.recorder import Call, Recorder
from nest_torch.program.values import Extent, Value

REST = "..."
"""Stands for all dimensions without a letter."""


def product(
    recorder: Recorder, call: Call, operands: Sequence[Value], inner: Sequence[Dim], result: tuple[Dim, ...]
) -> list[Value]:
    """A matrix product: 2 FLOP at every point, and as many again for the gradient of each operand that has one."""
    space = [Extent(dim) for dim in result]
    space += [Extent(dim, contracted=True) for dim in inner]
    gradients = sum(value.stored.differentiable for value in operands)
    return recorder.add(
        call,
        "matmul",
        [result],
        saves=operands,
        space=space,
        flops_per_point=2.0,
        backward_flops_ratio=float(gradients),
    )


def einsum(recorder: Recorder, call: Call) -> list[Value]:
    """Products of tensors by the letters of their dimensions, one after the other from the left, as PyTorch takes them.

    One tensor alone is turned, or summed over the letters that are not written.
    """
    words, written = _letters(call)
    met: dict[str, Dim] = {}
    for word, value in zip(words, call.values, strict=True):
        for letter, dim in zip(word, value.dims, strict=True):
            known = met.setdefault(letter, dim)
            if size(known) == size(dim):
                unify(known, dim)
            elif size(known) == 1:  # Of the dimensions without letters one may be stretched.
                met[letter] = dim
    made, word = call.values[0], words[0]
    if len(words) == 1:
        return _alone(recorder, call, made, word, written, met)
    for index, (other, right) in enumerate(zip(call.values[1:], words[1:], strict=True), 2):
        last = index == len(words)
        later = {*written, *"".join(words[index:])}
        kept = written if last else "".join(dict.fromkeys(each for each in word + right if each in later))
        inner = [met[each] for each in dict.fromkeys(word + right) if each not in kept]
        result = tuple(met[each] for each in kept)
        step = evolve(call, arguments=[call.arguments[0], made, other], keywords={})
        step.shapes = call.shapes if last else [tuple(size(dim) for dim in result)]
        made, word = product(recorder, step, (made, other), inner, result)[0], kept
    return [made]


def _alone(recorder: Recorder, call: Call, value: Value, word: str, written: str, met: dict[str, Dim]) -> list[Value]:
    result = tuple(met[each] for each in written)
    if set(word) == set(written):
        return [value.seen_as(result)]
    return recorder.add(call, "elementwise", [result])


def _letters(call: Call) -> tuple[list[str], str]:
    """The letters of each tensor's dimensions and of the result's, all written out.

    Dimensions without letters are in line from the last; where the result is left out, it has those, and the letters
    that occur once, in the order of the alphabet.
    """
    equation = str(call.arguments[0]).replace(" ", "")
    read, arrow, written = equation.partition("->")
    words, ranks = read.split(","), [len(value.dims) for value in call.values]
    free = "".join(each for each in ascii_letters if each not in equation)
    most = max((rank - len(word.replace(REST, "")) for word, rank in zip(words, ranks, strict=True)), default=0)
    rest = free[:most]
    if not arrow:
        letters = read.replace(REST, "").replace(",", "")
        written = REST * (REST in read) + "".join(sorted(each for each in set(letters) if letters.count(each) == 1))
    whole = []
    for word, rank in zip(words, ranks, strict=True):
        unnamed = rank - len(word.replace(REST, ""))
        whole.append(word.replace(REST, rest[most - unnamed :] if unnamed else ""))
    for word in whole:
        if len(set(word)) < len(word):
            raise InputError(
                f"{call.path or 'the module'} calls einsum with {equation!r}, which takes a diagonal; nest reads none."
            )
    return whole, written.replace(REST, rest)
