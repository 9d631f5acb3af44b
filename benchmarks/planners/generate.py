"""Writes the problems and their optima: `python -m benchmarks.planners.generate`. Seeds are the names of the files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.planners.draws import drawn
from benchmarks.planners.tracks import OPTIMA, PROBLEMS
from benchmarks.planners.traps import traps
from tests.oracle import brute_force, chain_program
from tests.oracle.network_plans import Search


def proven(problem: dict[str, Any]) -> float | None:
    """The least step time, seconds, by programs that share no code with nest; None: no plan fits."""
    if "topology" in problem["cluster"]:
        found = Search(problem).run()
    elif len(problem["profile"]["layers"]) > 8 and not problem["search"].get("recompute_layers"):
        found = chain_program.solve_chain(problem)
    else:
        found = brute_force.solve(problem)
    return None if found.batch_time is None else float(found.batch_time)


def files(optima: Mapping[str, float | None]) -> dict[str, str]:
    """Contents of each file, by its path below `problems`.

    Args:
        optima: proven step times of the drawn problems, seconds, by name.
    """
    known: dict[str, Any] = {}
    texts = {}
    for name, problem in drawn().items():
        texts[f"optimum/{name}.json"] = text(problem)
        known[f"optimum/{name}"] = {"batch_time": optima[name]}
    for trap in traps():
        texts[f"traps/{trap.name}.json"] = text(trap.problem)
        known[f"traps/{trap.name}"] = {
            "batch_time": trap.optimum,
            "restriction": trap.restriction,
            "argument": trap.argument,
        }
    return texts | {OPTIMA: json.dumps(known, indent=1) + "\n"}


def text(problem: Mapping[str, Any]) -> str:
    """JSON with a line for each key, and one for each candidate."""
    profile = problem["profile"]
    lines = [f' "{key}": {json.dumps(value)}' for key, value in problem.items() if key != "profile"]
    within = [f'  "{key}": {json.dumps(profile[key])}' for key in ("layers", "edges")]
    candidates = ",\n".join(f"   {json.dumps(each)}" for each in profile["candidates"])
    within.append(f'  "candidates": [\n{candidates}\n  ]')
    lines.append(' "profile": {\n' + ",\n".join(within) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(folder: Path = PROBLEMS) -> None:
    """Write every file."""
    for path, content in files({name: proven(problem) for name, problem in drawn().items()}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
