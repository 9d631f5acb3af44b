"""Where and with what a benchmark ran."""

import os
import platform
import subprocess
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.scale.processes import REPOSITORY


def facts() -> dict[str, str]:
    """Date, versions, processor and load, by name."""
    return {
        "date": date.today().isoformat(),
        "nest": f"{_version('nest-planner')}, commit {_commit()}",
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit checked out, with what is changed since."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
