"""The command: `python -m benchmarks.published.hybrids [--data FOLDER]`.

Nemotron 3 with Megatron Bridge: rows of NVIDIA-NeMo/Megatron-Bridge, `docs/performance-summary.md` (release 26.08) and
`docs/performance-summary-archive.md` (26.04 to 26.06.01), at 067f987df0. Each row counts once, at its newest release.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

import nest
from benchmarks.published.recipes import DATA
from benchmarks.published.report import table

FOLDER = "hf_configs_2026"
MODELS = {
    "Nano": "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json",
    "Super": "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8.json",
}
TOKENS = 8192


@frozen
class Row:
    """A published row; the precision of all is 8 bits."""

    release: str
    model: str
    device: str
    devices: int
    batch: int
    micro_batch: int
    tp: int
    ep: int
    rate: float  # Tokens per second and GPU.


ROWS = (
    Row("26.04.01", "Nano", "h100-sxm", 16, 1024, 1, 1, 8, 14336),
    Row("26.04.01", "Nano", "b200-sxm", 8, 512, 2, 1, 8, 32768),
    Row("26.04.01", "Nano", "b300-sxm", 8, 512, 4, 1, 8, 35840),
    Row("26.06.01", "Nano", "gb200", 8, 512, 2, 1, 8, 34816),
    Row("26.08", "Nano", "gb300", 8, 512, 4, 1, 8, 39936),
    Row("26.04.01", "Super", "b200-sxm", 64, 512, 1, 1, 64, 6400),
    Row("26.04.01", "Super", "b300-sxm", 64, 512, 1, 1, 8, 7296),
    Row("26.08", "Super", "gb200", 64, 512, 1, 2, 64, 7040),
    Row("26.08", "Super", "gb300", 64, 512, 1, 1, 64, 9856),
)


def problem(row: Row, data: Path) -> dict[str, Any]:
    """The row's plan: CUDA graphs of layers and one copy of a token per node, as the recipes have them."""
    link = "nvlink4" if row.device == "h100-sxm" else "nvlink5"
    inside = min(row.devices, 64 if row.device.startswith("gb") else 8)
    levels = [{"name": "domain", "fanout": inside, "link": link}]
    if inside < row.devices:
        levels.append({"name": "fabric", "fanout": row.devices // inside, "link": "infiniband-ndr"})
    training = {"global_batch": row.batch, "sequence_length": TOKENS, "precision": "fp8", "schedule": ["1f1b"]}
    fixed = {"tp": row.tp, "sp": row.tp > 1, "cp": 1, "pp": 1, "ep": row.ep, "dp": row.devices // row.tp}
    return {
        "nest": 1,
        "model": str(data / FOLDER / MODELS[row.model]),
        "training": {**training, "graphs": "layers", "dispatch": "per-node", "mtp": row.model == "Super"},
        "cluster": {"device": row.device, "levels": levels},
        "search": {"target": "none"},
        "fixed": {**fixed, "micro_batch": row.micro_batch, "zero": 1, "recompute": "none"},
    }


def main(given: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published.hybrids", description=__doc__.splitlines()[2])
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help=f"shared data ({DATA})")
    options = parser.parse_args(given)
    lines, inside = [], 0
    for row in ROWS:
        plan = nest.evaluate(problem(row, options.data))
        measured = row.batch * TOKENS / row.devices / row.rate
        low, high = plan.batch_time_range.low, plan.batch_time_range.high
        within = low <= measured <= high
        inside += within
        lines.append(
            [
                f"{row.model}, {row.devices} {row.device}, {row.release}",
                f"{measured:.1f} s",
                f"{plan.batch_time:.1f} s",
                f"{plan.batch_time / measured - 1:+.0%}".replace("%", " %"),
                f"{low:.1f} to {high:.1f} s",
                "yes" if within else "no",
            ]
        )
    header = ("Nemotron 3", "measured", "nest", "error", "80 % likely", "within")
    print("\n".join([*table(header, lines), "", f"Within the range: {inside} of {len(ROWS)}."]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
