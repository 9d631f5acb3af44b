"""Piper as an adapter: writes its input, asks its program, reads its stages.

The format is that of msr-fiddle/piper (Tarnawski, Narayanan and Phanishayee, NeurIPS 2021): README.md and `from_json`
and `to_json` of algo.cpp, commit d7fc8cf. Its README says `maxBatchSize` where the program reads `mbsInBatch`.

The program's `main` runs the paper's experiments. PIPER names one that reads an instance on standard input, calls
`Graph::runDP` and `renumberResultBack`, and writes the `Result` as JSON.

Piper gives every stage a width and replicas of its own; a plan here has one of each. So the program is asked once for
every candidate and number of replicas. A number of micro-batches that is prime and larger than the devices leaves one
replica, and reducing gradients is part of the time of nodes.
"""

import argparse

from neutral import (
    Shape,
    asked,
    in_order,
    modes,
    network,
    plan,
    problem_given,
    reducing,
    room,
    seconds,
    shapes,
    state,
    write,
)

CHOICES = ("vanilla", "activation recomp")
"""Names of the two ways to run a node, as in the program's inputs."""


def instance(problem: dict, shape: Shape) -> dict:
    """The input of the program for a candidate and a number of replicas."""
    candidate, profile = shape.candidate, problem["profile"]
    devices, ways = shape.blocks * candidate["width"], _ways(problem, candidate)
    # A stage pays `2 * (cost + sync)` for each edge that it cuts; a boundary here takes it the edge's bytes once.
    costs = [size / 2 for size in candidate["edge_bytes"]]

    def choice(layer: int, name: str, mode: str) -> dict:
        row = candidate["recompute"][mode]
        fixed = state(candidate, layer) + row["peak"][layer] + row["first"][layer] - row["more"][layer]
        return {
            "id": name,
            "timePerSample": seconds(candidate, mode, layer) + reducing(problem, shape, layer),
            "parameterSize": 0.0,  # Of one replica, which reduces nothing.
            "memoryUsageA": row["more"][layer],
            "memoryUsageB": max(fixed, 0.0),
            "syncTimeFw": {str(a): 0.0 for a, b in profile["edges"] if b == layer},
            "syncTimeBw": {str(b): 0.0 for a, b in profile["edges"] if a == layer},
        }

    return {
        "maxMemoryPerDevice": room(problem),
        "maxDevices": devices,
        "bandwidth": network(problem)[1],
        "mbsInBatch": prime_above(devices),
        "nodes": [
            {
                "id": layer,
                "name": name,
                "TMPCs": {str(candidate["width"]): [choice(layer, *way) for way in ways.items()]},
            }
            for layer, name in enumerate(profile["layers"])
        ],
        "edges": [
            {"sourceId": a, "destId": b, "communicationCost": cost}
            for (a, b), cost in zip(profile["edges"], costs, strict=True)
        ],
    }


def stages_of(problem: dict, shape: Shape, result: dict) -> tuple[list[list[int]], list[dict]]:
    """The stages of the program's output, and how each recomputes.

    The program chooses for each node; a plan recomputes all layers of a stage or, where the problem says so, the first.
    """
    ways = _ways(problem, shape.candidate)
    found = {}
    for stage in result.get("stages", []):
        chosen = dict(stage["TMPCids"])  # A list of pairs, as the keys of the program's map are numbers.
        heaviest = max(chosen.values(), key=list(ways).index)
        again = sum(name == heaviest for name in chosen.values())
        mode = {"recompute": ways[heaviest]}
        if again < len(chosen) and problem["search"].get("recompute_layers"):
            mode |= {"recompute_layers": again, "recompute_rest": ways[CHOICES[0]]}
        found[tuple(stage["nodes"])] = mode
    stages = in_order(problem, [list(nodes) for nodes in found])
    return stages, [found[tuple(stage)] for stage in stages]


def slowest(problem: dict, shape: Shape, stages: list[list[int]], recompute: list[dict]) -> float:
    """Seconds per micro-batch of the slowest stage of the plan, as the program counts them."""
    edges = list(zip(problem["profile"]["edges"], shape.candidate["edge_bytes"], strict=True))
    times = []
    for stage, mode in zip(stages, recompute, strict=True):
        sent = sum(size for (a, b), size in edges if (a in stage) != (b in stage))
        again = mode.get("recompute_layers", len(stage))
        names = [mode["recompute"]] * again + [mode.get("recompute_rest", "")] * (len(stage) - again)
        computed = sum(
            seconds(shape.candidate, name, layer) + reducing(problem, shape, layer)
            for name, layer in zip(names, sorted(stage), strict=True)
        )
        times.append(computed + sent / network(problem)[1])
    return max(times)


def _ways(problem: dict, candidate: dict) -> dict[str, str]:
    """The mode behind each choice: the program knows at most two, here the lightest and the heaviest."""
    usable = modes(problem, candidate)
    return dict(zip(CHOICES, dict.fromkeys((usable[0], usable[-1])), strict=False))


def prime_above(number: int) -> int:
    """The least prime above a number."""
    found = number + 1
    while any(found % divisor == 0 for divisor in range(2, found)):
        found += 1
    return max(found, 2)


def main() -> None:
    """Read a problem, write the plan of most throughput."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", metavar="COMMAND", help="left out, the variable PIPER")
    program = parser.parse_args().program
    problem = problem_given()
    best, least = None, float("inf")
    for shape in shapes(problem):
        stages, recompute = stages_of(problem, shape, asked(program, "PIPER", instance(problem, shape)))
        if not stages:
            continue
        taken = slowest(problem, shape, stages, recompute) * shape.micro_batches
        if taken < least * (1 - 1e-9):
            best, least = plan(problem, shape, stages, recompute), taken
    write(best)


if __name__ == "__main__":
    main()
