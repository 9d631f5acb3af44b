"""CPU time and peak memory of every planner by size: `python -m benchmarks.paper.effort [--model MODEL]`."""

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from benchmarks.paper.cells import DEVICES, TPU, Cell
from benchmarks.paper.measure import EVALUATIONS, OURS
from nest import api
from nest.formulate.pools import takes_pools
from nest.formulate.problem import formulated
from nest.hooks.registry import registry
from nest.report.text.layout import table
from nest.units import format_bytes, format_seconds
from nest_whatif.compare import Task

SIZES = (DEVICES[0], DEVICES[2], DEVICES[4])


@frozen
class Effort:
    """What one search took.

    Attributes:
        planner: whose.
        devices: of the cell.
        seconds: CPU time, its own formulation of the problem apart.
        memory: bytes the process grew to beyond what it had before.
    """

    planner: str
    devices: int
    seconds: float
    memory: float


def efforts(model: str, sizes: Sequence[int]) -> Iterator[Effort]:
    """Of nest and every planner, one after the other."""
    known = registry()
    for devices in sizes:
        cell = Cell(model, TPU, devices, 1)
        whole = known.run(lambda cell=cell: formulated(cell.problem(), known)[0])
        task = Task(cell.problem(), whole, known, None, 1, EVALUATIONS, None, api.evaluate)
        for name in (OURS, *(each for each, planner in known.planners().items() if not takes_pools(planner))):
            yield _apart(task, name, devices)


def _apart(task: Task, name: str, devices: int) -> Effort:
    """A search in a process of its own: a fork, so that all it takes beyond this one's memory is its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def search() -> None:
        before, begun = _resident(), time.process_time()
        if name == OURS:
            from nest.solve.solver import solve

            solve(task.instance)
        else:
            task.known.run(lambda: task.planned(name))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        sender.send((time.process_time() - begun, max(most - before, 0.0)))

    process = context.Process(target=search)
    process.start()
    sender.close()
    seconds, memory = receiver.recv()
    process.join()
    return Effort(name, devices, seconds, memory)


def _resident() -> float:
    """Bytes this process has in memory."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * resource.getpagesize()


def text(found: Sequence[Effort]) -> str:
    """By planner and size: CPU time, peak memory."""
    sizes = tuple(dict.fromkeys(each.devices for each in found))
    at = {(each.planner, each.devices): each for each in found}
    rows = [
        [name, *(f"{format_seconds(at[name, size].seconds)}, {format_bytes(at[name, size].memory)}" for size in sizes)]
        for name in dict.fromkeys(each.planner for each in found)
    ]
    return table(("planner", *(f"{size} devices" for size in sizes)), rows, range(1, len(sizes) + 1))


def main(given: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.effort", description=__doc__)
    parser.add_argument("--model", default="llama-2-7b", help="as `nest models` lists it (llama-2-7b)")
    parser.add_argument("--devices", type=int, nargs="+", default=list(SIZES), help="of the TPUv4 fat-tree")
    options = parser.parse_args(given)
    print(text(list(efforts(options.model, options.devices))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
