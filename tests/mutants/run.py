"""Runs tests with a fault planted: `python -m tests.mutants.run NAME [TEST ...]` shows which test catches it."""

import os
import subprocess
import sys

from tests.mutants.faults import REPOSITORY, Fault, named


def run(fault: Fault, *tests: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Those tests, up to the first that fails, in a process of their own.

    Raises:
        subprocess.TimeoutExpired: they take longer than `timeout` seconds.
    """
    options = ["-n", "0", "-x", "--tb=line", "-p", "no:cacheprovider", "-p", "tests.mutants.plant"]
    # What a pytest around this one tells its workers is not for this one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--fault", fault.name, *tests],
        cwd=REPOSITORY,
        env={**clean, "HYPOTHESIS_PROFILE": "planted"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


if __name__ == "__main__":
    _, name, *paths = sys.argv
    chosen = named(name)
    done = run(chosen, *(paths or chosen.catching))
    print(done.stdout, end="")
    sys.exit(done.returncode)
