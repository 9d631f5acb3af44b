"""How far predicted peaks of memory are from measured ones: `python -m benchmarks.memory RUNS`.

RUNS is a file as `python -m benchmarks.fidelity` reads it; runs without a `peak_memory` are passed over. The last lines
are the smallest `training.memory_margin` with which no measured peak is above the upper estimate, of all and of each
generation of devices: those, rounded up, are the defaults (`memory_overheads.margin` of the catalogue's devices).
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from attrs import frozen

import nest
from nest.catalogue import devices

Row = Mapping[str, Any]


@frozen
class Peak:
    """The fullest stage of one run.

    Attributes:
        name: of the run.
        group: who published it.
        generation: of the devices.
        predicted: bytes as estimated, the reserve included.
        measured: bytes.
        reserve: bytes of `predicted` that are kept free.
    """

    name: str
    group: str
    generation: str
    predicted: float
    measured: float
    reserve: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured

    @property
    def margin(self) -> float:
        """The smallest margin with which the upper estimate reaches what was measured; below 0 where it is above."""
        return (self.measured - self.reserve) / (self.predicted - self.reserve) - 1


def peaks(rows: Iterable[Row]) -> list[Peak]:
    """What is predicted for each run that has a measured peak."""
    found = []
    for row in rows:
        measured = row["measured"].get("peak_memory")
        if measured:
            stages = nest.evaluate(row["problem"]).stages
            fullest = max(stages, key=lambda stage: stage.memory)
            assert fullest.memory_breakdown is not None
            reserve = fullest.memory_breakdown.reserve
            found.append(Peak(row["id"], row["group"], generation(row), fullest.memory, measured, reserve))
    return found


def generation(row: Row) -> str:
    """The generation of a run's devices, by the catalogue; else the device's name."""
    written = row["problem"]["cluster"]["device"]
    name = written if isinstance(written, str) else written["name"]
    return devices()[name].generation or name if name in devices() else name


def report(found: Iterable[Peak]) -> str:
    """A line for each group, and what margin it takes to cover all."""
    groups: dict[str, list[Peak]] = defaultdict(list)
    for peak in found:
        groups[peak.group].append(peak)
    groups["all"] = [peak for group in list(groups.values()) for peak in group]
    lines = ["peak memory, predicted over measured  runs  mean error   least    most  margin"]
    for name, members in groups.items():
        error = fmean(abs(peak.ratio - 1) for peak in members)
        ratios = [peak.ratio for peak in members]
        margin = max(peak.margin for peak in members)
        lines.append(
            f"{name:38}{len(members):4}{error:10.1%}{min(ratios):10.2f}{max(ratios):8.2f}{max(margin, 0.0):8.3f}"
        )
    worst = max(groups["all"], key=lambda peak: peak.margin)
    lines += ["", f"the smallest margin that covers all: {max(worst.margin, 0.0):.3f} ({worst.name})"]
    for name in sorted({peak.generation for peak in groups["all"]}):
        worst = max((peak for peak in groups["all"] if peak.generation == name), key=lambda peak: peak.margin)
        lines.append(f"the smallest that covers {name}: {max(worst.margin, 0.0):.3f} ({worst.name})")
    return "\n".join(lines)


def main() -> None:
    """Price the runs of the file named and print how far off they are."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory", description="Compares predicted with measured peaks of memory."
    )
    parser.add_argument("runs", type=Path, metavar="RUNS", help="measured runs as JSON lines")
    path = parser.parse_args().runs
    if not path.is_file():
        parser.error(f"{path}: there is no such file.")
    with path.open(encoding="utf-8") as lines:
        print(report(peaks(json.loads(line) for line in lines)))


if __name__ == "__main__":
    main()
