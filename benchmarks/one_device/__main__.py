"""The command: `python -m benchmarks.one_device SEEN [--output FOLDER]`; SEEN is what `train` wrote on the device."""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from benchmarks.one_device.settings import Setting
from benchmarks.published.report import table
from nest import api
from nest.io import structure
from nest.spec import Problem

SOURCE = "benchmarks/one_device/train.py"
HEADER = (
    *("tokens", "micro-batch", "recompute", "kernels", "loss", "weights", "segments", "format"),
    *("step, s", "predicted", "needed, GB", "estimated", "said to fit"),
)


@frozen
class Row:
    """A setting, what was seen of it, and the plan that nest prices for it.

    Attributes:
        setting: what was trained.
        seconds: of a step, the median; None: it ran out of memory.
        used: bytes of the device that were taken in the end, all in all; None: it ran out of memory.
        plan: as `nest evaluate` gives it.
        line: the measurement.
    """

    setting: Setting
    seconds: float | None
    used: float | None
    plan: Mapping[str, Any]
    line: dict[str, Any]

    @property
    def estimate(self) -> float:
        """Bytes the plan is taken to need."""
        return float(sum(self.plan["stages"][0]["memory_breakdown"].values()))

    def cells(self) -> list[str]:
        """The row of the table."""
        setting = self.setting
        passes = f"{setting.micro_batch} x {setting.micro_batches}"
        said = f"{'yes' if self.plan['fits'] else 'no'}, {self.plan['fit_probability']:.0%}"
        seen = ("", "out of memory") if self.seconds is None else (f"{self.seconds:.3f}", f"{_giga(self.used):.1f}")
        return [
            *(f"{setting.sequence}", passes, setting.recompute, setting.kernels, setting.loss, setting.weights),
            *(setting.allocator, setting.precision, seen[0], f"{self.plan['batch_time']:.3f}", seen[1]),
            *(f"{_giga(self.estimate):.1f}", said),
        ]


def rows_of(lines: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], list[Row]]:
    """What the device is, and a row for each setting, in the order of `lines`, which `train` wrote."""
    facts = next(line for line in lines if "device" in line)
    rows = []
    for line in lines:
        if "setting" not in line or "failed" in line:
            continue
        setting = Setting(**line["setting"])
        ran = "seconds" in line
        seconds = statistics.median(line["seconds"]) if ran else None
        # The capacity is what the driver reports; what it keeps for itself is needed, too.
        used = line["used"] + kept(facts) if ran else None
        plan = api.evaluate(structure(setting.problem(), Problem)).to_dict()
        rows.append(Row(setting, seconds, used, plan, _measurement(setting, seconds, used, line, facts)))
    return facts, rows


DRIVER_MEMORY = {"NVIDIA H100 80GB HBM3": 81559 * 2**20}
"""What nvidia-smi reports of a device, of which PyTorch sees less."""


def kept(facts: Mapping[str, Any]) -> float:
    """Bytes that the driver reports and gives to nobody."""
    return float(DRIVER_MEMORY.get(facts["device"], facts["memory"]) - facts["memory"])


def _measurement(
    setting: Setting, seconds: float | None, used: float | None, line: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """A line for `nest calibrate` (docs/reference/measurements.md, Runs)."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    if seconds is None:
        measured: dict[str, Any] = {"fits": False}
    else:
        kind = "all that the device holds: total less free, and what the driver keeps"
        measured = {"batch_time": round(seconds, 6), "peak_memory": used, "memory_kind": kind, "fits": True}
    return {
        "id": f"one-device-{str(setting).replace(' ', '-')}",
        "group": "one_device",
        "family": f"one_device|llama-1b|h100-sxm|{setting.precision}",
        "problem": setting.problem(),
        "measured": measured,
        "source": {"path": SOURCE, "date": facts["date"]},
        "notes": f"{facts['device']}; {versions}; {line['steps']} steps; {setting}",
    }


def page(facts: Mapping[str, Any], rows: Sequence[Row], command: str) -> str:
    """What was seen, as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    ran = [(row.seconds, row.used, row) for row in rows if row.seconds is not None and row.used is not None]
    times = [row.plan["batch_time"] / seconds - 1 for seconds, _, row in ran]
    peaks = [row.estimate / used - 1 for _, used, row in ran]
    refused = sum(not row.plan["fits"] for _, _, row in ran)
    failed = [row for row in rows if row.seconds is None]
    return "\n".join(
        [
            "# A Llama of 1.2 billion parameters on one device",
            "",
            f"`{command}`: {facts['device']}, {versions}, {facts['date']}.",
            "",
            *table(HEADER, [row.cells() for row in rows]),
            "",
            f"{len(ran)} ran: memory estimated {_spread(peaks)}, step time {_spread(times)}; {refused} refused. "
            f"{len(failed)} ran out of memory: {sum(row.plan['fits'] for row in failed)} said to fit.",
            "",
        ]
    )


def _spread(errors: Sequence[float]) -> str:
    """The mean absolute error, and from where to where they lie."""
    mean = statistics.mean(map(abs, errors))
    return f"{mean:.1%} off on average ({min(errors):+.1%} to {max(errors):+.1%})"


def _giga(amount: float | None) -> float:
    return (amount or 0.0) / 1e9


def main(given: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_device", description=__doc__)
    parser.add_argument("seen", type=Path, help="Lines that `python -m benchmarks.one_device.train` wrote.")
    parser.add_argument("--output", type=Path, help="Folder for one_device.md and runs.jsonl (measurements).")
    options = parser.parse_args(given)
    facts, rows = rows_of([json.loads(line) for line in options.seen.read_text(encoding="utf-8").splitlines()])
    told = page(facts, rows, f"python -m benchmarks.one_device {options.seen.name}")
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "one_device.md").write_text(told, encoding="utf-8")
        lines = "".join(json.dumps(row.line) + "\n" for row in rows)
        (options.output / "runs.jsonl").write_text(lines, encoding="utf-8")
    sys.stdout.write(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
