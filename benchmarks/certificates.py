"""Size of certificates, and CPU seconds to write and check them beside those of the solve.

`python -m benchmarks.certificates [NAME ...]`

Each command is a process of its own, from start to exit. The checker has the standard library alone (`python -I -S`).
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.paper.cells import GPU, Cell
from benchmarks.scale.commands import DEEPSEEK, README
from benchmarks.scale.processes import REPOSITORY, run

CHECKER = REPOSITORY / "tools" / "check_certificate.py"
PAPER = Cell("gpt3-175b", GPU, 1024, 1)
PROBLEMS: dict[str, Path | Cell] = {"readme": README, "gpt3-1024": PAPER, "deepseek-v3": DEEPSEEK}
TIMEOUT = 1800.0
"""Seconds after which a command is stopped."""
ROW = "{:14}{:>10}{:>10}{:>10}{:>9}{:>9}{:>9}"


def seconds(*arguments: str | Path) -> float:
    """CPU seconds of a Python process with these arguments.

    Raises:
        RuntimeError: it fails.
    """
    done = run([str(each) for each in arguments], TIMEOUT)
    if done.code:
        raise RuntimeError(f"{arguments[0]} {arguments[1]}: {done.output}{done.errors}")
    return done.cpu


def row(name: str, folder: Path) -> str:
    """Solve, certify and check a problem; return its row of the table."""
    problem, plan, certificate = PROBLEMS[name], folder / "plan.json", folder / "certificate.json.gz"
    path = folder / "problem.json"
    if isinstance(problem, Path):
        path = problem
    else:
        path.write_text(json.dumps(problem.problem()))
    solve = seconds("-m", "nest", "solve", path, "--output", plan)
    write = seconds("-m", "nest", "certify", plan, "--output", certificate)
    check = seconds("-I", "-S", CHECKER, certificate)
    figures = (f"{solve:.1f}", f"{write:.1f}", f"{check:.1f}", f"{write / solve:.2f}", f"{check / solve:.2f}")
    return ROW.format(name, f"{certificate.stat().st_size / 1e3:.0f}", *figures)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROBLEMS))
    names = parser.parse_args().names or list(PROBLEMS)
    if unknown := [name for name in names if name not in PROBLEMS]:
        parser.error(f"there is no problem {unknown[0]}; the problems are {', '.join(PROBLEMS)}")
    print(ROW.format("name", "kB", "solve s", "write s", "check s", "write", "check"), flush=True)
    for name in names:
        with TemporaryDirectory() as folder:
            print(row(name, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
