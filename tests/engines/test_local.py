"""Processes of this machine."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from nest.engines.local import Local

for answer in Local(3).beside(str, range(9), str):
    print(answer, flush=True)
    sys.stdin.read()
"""
"""Waits for ever with the first answer, while the processes beside it wait to be asked for more."""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_forked_processes_end_with_the_one_that_started_them() -> None:
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        process.kill()
        # What they print to is closed once all of them have ended.
        assert process.communicate(timeout=60) == ("", None)
