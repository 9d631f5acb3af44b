"""Which interconnect for which model: five networks at three bandwidths, 1,024 H100s, five models.

`python examples/which-interconnect/study.py FOLDER` writes study.json, rows.jsonl and page.html to a folder.

All networks join 128 machines of eight GPUs, each GPU with a NIC of the same bandwidth, and are planned on the levels
that `nest topology levels` finds. The rails of a rail-optimised network reach into the machines; the other networks are
between machines, and the eight GPUs of one share what it has. A torus divides that over its six links.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import nest

HERE = Path(__file__).parent
MODELS = ("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "mixtral-8x7b", "deepseek-v3")
BANDWIDTHS = (25, 50, 100)
"""Of a NIC, GB/s: 200, 400 and 800 Gbit/s."""

GPUS = 8
NODE: dict[str, Any] = {"name": "node", "fanout": GPUS, "link": "nvlink4"}


def networks(nic: int) -> dict[str, dict[str, Any]]:
    """The networks, as files of `nest topology` have them; `nic` is the bandwidth of a GPU's NIC, GB/s."""
    machine = {"bandwidth": f"{GPUS * nic} GB/s", "latency": "0.5 us"}
    return {
        "fat tree": {"fat-tree": {"fanout": [16, 8], **machine}},
        "spine-leaf 4:1": {"fat-tree": {"fanout": [16, 8], "oversubscription": [4], **machine}},
        "rail-optimised": {
            "rail-optimised": {
                "nodes": 128,
                "gpus": GPUS,
                "unit": 32,
                "nvlink_bandwidth": "450 GB/s",
                "bandwidth": f"{nic} GB/s",
                "latency": "0.5 us",
            }
        },
        "dragonfly": {"dragonfly": {"p": 4, "a": 4, "h": 2, "groups": 8, **machine}},
        "torus": {"torus": {"shape": [4, 4, 8], **machine, "bandwidth": f"{GPUS * nic / 6} GB/s"}},
    }


def levels(name: str, network: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The levels of a cluster of such machines, innermost first."""
    path = folder / "network.json"
    path.write_text(json.dumps(network))
    command = [sys.executable, "-m", "nest", "topology", "levels", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    path.unlink()
    found: list[dict[str, Any]] = YAML(typ="safe").load(text)["cluster"]["levels"]
    share = GPUS
    if name == "rail-optimised":  # Its innermost level is the machine.
        found, share = found[1:], 1
    return [NODE, *({**level, "bandwidth": level["bandwidth"] / share} for level in found)]


def study(folder: Path) -> dict[str, Any]:
    """Every model on every network."""
    points = []
    for nic in BANDWIDTHS:
        for name, network in networks(nic).items():
            labels = {"label.network": name, "label.nic": f"{nic} GB/s"}
            points.append({**labels, "cluster.levels": levels(name, network, folder)})
    return {
        "nest": 1,
        "base": "problem.yaml",
        "points": [{"model": model, **point} for model in MODELS for point in points],
    }


def table(rows: Path) -> Iterator[str]:
    """How many times as long as on the best network a step takes on each, a line for each model and NIC."""
    names = tuple(networks(BANDWIDTHS[0]))
    yield f"{'model':<16}{'NIC':<10}" + "".join(f"{name:>16}" for name in names)
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    for start in range(0, len(found), len(names)):
        each = found[start : start + len(names)]
        best = min(row["batch_time"] for row in each)
        times = "".join(f"{row['batch_time'] / best:>16.2f}" for row in each)
        yield f"{each[0]['model']:<16}{each[0]['label.nic']:<10}{times}"


def main(folder: Path) -> None:
    """Write the study, solve its points, and draw the page."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "problem.yaml", folder)
    (folder / "study.json").write_text(json.dumps(study(folder), indent=1) + "\n")
    nest.sweep(folder / "study.json", output=folder / "rows.jsonl")
    nest.study_page(folder / "rows.jsonl", output=folder / "page.html", plans=folder / "plans")
    print(*table(folder / "rows.jsonl"), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
