"""`python -m tests.mutated_inputs`: mutated inputs over all commands, counted by command and exit code.

    python -m tests.mutated_inputs --count 100000 --seed 1

What fails is printed with the number of its case: `--only NUMBER` calls that one alone and shows its files.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context

from tests.mutated_inputs.cases import Outcome, call, draw


def outcome(case: tuple[int, int]) -> tuple[int, Outcome]:
    """A case's number and what came of it."""
    return case[1], call(draw(*case))


def outcomes(seed: int, numbers: range, jobs: int) -> Iterator[tuple[int, Outcome]]:
    """What came of every case, in their order."""
    cases = ((seed, number) for number in numbers)
    if jobs == 1:
        yield from map(outcome, cases)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(outcome, cases, chunksize=20)


def table(counts: Counter[tuple[str, object]], seconds: Counter[str]) -> str:
    """How often each command ended with each exit code, and how long its calls took."""
    names = sorted({name for name, _ in counts})
    rows = [f"{'command':24}{'calls':>8}{'exit 0':>8}{'exit 1':>8}{'exit 2':>8}{'other':>8}{'mean s':>8}"]
    for name in [*names, "all"]:
        chosen = {key: count for key, count in counts.items() if name in (key[0], "all")}
        calls = sum(chosen.values())
        codes = [sum(count for key, count in chosen.items() if key[1] == code) for code in (0, 1, 2)]
        spent = seconds.total() if name == "all" else seconds[name]
        shown = "".join(f"{each:>8}" for each in (calls, *codes, calls - sum(codes)))
        rows.append(f"{name:24}{shown}{spent / max(calls, 1):>8.3f}")
    return "\n".join(rows)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutated_inputs")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    if asked.only is not None:
        case = draw(asked.seed, asked.only)
        print(case.words, *(f"\n--- {name}\n{data!r}" for name, data in case.files.items()))
        print(call(case))
        return
    counts: Counter[tuple[str, object]] = Counter()
    seconds: Counter[str] = Counter()
    slowest, failed = (0.0, -1), 0
    for number, found in outcomes(asked.seed, range(asked.first, asked.first + asked.count), asked.jobs):
        counts[found.name, found.code] += 1
        seconds[found.name] += found.seconds
        slowest = max(slowest, (found.seconds, number))
        if (number - asked.first + 1) % 5000 == 0:
            print(f"after {number - asked.first + 1}: {failed} failures\n{table(counts, seconds)}", flush=True)
        if found.fault is not None:
            failed += 1
            print(f"case {number} of seed {asked.seed}, nest {found.name}: {found.fault}", flush=True)
    print(table(counts, seconds))
    print(f"slowest: {slowest[0]:.2f} s, case {slowest[1]}; failures: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
