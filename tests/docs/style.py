"""What a machine can see of plain English: sentences, their lengths, how hard a page is, and words that hide who acts.

`python -m tests.docs.style` lowers the numbers of what is still to be written anew (`style_left.json`).
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from tests.docs.document import REPOSITORY, documents

LONGEST = 25
"""Words of a sentence."""

BANNED = (
    r"is taken to",
    r"(?:is|are) told",
    r"is is",
    r"as it is",
    r"of those that",
    r"so that there is",
    r"such as have",
    r"lies",
    r"is asked",
    r"which one",
    r"that of",
    r"what they say",
)
"""Constructions that nest's documents do without: they are passive, inverted, or point back at a noun that is gone."""

_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})\b")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_GENERATED = re.compile(r"<!-- (?:generated|drawn) .*?<!-- end of [^>]*-->", re.DOTALL)
_FENCED = re.compile(r"^ *(```+)\w*.*?^ *\1 *$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^|\n)\n(?: {4,}[^ *\-\d].*\n)+")
_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][)\"'*_]))\s+(?=[\"'(*_`]*[A-Z`\d]|nest\b)|(?<=:)\s*\n")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9'’-]*|\d[\d.,]*")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|etc|vs|Fig|Eq|No)\.")


@frozen
class Prose:
    """Sentences of a page.

    Attributes:
        sentences: of paragraphs and lists; code counts as one word.
        cells: of tables.
    """

    sentences: tuple[str, ...]
    cells: tuple[str, ...]


