"""Arguments of Megatron-LM as flags and their values, as its parser takes them (`argparse`, no abbreviations)."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from attrs import define, field

from nest.errors import InputError, InputErrors
from nest_frameworks.keys import DECIDING, IDLE
from nest_frameworks.megatron.notation import CHANGING, COSTLY, HARMLESS, USUAL
from nest_frameworks.megatron.reading.expansion import unseen
from nest_frameworks.megatron.reading.kinds import FLAGS
from nest_frameworks.megatron.reading.tokens import UNKNOWN, UNSET, check_seen, is_printed, remedy, shown
from nest_frameworks.releases import releases_of

LARGEST = 10**12
RELEASES = releases_of("megatron")
_VALUE = re.compile(r"-\d.*|[^-].*|-|", re.DOTALL)

Chosen = TypeVar("Chosen")


@define
class FlagReader:
    """Flags whose mistakes are collected until `finish` reports them together.

    Attributes:
        words: what follows each flag; the last one counts.
        asked: flags somebody has asked for.
        valued: those whose values somebody has asked for.
        problems: mistakes found so far.
        notes: what the reader of the result should know, a sentence each.
        release: of Megatron Core whose defaults count.
    """

    words: dict[str, tuple[str, ...]]
    asked: set[str] = field(factory=set)
    valued: set[str] = field(factory=set)
    problems: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)
    release: str = RELEASES.newest

    def has(self, flag: str) -> bool:
        """Return whether `flag` is given."""
        self.asked.add(flag)
        return flag in self.words

    def word(self, flag: str, default: str | None = None) -> str | None:
        """Word behind `flag`; `default` without it."""
        self.valued.add(flag)
        if not self.has(flag):
            return default
        value = self.words[flag]
        if len(value) != 1:
            told = shown(" ".join(value))
            self.problems.append(f"{flag} takes one value, and has {told or 'none'}.")
            return default
        if UNKNOWN in value[0]:
            help_ = remedy(value[0])
            why = f"which nothing sets; give {help_}" if help_ else "which only a run would tell; write its value there"
            self.problems.append(f"{flag} is {shown(value[0])!r:.60}, {why}.")
            return default
        return value[0]

    def several(self, flag: str) -> tuple[str, ...]:
        """All that follows `flag`; nothing where it is not given."""
        self.valued.add(flag)
        return self.words[flag] if self.has(flag) else ()

    def integer(self, flag: str, *, minimum: int = 1) -> int | None:
        """The whole number behind `flag`; None where it is not given."""
        text = self.word(flag)
        if text is None:
            return None
        # White space as `int` takes it, without the separators of ASCII.
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,13}\s*", text, re.ASCII) or not minimum <= int(text) <= LARGEST:
            self.problems.append(f"{flag} is {text!r:.60}; it must be a whole number of at least {minimum}.")
            return None
        return int(text)

    def number(self, flag: str) -> float | None:
        """The number behind `flag`; None where it is not given."""
        text = self.word(flag)
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            self.problems.append(f"{flag} is {text!r:.60}; it must be a number.")
            return None

    def choice(self, flag: str, choices: dict[str, Chosen], default: Chosen) -> Chosen:
        """Entry of `choices` for the word behind `flag`."""
        text = self.word(flag)
        if text is None:
            return default
        if text not in choices:
            self.problems.append(f"{flag} is {text!r:.60}, and nest knows {', '.join(choices)}.")
            return default
        return choices[text]

    def assumed(self, flag: str, where: str, meanings: dict[str, tuple[str, Chosen]]) -> Chosen:
        """Meaning of a flag that is left out and whose default changed; a note names the assumed release.

        `where`: what makes it count. `meanings`: by default, a clause after "it" and the meaning.
        """
        since = RELEASES.since(flag)
        now = RELEASES.default(flag, self.release)
        told, chosen = meanings[now]
        ((other, _),) = (each for value, each in meanings.items() if value != now)
        earlier = RELEASES.default(flag, since) == now
        self.note(
            f"{where} without {flag} is read as Megatron-Core {self.release} does: it {told} "
            f"({'before' if earlier else 'from'} {since}{'' if earlier else ' on'}: {other})."
        )
        return chosen

    def problem(self, text: str) -> None:
        """Note a mistake: a sentence."""
        self.problems.append(text)

    def note(self, text: str) -> None:
        """Note what the reader of the result should know: a sentence."""
        self.notes.append(text)

    def finish(self) -> None:
        """Report the mistakes.

        Raises:
            InputErrors: there are some.
        """
        if self.problems:
            raise InputErrors(dict.fromkeys(self.problems))


def read_flags(words: Sequence[str]) -> FlagReader:
    """`words` as flags: what does not begin with a hyphen, or is a negative number, follows the flag in front.

    Raises:
        InputError: the first word is no flag.
    """
    return FlagReader(dict(_pairs(words)))


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    flag, values = "", list[str]()
    for word in words:
        if word.startswith("--") and len(word) > 2:
            if flag:
                yield flag, tuple(values)
            flag, equals, value = word.partition("=")
            if not equals and re.search(r"[ \n]", flag) and UNKNOWN not in flag:
                raise InputError(f"{flag!r:.60} is one word for the shell; leave the quotes around it out.")
            check_seen(flag.replace(UNKNOWN, ""))
            if "{" in flag and UNKNOWN not in flag:
                raise InputError(f"{word:.60}: nest does not expand braces; write the flags one by one.")
            flag = flag.replace("_", "-")  # As some forks, and DeepSpeed, write them.
            values = [value] if equals else []
        elif word == ":":
            raise InputError("`:` starts another program beside this one (srun, mpirun), and nest prices one program.")
        elif flag and values and UNSET.fullmatch(word):
            continue  # Told by `find_launch`.
        elif is_printed(word) and (not flag or (values and not _LISTED.search(flag))):
            raise InputError(unseen(word, "stands among the flags"))
        elif flag and _VALUE.fullmatch(word):
            values.append(word)
        elif UNKNOWN not in word and not flag:
            raise InputError(f"{word!r:.60} stands in front of the first flag of Megatron-LM.")
    if flag:
        yield flag, tuple(values)


_LISTED = re.compile(r"^--(\w+-)?(data-path|data-files?|special-tokens|profile-ranks)$")
"""Flags with any number of values that change no cost."""

_VALUED = re.compile(
    r"^--(load|save|split|seed|lr|min-lr|exit|local-rank|save-\w+|.*-(path|paths|dir|directory|folder|file|files|addr|address"
    r"|port|project|name|key|entity|group|id|model|type|rank|ranks|iters|iterations|samples|interval|minutes|mins|load"
    r"|save|prefix|save-dir|format|step|steps|workers|url|host|token))$"
)
"""Flags of which the next word can only be the value."""

_IDLE = ("0", "1", *(word for word in IDLE if isinstance(word, str)))

_NOTHING = tuple(word for word in _IDLE if word not in ("", "1"))

_GROUP = "--microbatch-group-size-per-virtual-pipeline-stage"

_IN_FLAGS = re.compile(r"bubble|(^|-)(num-layers|hidden-size|\w*glu)(-|$)")
"""Flags that change plan or model, whosever they are, beside `DECIDING`: `--num-layers-ctx`, or `--geglu`, a gate."""

_TELLING = frozenset({"--num-layers", "--hidden-size", "--global-batch-size", "--tensor-model-parallel-size"})
"""Without one of these, and with as many flags that nobody knows, a program is another than Megatron-LM."""


def tell_unpriced(flags: FlagReader, *, unread: bool = True) -> None:
    """Note what is given and not priced, and once what nobody has asked for, if `unread`."""
    for flag, values in flags.words.items():
        if values and is_printed(values[0]) and flag not in flags.valued and not _VALUED.search(flag):
            flags.problem(unseen(values[0], f"stands behind {flag}"))
    if flags.has("--yaml-cfg"):
        flags.problem("--yaml-cfg: its file replaces all flags, and is not read; write them as flags.")
    costly = [f"{flag} ({assumed})" if assumed else flag for flag, assumed in COSTLY.items() if flags.has(flag)]
    if costly:
        flags.note(f"given, and not priced: {'; '.join(costly)}.")
    usual = {**USUAL, _GROUP: " ".join(flags.words.get("--pipeline-model-parallel-size", ()))}
    for flag, assumed in CHANGING.items():
        value = " ".join(flags.words.get(flag, ()))
        if flags.has(flag) and not (value and value.lower() in (*_NOTHING, usual.get(flag))):
            flags.problem(f"{flag} {value:.40}".rstrip() + f" is not priced: {assumed}; delete it to price the run so.")
    others = [flag for flag in flags.words if flag not in flags.asked and not is_harmless(flag)]
    for flag in others:
        told, name = flags.words[flag], flag.removeprefix("--")
        if name in FLAGS:  # Of a model whose language model is priced alone.
            continue
        plain = name.replace("-", "_")
        if not (DECIDING.search(plain) or _IN_FLAGS.search(flag)) or (told and told[0].lower() in _IDLE):
            continue
        flags.problem(
            f"{flag} is no flag of Megatron-LM that nest reads, and may change layout or model; delete it to price the "
            "run without it."
        )
    if 2 * len(others) > len(flags.words) and _TELLING.isdisjoint(flags.words):
        flags.problem(
            f"few flags here are Megatron-LM's, and none says how it trains; others: {', '.join(others[:8])}."
        )
    if unread and others:
        flags.note(f"nest does not know these flags, nor whether they cost anything: {', '.join(sorted(others))}.")


def is_harmless(flag: str) -> bool:
    """Return whether a flag of Megatron-LM changes no cost that nest counts."""
    return any(fnmatchcase(flag.removeprefix("--"), pattern) for pattern in HARMLESS.split())
