"""How Megatron-LM writes things down: flags in shell and YAML files, pipeline layouts, and patterns of layers.

`--pipeline-model-parallel-layout`: chunks are separated by `|`, in the order in which a micro-batch passes them: chunk
`k` is on pipeline rank `k % pp`. A chunk is a run of letters: `E` embedding, `t` transformer block, `m` block that
predicts further tokens, `L` loss. `x*n` is `n` times the letter in front, `(...)*n` what stands in parentheses, which
do not nest; commas say nothing (megatron/core/transformer/pipeline_parallel_layer_layout.py of Megatron Core 0.16,
`parse_str_to_list`).

`--moe-layer-freq` and `--window-attn-skip-freq`: Python lists of 0 and 1, one for each layer.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from shlex import quote
from shlex import split as shlex_split

from nest.errors import InputError

Value = bool | int | float | str | tuple[str, ...] | None
"""What a flag says: True stands alone; several words follow one flag; False and None leave it out."""

Flags = dict[str, Value]
"""Values by flag, each with its hyphens."""


def given_flags(flags: Mapping[str, Value]) -> dict[str, bool | int | float | str | tuple[str, ...]]:
    """The flags that are given: those that are neither False nor None."""
    return {flag: value for flag, value in flags.items() if value is not None and value is not False}


def given_words(groups: Mapping[str, Flags]) -> tuple[str, ...]:
    """The words of a command line with all flags of `groups`."""
    given = [pair for flags in groups.values() for pair in given_flags(flags).items()]
    return tuple(word for flag, value in given for word in shlex_split(_words(flag, value)))


def shell_file(
    comments: Sequence[str], environment: Mapping[str, str], unset: Sequence[str], groups: Mapping[str, Flags]
) -> str:
    """A bash file to be sourced: an array for each group that says something, and `MEGATRON_ARGS` with all of them."""
    arrays = {name: given_flags(flags) for name, flags in groups.items() if given_flags(flags)}
    lines = ["#!/usr/bin/env bash", *(_comment(text) for text in comments)]
    lines += [f"export {name}={quote(value)}" for name, value in environment.items()]
    lines += [f"unset {name}" for name in unset]
    for name, flags in arrays.items():
        lines += [f"{name}=(", *(f"  {_words(flag, value)}" for flag, value in flags.items()), ")"]
    lines += ["MEGATRON_ARGS=(", *(f'  "${{{name}[@]}}"' for name in arrays), ")"]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return f"# {' '.join(text.split())}"


def _words(flag: str, value: bool | int | float | str | tuple[str, ...]) -> str:
    if value is True:
        return flag
    words = value if isinstance(value, tuple) else (str(value),)
    return " ".join([flag, *(quote(word) for word in words)])


def yaml_file(comments: Sequence[str], environment: Mapping[str, str], groups: Mapping[str, Flags]) -> str:
    """The map of flags that Megatron-LM's functional tests read: `ENV_VARS` and `MODEL_ARGS`.

    Words are written as JSON writes them, which YAML reads alike.
    """
    lines = [_comment(text) for text in comments]
    if environment:
        lines += ["ENV_VARS:", *(f"  {name}: {json.dumps(value)}" for name, value in environment.items())]
    flags = [(flag, value) for group in groups.values() for flag, value in given_flags(group).items()]
    lines += ["MODEL_ARGS:", *(f"  {flag}: {_yaml(value)}" for flag, value in flags)]
    return "\n".join(lines) + "\n"


def _yaml(value: bool | int | float | str | tuple[str, ...]) -> str:
    """Several words stand in one pair of brackets, as Megatron-LM's `_run_training.sh` takes them apart."""
    return json.dumps(f"[{' '.join(value)}]" if isinstance(value, tuple) else value)


EMBEDDING, BLOCK, PREDICTION, LOSS = "E", "t", "m", "L"
LETTERS = EMBEDDING + BLOCK + PREDICTION + LOSS
FLAG = "--pipeline-model-parallel-layout"

LONGEST = 100_000
"""Letters a layout may stand for; models have hundreds of blocks."""

_REPEATED_PART = re.compile(r"\(([^()]+)\)\*(\d+)")
_REPEATED_LETTER = re.compile(r"(.)\*(\d+)")


def write_layout(chunks: Sequence[str]) -> str:
    """`chunks`, each a run of letters, in the grammar; runs of one letter are shortened."""
    return "|".join("".join(_run(letter, len(list(run))) for letter, run in groupby(chunk)) for chunk in chunks)


def _run(letter: str, length: int) -> str:
    return letter if length == 1 else f"{letter}*{length}"


