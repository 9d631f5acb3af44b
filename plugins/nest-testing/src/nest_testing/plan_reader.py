"""Checks of plan readers (`nest.hooks.protocols.PlanReader`)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nest.deployment import Reading
from nest.errors import InputError
from nest.hooks.protocols import PlanReader
from nest.io import structure
from nest.public.checks import instance_of
from nest.spec import Problem
from nest_testing.finding import Finding, Problems, Tally

SECTIONS = ("model", "training", "fixed")  # Keys of a problem that a file may fill in.

PROBLEM: Mapping[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 256, "ffn": 1024, "heads": 4, "vocab": 1000}},
    "training": {"global_batch": 8, "sequence_length": 256},
    "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 8, "link": "nvlink3"}]},
}
"""Sections of a problem beside the file's."""

STRANGE_TEXTS = ("", "no such thing", "{}", "[]", "a: b", "[a]\nb = 1\n", "\0", "{" * 1000)
"""Texts of wrong files, which a reader need not read."""


def check_plan_reader(reader: PlanReader, *, texts: Sequence[str] | None = None) -> tuple[Finding, ...]:
    """Read texts, and files of no framework.

    Args:
        reader: from `nest_plan_readers`; its attribute `examples`, if any, holds accepted texts.
        texts: to be read; None: `examples`.
    """
    tally = Tally()
    mine = tuple(getattr(reader, "examples", ())) if texts is None else tuple(texts)
    tally.run("some text is read", "the texts", _nothing_to_read, mine)
    for text in mine:
        where = f"the text {text!r:.40}"
        if tally.run("it reads keys of a problem", where, _bad_keys, reader, text):
            tally.run("what it reads is part of a problem", where, _no_problem, reader, text)
            tally.steady("it says the same every time", where, partial(reader.read, text))
    for text in STRANGE_TEXTS:
        tally.run("what it cannot read it refuses with an InputError", f"the text {text!r:.40}", _read, reader, text)
    tally.run("one line says what it reads", "its summary", _no_summary, reader)
    return tally.findings()


def _nothing_to_read(texts: Sequence[str]) -> Problems:
    if not texts:
        yield "there is none, so that nothing was looked at; give the reader `examples`, or check_plan_reader texts"


def _bad_keys(reader: PlanReader, text: str) -> Problems:
    read = instance_of(Reading, "nest.deployment.Reading")(reader.read(text))
    unknown = [key for key in read.settings if key not in SECTIONS]
    if unknown:
        yield f"its settings have {unknown[0]!r}; there is only {', '.join(SECTIONS)}"
    if not any(read.settings.get(key) for key in SECTIONS):
        yield "its settings are empty, so that there is no plan to price"
    if read.devices is not None and (isinstance(read.devices, bool) or read.devices < 1):
        yield f"it says that the run is launched on {read.devices!r} devices"
    if not all(isinstance(note, str) and note.strip() for note in read.notes):
        yield "its notes are no sentences"


def _no_problem(reader: PlanReader, text: str) -> None:
    """Object if the settings cannot be read with a problem's; the vocabulary may be missing."""
    settings = dict(reader.read(text).settings)
    if reader.read(text).vocabulary:
        settings.pop("model")
    training = {**PROBLEM["training"], **settings.pop("training", {})}
    structure({**PROBLEM, **settings, "training": training}, Problem)


def _read(reader: PlanReader, text: str) -> None:
    try:
        instance_of(Reading, "nest.deployment.Reading")(reader.read(text))
    except InputError:
        return


def _no_summary(reader: PlanReader) -> Problems:
    if not isinstance(reader.summary, str) or not reader.summary.strip() or "\n" in reader.summary:
        yield f"the summary is {reader.summary!r}"
