"""Compare the planner with the oracle on many random problems of every kind.

`python -m tests.agreement.fuzz --seed S --count N [--kind KIND] [--chunk N --output FOLDER --jobs J]`

With a folder, each chunk of seeds writes its counts there, and a chunk that is there already is not run again.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from pathlib import Path
from time import perf_counter, process_time

from tests.agreement.compare import complaint, disagreements
from tests.agreement.corners import CORNERS
from tests.agreement.drawn_schedules import counts_of_no_order
from tests.agreement.draws import APART, SHARES, Draw, draw, hangs_on_rounding
from tests.agreement.targets import target_disagreements

VERIFY_EVERY = 20
"""CP-SAT has to prove the answer of one problem in so many."""
CHECK_EVERY = 5
"""`nest check` has to accept the plan of one problem in so many."""


@dataclass
class Tally:
    """What came of a range of seeds."""

    seed: int
    count: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


def proved(drawn: Draw) -> bool:
    """Whether CP-SAT has to prove the answer."""
    return drawn.seed % VERIFY_EVERY == 0 and drawn.kind not in APART


def compare(drawn: Draw) -> list[str]:
    """Disagreements on a problem; an exception is one."""
    verify = proved(drawn)
    try:
        if drawn.limits is not None:
            return target_disagreements(drawn.problem, drawn.limits, drawn.answer, verify=verify)
        checked = drawn.seed % CHECK_EVERY == 0
        return disagreements(drawn.problem, drawn.answer, checked=checked, verify=verify)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def marks(drawn: Draw) -> Iterator[str]:
    """What to count a problem under."""
    yield "all"
    yield f"kind: {drawn.kind}"
    for corner in drawn.corners:
        yield f"corner: {corner}"
    if drawn.answer.plan is not None:
        yield "answer: a plan"
        yield f"stages: {len(drawn.answer.plan['stages'])}"
        if drawn.kind in APART:
            yield f"pools: {len({stage['candidate'].partition('-')[0] for stage in drawn.answer.plan['stages']})}"
    else:
        yield "answer: no plan fits" if drawn.answer.reachable_memory else "answer: rules leave no plan"
    if drawn.limits is not None and drawn.answer.plan is None:
        return  # There is nothing to prove or to check where a framework can run no plan.
    if proved(drawn):
        yield "proved by CP-SAT"
    if drawn.seed % CHECK_EVERY == 0 or drawn.limits is not None:
        yield "accepted by nest check"


def examine(seed: int, count: int, kind: str | None = None, *, corner: str | None = None) -> Tally:
    """Compare the problems of a range of seeds."""
    tally, start = Tally(seed, count), process_time()
    for each in range(seed, seed + count):
        drawn = draw(each, kind, corner=corner)
        tally.counts.update(marks(drawn))
        wrong = compare(drawn)
        if wrong and hangs_on_rounding(drawn):
            tally.counts["hangs on the rounding of memory"] += 1
        elif wrong:
            tally.counts["disagree"] += 1
            tally.wrong.append(complaint(f"seed {each}, {drawn.kind} {drawn.corners}", drawn.problem, wrong))
    tally.seconds = process_time() - start
    return tally


def kept(folder: Path | None, examined, seed: int, count: int) -> Tally:
    """The tally of a chunk, as an earlier run left it, or made now and left."""
    if folder is None:
        return examined(seed, count)
    path = folder / f"{seed:07}-{count}.json"
    if path.exists():
        found = json.loads(path.read_text())
        return Tally(**{**found, "counts": Counter(found["counts"])})
    tally = examined(seed, count)
    path.write_text(json.dumps(vars(tally), indent=1) + "\n")
    return tally


Examine = Callable[[int, str | None], tuple[Counter[str], list[str]]]
"""What the problem of a seed, of a kind, counts under, and the disagreements on it."""


def compare_kinds(description: str, kinds: Sequence[str], examine: Examine) -> int:
    """The command line of a script that examines problems of kinds in turn; returns its exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=3000, help="problems to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    parser.add_argument("--kind", choices=kinds, help="problems of this kind alone")
    arguments = parser.parse_args()
    start, counts = perf_counter(), Counter()
    with counts_of_no_order():
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            more, wrong = examine(seed, arguments.kind)
            counts += more
            print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
    return summed_up(counts, arguments.seed, start)


def agree(examine: Examine, seeds: Iterable[int], kind: str | None = None) -> Counter[str]:
    """What problems count under, on none of which there may be a disagreement."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        counts, wrong = examine(seed, kind)
        assert not wrong, wrong[0]
        seen += counts
    return seen


def summed_up(counts: Counter[str], seed: int, start: float) -> int:
    """Print the counts of problems from a seed on, since `start`; the exit code."""
    for name in sorted(counts):
        print(f"{counts[name]:8} {name}")
    print(
        f"{counts['all']} problems from seed {seed}: {counts['all'] - counts['disagree']} agree, "
        f"{counts['disagree']} disagree; {perf_counter() - start:.1f} s"
    )
    return 1 if counts["disagree"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="problems to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first; the others follow it")
    parser.add_argument("--kind", choices=[*SHARES, *APART], help="problems of this kind alone")
    parser.add_argument("--corner", choices=CORNERS, help="problems in this corner alone")
    parser.add_argument("--chunk", type=int, default=1000, help="problems at a time")
    parser.add_argument("--output", type=Path, help="a folder for the counts of each chunk")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    start, last = perf_counter(), arguments.seed + arguments.count
    examined = partial(examine, kind=arguments.kind, corner=arguments.corner)
    chunks = [(seed, min(arguments.chunk, last - seed)) for seed in range(arguments.seed, last, arguments.chunk)]
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    with counts_of_no_order(), ProcessPoolExecutor(arguments.jobs) as pool:
        each = partial(kept, arguments.output, examined)
        for tally in pool.map(each, *zip(*chunks, strict=True)) if arguments.jobs > 1 else starmap(each, chunks):
            counts += tally.counts
            print(*tally.wrong, sep="\n", end="\n" if tally.wrong else "", flush=True)
    return summed_up(counts, arguments.seed, start)


if __name__ == "__main__":
    sys.exit(main())
