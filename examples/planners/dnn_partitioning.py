"""dnn-partitioning as an adapter: writes its input, asks its program, reads its split.

The format is that of msr-fiddle/dnn-partitioning (Tarnawski et al., NeurIPS 2020): "Input format" of README.md and
`from_json` and `to_json` of throughput-dp/dp.cpp, commit b207b6a. DNN_PARTITIONING names that program as compiled; it
reads an instance on standard input and writes the split on standard output.

The program places every node on one accelerator ("FPGA"). So it is asked once for every candidate, number of replicas,
recompute mode and number of accelerators, which stand for stages. It knows no micro-batches in flight, so that nodes
are as large as with one for each accelerator.
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

NO_SPLIT = "FAIL: computed max load != max load from DP"
"""What the program tells where no split fits, as its dynamic program then has no load to compare with."""


def instance(problem: dict, shape: Shape, mode: str, accelerators: int) -> dict:
    """The input of the program, with training in one pass: nodes take forward and backward together."""
    candidate, profile = shape.candidate, problem["profile"]
    bandwidth, row = network(problem)[1], candidate["recompute"][mode]
    flying = min(accelerators, shape.micro_batches)
    # All edges that leave a node carry one tensor, so the program asks for one cost: that of the largest.
    sent: dict[int, float] = {}
    for (a, _), size in zip(profile["edges"], candidate["edge_bytes"], strict=True):
        sent[a] = max(sent.get(a, 0.0), size)
    return {
        "maxSizePerFPGA": room(problem),
        "maxFPGAs": accelerators,
        "maxCPUs": 0,
        "nodes": [
            {
                "id": layer,
                "name": name,
                "supportedOnFpga": 1,
                "cpuLatency": 0.0,
                "fpgaLatency": seconds(candidate, mode, layer) + reducing(problem, shape, layer),
                "isBackwardNode": 0,
                "colorClass": layer,
                "size": state(candidate, layer)
                + row["first"][layer]
                + row["peak"][layer]
                + (flying - 1) * row["more"][layer],
            }
            for layer, name in enumerate(profile["layers"])
        ],
        "edges": [{"sourceId": a, "destId": b, "cost": sent[a] / bandwidth} for a, b in profile["edges"]],
    }


def stages_of(problem: dict, result: dict) -> list[list[int]]:
    """The accelerators of the program's output that hold something, in the order of the pipeline."""
    return in_order(problem, [each["nodes"] for each in result.get("fpgas", []) if each["nodes"]])


def main() -> None:
    """Read a problem, write the plan whose fullest accelerator has the least load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", metavar="COMMAND", help="left out, the variable DNN_PARTITIONING")
    program = parser.parse_args().program
    problem = problem_given()
    most = len(problem["profile"]["layers"])
    best, least = None, float("inf")
    for shape in shapes(problem):
        for mode in modes(problem, shape.candidate):
            for accelerators in range(1, min(shape.blocks, most) + 1):
                given = instance(problem, shape, mode, accelerators)
                result = asked(program, "DNN_PARTITIONING", given, NO_SPLIT)
                stages = stages_of(problem, result)
                if not stages:
                    continue
                taken = result["maxLoad"] * shape.micro_batches
                if taken < least * (1 - 1e-9):
                    best, least = plan(problem, shape, stages, [mode] * len(stages)), taken
    write(best)


if __name__ == "__main__":
    main()
