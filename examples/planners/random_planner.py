"""A random planner: draws plans until one fits by its own count. The least that a planner should beat."""

import argparse
from itertools import pairwise
from random import Random

from neutral import Shape, modes, plan, problem_given, room, shapes, state, write


def drawn(problem: dict, random: Random) -> dict | None:
    """A random plan; None: it does not fit."""
    shape = random.choice(shapes(problem))
    order = _order(problem, random)
    count = random.randint(1, min(shape.blocks, len(order)))
    cuts = [0, *sorted(random.sample(range(1, len(order)), count - 1)), len(order)]
    stages = [order[start:end] for start, end in pairwise(cuts)]
    recompute = [random.choice(modes(problem, shape.candidate)) for _ in stages]
    for place, (stage, mode) in enumerate(zip(stages, recompute, strict=True)):
        if _memory(problem, shape, stage, mode, min(shape.micro_batches, count - place)) > room(problem):
            return None
    return plan(problem, shape, stages, recompute)


def _order(problem: dict, random: Random) -> list[int]:
    """A random order of the layers in which none comes before what it reads."""
    edges = problem["profile"]["edges"]
    left, found = list(range(len(problem["profile"]["layers"]))), []
    while left:
        free = [layer for layer in left if not any(a in left for a, b in edges if b == layer)]
        found.append(random.choice(free))
        left.remove(found[-1])
    return found


def _memory(problem: dict, shape: Shape, stage: list[int], mode: str, flying: int) -> float:
    """Bytes of a stage with so many micro-batches in flight, nothing sharded."""
    row = shape.candidate["recompute"][mode]
    held = sum(state(shape.candidate, layer) + row["first"][layer] for layer in stage)
    more = sum(row["more"][layer] for layer in stage)
    if row.get("stash_inputs"):
        edges = zip(problem["profile"]["edges"], shape.candidate["edge_bytes"], strict=True)
        more += sum(size for (a, b), size in edges if b in stage and a not in stage)
    return held + max(row["peak"][layer] for layer in stage) + (flying - 1) * more


def main() -> None:
    """Read a problem, write the first of the plans drawn that fits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=10_000, help="plans that are drawn before it gives up (10000)")
    options = parser.parse_args()
    problem, random = problem_given(), Random(options.seed)
    found = (drawn(problem, random) for _ in range(options.draws))
    write(next((each for each in found if each is not None), None))


if __name__ == "__main__":
    main()
