"""Documents, docstrings and messages are plain English, as far as a machine can see.

A page or package with numbers in `style_left.json` may have as many faults as stand there, and no more.
"""

import json

import pytest

from tests.docs import style
from tests.docs.document import REPOSITORY

LEFT = json.loads(style.LEFT.read_text())
EASIEST_TO_HARDEST = 50
"""Reading ease below which a page is hard (Flesch: 50 to 60 is fairly difficult)."""

ENOUGH = 8
"""Sentences from which on a score says something."""


@pytest.mark.longer
@pytest.mark.parametrize("name", style.pages())
def test_sentences_of_a_page_are_short_and_plain(name: str) -> None:
    text = style.prose((REPOSITORY / name).read_text())
    long = style.long_sentences(text)
    assert len(long) <= LEFT["long sentences"].get(name, 0), f"at most {style.LONGEST} words a sentence: {long}"
    found = style.banned(" ".join((*text.sentences, *text.cells)))
    assert len(found) <= LEFT["banned on pages"].get(name, 0), found
    assert len(style.read_twice((REPOSITORY / name).read_text())) <= LEFT["read twice"].get(name, 0)
    if len(text.sentences) >= ENOUGH:
        assert style.reading_ease(text.sentences) >= EASIEST_TO_HARDEST


@pytest.mark.longer
@pytest.mark.parametrize("package", style.packages())
def test_code_says_things_plainly(package: str) -> None:
    sources = [path.read_text() for path in style.packages()[package]]
    found = [each for source in sources for each in style.banned(source)]
    assert len(found) <= LEFT["banned in code"].get(package, 0), found
    twice = [each for source in sources for each in style.read_twice(source)]
    assert len(twice) <= LEFT["read twice"].get(package, 0), twice
    begun = [name for source in sources for name in style.badly_begun(source)]
    assert len(begun) <= LEFT["first words"].get(package, 0), f"begin docstrings with what a thing is or does: {begun}"


def test_what_is_left_only_falls() -> None:
    assert set(LEFT) == set(style.COUNTED)
    known = {*style.pages(), *style.packages()}
    assert [name for each in LEFT.values() for name in each if name not in known] == [], "python -m tests.docs.style"


def test_sentences_are_told_apart() -> None:
    page = """# Heading that is no sentence

One `nest solve` sentence. Another one, e.g. this! A [third](x.md) (in brackets.)
Use 3.5 GiB here: it is one sentence.

* An item
* Another
  that goes on

| table | A cell. Two. |
|---|---|

```text
Code. Is. Left. Out.
```
"""
    text = style.prose(page)
    assert text.sentences == (
        "One `code` sentence.", "Another one, eg this!", "A third (in brackets.)",
        "Use 3.5 GiB here: it is one sentence.", "An item", "Another that goes on",
    )  # fmt: skip
    assert text.cells == ("table", "A cell.", "Two.")
    assert style.words(text.sentences[3]) == ["Use", "3.5", "GiB", "here", "it", "is", "one", "sentence"]
    assert style.long_sentences(text, 7) == ["Use 3.5 GiB here: it is one sentence."]


def test_reading_ease_is_flesch_s() -> None:
    """The cat sat on the mat: 6 words, 6 syllables, one sentence."""
    assert style.reading_ease(("The cat sat on the mat.",)) == pytest.approx(206.835 - 1.015 * 6 - 84.6)
    assert [style.syllables(word) for word in ("parallel", "table", "time", "a")] == [3, 2, 1, 1]


def test_constructions_are_found() -> None:
    assert style.banned("A plan is taken to need more. `lies` is code.") == [
        "A plan is taken to need more. `code` is code."
    ]
    assert style.banned("nest searches plans.") == []
    assert style.read_twice('"A stage is taken "\n  f"to need 3 GiB"') == ["is taken to need"]
    source = 'def a():\n    """What a is."""\n\ndef _b():\n    """How."""\n\nclass C:\n    """A class."""\n'
    assert style.badly_begun(source) == ["a"]
