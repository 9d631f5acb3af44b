"""The command: `python -m benchmarks.sweep [--points N] [--seed S] [--output FILE]`."""

import argparse
import random
import sys
from collections.abc import Sequence
from itertools import product
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.sweep.runs import Cost, killed, on_dask, sweep

MODELS = ("llama-3-8b", "llama-2-13b", "falcon-7b", "gemma-2-9b", "gpt-neox-20b")
BANDWIDTHS = ("12.5 GB/s", "25 GB/s", "50 GB/s", "75 GB/s", "100 GB/s", "150 GB/s", "200 GB/s", "400 GB/s")
MEMORIES = ("80 GB", "70 GB", "60 GB", "50 GB", "40 GB")
NODES = (2, 4, 8, 16, 32)
KILLS = 3
WORKERS = 2

BASE: dict[str, Any] = {
    "nest": 1,
    "model": MODELS[0],
    "training": {"global_batch": 256, "sequence_length": 4096},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 8, "link": "nvlink4"},
            {"name": "fabric", "fanout": NODES[0], "bandwidth": BANDWIDTHS[0], "latency": "5 us"},
        ],
    },
}


def write_study(folder: Path, count: int) -> Path:
    """A study of so many of the points, spread evenly over all of them."""
    every = list(product(MODELS, NODES, BANDWIDTHS, MEMORIES))
    names = ("model", "cluster.levels[1].fanout", "cluster.levels[1].bandwidth", "cluster.memory")
    points = [dict(zip(names, every[index * len(every) // count], strict=True)) for index in range(count)]
    (folder / "problem.json").write_text(dumps(BASE), encoding="utf-8")
    study = folder / "study.json"
    study.write_text(dumps({"nest": 1, "base": "problem.json", "points": points}), encoding="utf-8")
    return study


def line(name: str, cost: Cost, count: int, same: bool) -> str:
    """A row of the table."""
    memory = " | ".join(f"{size / 2**20:.0f} MiB" for size in (cost.early, cost.most))
    return f"| {name} | {cost.cpu / count:.2f} | {cost.wall:.0f} | {memory} | {'the same' if same else 'OTHER'} |"


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 1 where two runs differ in a byte."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description="Sweeps by engine, and killed.")
    parser.add_argument("--points", type=int, default=1000, metavar="N", help="of 1,000 (1000)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="says when sweeps are killed (1)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table as Markdown")
    options = parser.parse_args(given)
    count, moments = options.points, random.Random(options.seed)
    local = ["--jobs", str(WORKERS)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        study = write_study(folder, count)
        files = [folder / f"{each}.jsonl" for each in ("local", "dask", "killed")]
        whole = sweep(study, files[0], local)
        print(f"local: {whole}", file=sys.stderr)
        dask = on_dask(folder, WORKERS, lambda chosen: sweep(study, files[1], chosen))
        print(f"dask: {dask}", file=sys.stderr)
        for _ in range(KILLS):
            killed(study, files[2], local, moments.uniform(0.05, 0.3) * whole.wall)
        last = sweep(study, files[2], local)
        same = [each.read_bytes() == files[0].read_bytes() for each in files]
    lines = [
        f"{count} points, {WORKERS} processes.",
        "",
        "| sweep | CPU seconds a point | wall seconds | largest process, first quarter | largest process | rows |",
        "|---|---|---|---|---|---|",
        line("local", whole, count, same[0]),
        line("Dask, scheduler and workers started apart", dask, count, same[1]),
        line(f"what was left after {KILLS} kills", last, count, same[2]),
    ]
    print("\n".join(lines))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