def read_layout(text: str) -> tuple[str, ...]:
    """The chunks that `text` describes, each a run of letters.

    Raises:
        InputError: the text is not in the grammar.
    """
    plain = _expanded(_expanded(text.replace(",", ""), _REPEATED_PART), _REPEATED_LETTER)
    strange = sorted({letter for letter in plain if letter not in LETTERS + "|"})
    if strange:
        raise InputError(
            f"{FLAG} {text!r:.80} has {strange[0]!r}; it is made of {', '.join(LETTERS)}, `|`, and repetitions such as "
            "`t*8` and `(tt|)*3`, whose parentheses do not nest."
        )
    return tuple(plain.split("|"))


def _expanded(text: str, repetition: re.Pattern[str]) -> str:
    """`text` with each repetition written out."""
    length = len(text) + sum(len(part) * _count(number) for part, number in repetition.findall(text))
    if length > LONGEST:
        raise InputError(f"{FLAG} {text!r:.80} stands for more than {LONGEST} letters.")
    return repetition.sub(lambda match: match.group(1) * int(match.group(2)), text)


def _count(number: str) -> int:
    """`number`, but not more than is too many: Python reads no number of thousands of digits."""
    return int(number) if len(number) < len(str(LONGEST)) + 1 else LONGEST + 1


def check_layout(chunks: Sequence[str], layers: int, stages: int, further: int) -> None:
    """Refuse chunks that are no layout of a model over pipeline ranks.

    Args:
        chunks: each a run of letters.
        layers: transformer blocks.
        stages: pipeline ranks.
        further: blocks behind these that predict further tokens.

    Raises:
        InputError: as Megatron Core's `validate_layer_layout` and Megatron-LM's `validate_args` would, or an end of the
            model is missing.
    """
    letters = "".join(chunks)
    written = f"{FLAG} {write_layout(chunks)!r:.120}"
    if len(chunks) % stages:
        raise InputError(
            f"{written} has {len(chunks)} chunks, which --pipeline-model-parallel-size {stages} does not divide."
        )
    if letters.count(BLOCK) != layers:
        raise InputError(f"{written} has {letters.count(BLOCK)} transformer layers, but --num-layers is {layers}.")
    for letter, end, place in ((EMBEDDING, letters[:1], "first"), (LOSS, letters[-1:], "last")):
        if letters.count(letter) != 1 or end != letter:
            raise InputError(f"{written} must have {letter} exactly once, as its {place} letter.")
    if letters.count(PREDICTION) != further:
        raise InputError(f"{written} has {letters.count(PREDICTION)} {PREDICTION}, but --mtp-num-layers is {further}.")
    if not further:
        return
    if BLOCK in letters[letters.index(PREDICTION) :]:
        raise InputError(f"{written} has a transformer layer behind {PREDICTION}, which predicts further tokens.")
    # `validate_layer_layout`: they are built with the last virtual stage of a pipeline rank.
    where = [index for index, chunk in enumerate(chunks) if PREDICTION in chunk]
    if len(where) > 1 or where[0] < len(chunks) - stages:
        raise InputError(f"{written} must have all {PREDICTION} in one chunk, the last of its pipeline rank.")


LONGEST_PATTERN = 10_000
"""Layers a pattern may speak of; models have hundreds."""

_LISTED = re.compile(r"[\d\s\[\](),+*]*")


def write_pattern(values: Sequence[int]) -> str:
    """`values` as such a list: `([0]*3+[1]*58)`."""
    runs = [(value, len(list(run))) for value, run in groupby(values)]
    return "(" + "+".join(f"[{value}]" if length == 1 else f"[{value}]*{length}" for value, length in runs) + ")"


def read_pattern(flag: str, text: str) -> tuple[int, ...]:
    """The numbers that `text` lists: brackets, commas, `+` and `*` only; nothing is evaluated as Python.

    Raises:
        InputError: it is no such list; the text names `flag`.
    """
    try:
        if not _LISTED.fullmatch(text):
            raise ValueError(text)
        return tuple(_listed(ast.parse(" ".join(text.split()), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{flag} {text!r:.80} is no list such as ([0]*3+[1]*58).") from None


def _listed(tree: ast.expr) -> list[int]:
    """The numbers of a sum of products of lists and counts."""
    match tree:
        case ast.List(elts=elements):
            return [_number(element) for element in elements]
        case ast.BinOp(left=first, op=ast.Add(), right=second):
            return [*_listed(first), *_listed(second)]
        case ast.BinOp(left=repeated, op=ast.Mult(), right=times):
            entries, count = _listed(repeated), _number(times)
            if len(entries) * count <= LONGEST_PATTERN:
                return entries * count
    raise ValueError(ast.dump(tree))


def _number(tree: ast.expr) -> int:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    raise ValueError(ast.dump(tree))
