"""The problems of the benchmark, by track, with their optima."""

import json
from pathlib import Path
from typing import Any

from attrs import frozen

PROBLEMS = Path(__file__).parent / "problems"
OPTIMA = "optima.json"
TRACKS = {
    "optimum": "random problems; the optimum is proved by programs that share no code with nest",
    "traps": "one for each kind of restriction; the optimum follows from how the problem is made",
}


@frozen
class Task:
    """A problem with a known optimum.

    Attributes:
        name: of its file.
        problem: as `nest solve` reads it.
        optimum: the least step time of all plans, seconds.
    """

    name: str
    problem: dict[str, Any]
    optimum: float


def tasks(track: str, folder: Path = PROBLEMS) -> tuple[Task, ...]:
    """The problems of a track, in the order of the table of optima."""
    optima = json.loads((folder / OPTIMA).read_text(encoding="utf-8"))
    names = [name.partition("/")[2] for name in optima if name.startswith(f"{track}/")]
    return tuple(
        Task(
            name,
            json.loads((folder / track / f"{name}.json").read_text(encoding="utf-8")),
            optima[f"{track}/{name}"]["batch_time"],
        )
        for name in names
    )
