"""Checks of engines (`nest.hooks.protocols.Engine`)."""

from typing import Any

from nest.errors import InputError
from nest.hooks.protocols import Engine
from nest_testing.finding import Finding, Problems, Tally

ITEMS = tuple(range(7))
WORKERS = 2


def check_engine(engine: Engine) -> tuple[Finding, ...]:
    """Let two workers square seven numbers, and pass errors through.

    An engine whose library or scheduler is missing is not tried further: one sentence must say so.
    """
    tally = Tally()
    tally.run("one line says what it runs on", "its summary", _no_summary, engine)
    lacks: list[str] = []
    if tally.run("it runs, or says what it lacks", "seven items", _does_not_run, engine, lacks) and not lacks:
        tally.run("each item has its answer, once", "seven items", _wrong, engine, ITEMS)
        tally.run("each item has its answer, once", "one item", _wrong, engine, ITEMS[:1])
        tally.run("what raises is not taken for an answer", "one item of seven", _hidden, engine)
    return tally.findings()


def square(item: int) -> int:
    """Return the square."""
    return item * item


def refuse(item: int) -> int:
    """Return the square, except of the fourth number."""
    if item == 3:
        raise ValueError("three is refused")
    return item


def _with_workers(engine: Engine) -> Any:
    return engine.configured(WORKERS, None) if hasattr(engine, "configured") else engine


def _no_summary(engine: Engine) -> Problems:
    if not isinstance(engine.summary, str) or not engine.summary.strip() or "\n" in engine.summary:
        yield f"the summary is {engine.summary!r:.60}"


def _does_not_run(engine: Engine, lacks: list[str]) -> Problems:
    try:
        list(_with_workers(engine).submit(square, ITEMS))
    except InputError as error:
        lacks.append(str(error))
        if not str(error).strip():
            yield "it says nothing"


def _wrong(engine: Engine, items: tuple[int, ...]) -> Problems:
    answers = list(_with_workers(engine).submit(square, items))
    if sorted(answers) != [square(item) for item in items]:
        yield f"the squares of {items} are {answers!r:.80}"


def _hidden(engine: Engine) -> Problems:
    try:
        answers = list(_with_workers(engine).submit(refuse, ITEMS))
    except Exception:  # Whatever it is called: few errors can be sent from one process to another.
        return
    yield f"no error reaches whoever asks, who is given {answers!r:.80}"