def prose(markdown: str) -> Prose:
    """What a page says, without code, generated parts, headings and the targets of links."""
    text = _COMMENT.sub("", _GENERATED.sub("", markdown))
    text = _INDENTED.sub("\n\n", _FENCED.sub("\n\n", text))
    text = re.sub(r"</?[a-z][^>]*>", "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    rows = [line for line in text.splitlines() if line.lstrip().startswith("|")]
    lines = ["" if line.lstrip().startswith(("|", "#", ":::")) else line for line in text.splitlines()]
    paragraphs = re.split(r"\n\s*\n|\n(?= *(?:[*+-]|\d+\.) )", "\n".join(lines))
    cells = [cell for row in rows for cell in re.split(r"(?<!\\)\|", row) if not re.fullmatch(r"[\s:-]*", cell)]
    return Prose(tuple(_sentences(paragraphs)), tuple(_sentences(cells)))


def _sentences(parts: list[str]) -> Iterator[str]:
    for part in parts:
        part = _ABBREVIATED.sub(lambda match: match[0].replace(".", ""), re.sub(r"^\s*(?:[*+-]|\d+\.) ", "", part))
        yield from (" ".join(sentence.split()) for sentence in _END.split(part) if sentence.strip())


def words(sentence: str) -> list[str]:
    """Its words; numbers are words."""
    return _WORD.findall(sentence)


def syllables(word: str) -> int:
    """About how many: groups of vowels, a silent `e` at the end left out."""
    word = word.lower().strip("'’")
    count = len(re.findall(r"[aeiouy]+", word)) - (word.endswith("e") and not word.endswith("le"))
    return max(count, 1)


def reading_ease(sentences: tuple[str, ...]) -> float:
    """Flesch's score: 100 is very easy, 0 very hard.

    Source: R. Flesch, A new readability yardstick, Journal of Applied Psychology 32 (1948).
    """
    every = [word for sentence in sentences for word in words(sentence)]
    if not every:
        return 100.0
    return 206.835 - 1.015 * len(every) / len(sentences) - 84.6 * sum(map(syllables, every)) / len(every)


def long_sentences(text: Prose, longest: int = LONGEST) -> list[str]:
    """Sentences of more words than a reader takes in at once."""
    return [each for each in (*text.sentences, *text.cells) if len(words(each)) > longest]


def banned(text: str) -> list[str]:
    """Constructions of `BANNED` with the words around them, code left out."""
    text = " ".join(re.sub(r"`[^`\n]*`", "`code`", text).split())
    return [text[max(match.start() - 40, 0) : match.end() + 30] for match in _BANNED.finditer(text)]


BEFORE = (
    "that of megatron-core: what it can run is searched",
    "stack: megatron-core, the usual one of",
    "Predictions do not tell them apart",
    "is taken to need",
    "cannot be told from this plan by prediction",
    "follow from the order of the schedule",
    "does not describe a plan: stage",
    "the time was up before all cases were listed",
    "this looks at clusters of one kind of device",
    "so that nobody can tell where",
    "builds transformers from their widths, and this problem",
    "What it beats, or what would let one fit",
    "Find how much longer all takes on a cluster",
    "What no option says is asked on a terminal",
    "let blocks lie anywhere",
    "Put the fastest plan beside those of other planners",
    "every part that is not arithmetic is a plug-in",
    "describes the cluster from the inside out",
    "whether they take what nest writes",
    "all plans that no other equals or beats",
    "what differs is the level of a cluster",
    "are refused, of 55 that ran out of memory",
    "For the same reason memory counts as estimated",
    "by default the estimate itself has to fit",
    "which are no two numbers where each pool has its own",
    "have their text again, by which tests tell them apart",
    "of a stage holds at least, told apart by identity",
    "candidates are priced at all: those that may beat a first plan",
    "Nobody watches.",
    "for people who decide how a training run is laid out",
    "How far predictions are from reality",
    "What it can and cannot do yet",
)
"""Parts of sentences that nest wrote once and readers had to read twice."""

FIRST_WORDS = ("What", "Which", "Whether", "How")
"""Words that no public docstring begins with: the first line says what a thing is or does."""

LEFT = Path(__file__).with_name("style_left.json")
"""What is still to be written anew, by page and by package: numbers that may fall only."""


COUNTED = ("long sentences", "banned on pages", "banned in code", "first words", "read twice")


def read_twice(text: str) -> list[str]:
    """Sentences of `BEFORE` in a page or in Python, where strings may go over lines."""
    text = " ".join(re.sub(r"\"\s+f?\"", "", text).split()).lower()
    return [each for each in BEFORE if each.lower() in text]


def left() -> dict[str, dict[str, int]]:
    """Today's numbers: of each page and package, those above 0."""
    counts: dict[str, dict[str, int]] = {name: {} for name in COUNTED}
    for name in pages():
        text = prose((REPOSITORY / name).read_text())
        counts["read twice"][name] = len(read_twice((REPOSITORY / name).read_text()))
        counts["long sentences"][name] = len(long_sentences(text))
        counts["banned on pages"][name] = len(banned(" ".join((*text.sentences, *text.cells))))
    for package, paths in packages().items():
        sources = [path.read_text() for path in paths]
        counts["read twice"][package] = sum(map(len, map(read_twice, sources)))
        counts["banned in code"][package] = sum(len(banned(source)) for source in sources)
        counts["first words"][package] = sum(map(len, map(badly_begun, sources)))
    return {name: {key: number for key, number in found.items() if number} for name, found in counts.items()}


def pages() -> list[str]:
    """Pages that people write: results of benchmarks are printed."""
    return [str(path) for path in documents() if not str(path).startswith("benchmarks/results/")]


def packages() -> dict[str, list[Path]]:
    """Python files by room of nest or by plug-in."""
    found: dict[str, list[Path]] = {}
    for path in sorted((REPOSITORY / "nest").rglob("*.py")):
        found.setdefault(f"nest/{path.relative_to(REPOSITORY / 'nest').parts[0]}", []).append(path)
    for path in sorted((REPOSITORY / "plugins").glob("*/src/**/*.py")):
        found.setdefault(path.relative_to(REPOSITORY / "plugins").parts[0], []).append(path)
    return found


def badly_begun(source: str) -> list[str]:
    """Names of public definitions whose docstrings begin with one of `FIRST_WORDS`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    named = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds) and node.name[0] != "_"]
    return [node.name for node in named if (ast.get_docstring(node) or "x").split()[0] in FIRST_WORDS]


def write() -> None:
    """Lower the numbers of `LEFT` to today's."""
    before = json.loads(LEFT.read_text()) if LEFT.exists() else None
    found = left()
    if before is not None:
        for name, each in found.items():
            lowered = {key: min(number, before[name].get(key, 0)) for key, number in each.items()}
            found[name] = {key: number for key, number in lowered.items() if number}
    LEFT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    write()
