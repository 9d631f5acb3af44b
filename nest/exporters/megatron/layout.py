"""The grammar of `--pipeline-model-parallel-layout`.

Chunks are separated by `|`, in the order in which a micro-batch passes them: chunk `k` is on pipeline rank `k % pp`. A
chunk is a run of letters: `E` embedding, `t` transformer block, `m` block that predicts further tokens, `L` loss. `x*n`
is `n` times the letter in front, `(...)*n` what stands in parentheses, which do not nest; commas say nothing
(megatron/core/transformer/pipeline_parallel_layer_layout.py of Megatron Core 0.16, `parse_str_to_list`).
"""

import re
from collections.abc import Sequence
from itertools import groupby

from nest.errors import InputError

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
    return repetition.sub(lambda found: found.group(1) * int(found.group(2)), text)


def _count(number: str) -> int:
    """`number`, but not more than is too many: Python reads no number of thousands of digits."""
    return int(number) if len(number) < len(str(LONGEST)) + 1 else LONGEST + 1


def check_layout(chunks: Sequence[str], layers: int, stages: int) -> None:
    """Refuse chunks that are no layout of `layers` blocks over `stages` pipeline ranks.

    Raises:
        InputError: as Megatron Core's `validate_layer_layout` and Megatron-LM's `validate_args` would, or an end of the
            model is missing.
    """
    letters = "".join(chunks)
    told = f"{FLAG} {write_layout(chunks)!r:.120}"
    if len(chunks) % stages:
        raise InputError(
            f"{told} has {len(chunks)} chunks, which --pipeline-model-parallel-size {stages} does not divide."
        )
    if letters.count(BLOCK) != layers:
        raise InputError(f"{told} has {letters.count(BLOCK)} transformer layers, but --num-layers is {layers}.")
    for letter, end, place in ((EMBEDDING, letters[:1], "first"), (LOSS, letters[-1:], "last")):
        if letters.count(letter) != 1 or end != letter:
            raise InputError(f"{told} must have {letter} exactly once, as its {place} letter.")
    if PREDICTION in letters and BLOCK in letters[letters.index(PREDICTION) :]:
        raise InputError(f"{told} has a transformer layer behind {PREDICTION}, which predicts further tokens.")
