"""A pytest plugin: processor seconds of each test, with fixtures and processes it starts, as lines of a file.

`pytest -p tests.durations --durations-to FILE` appends `SECONDS<tab>TEST` as tests end, in every process of the run.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", type=Path, required=True, help="file that takes the seconds of each test")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _spent()
    try:
        return (yield)
    finally:
        with item.config.getoption("--durations-to").open("a", encoding="utf-8") as file:
            file.write(f"{_spent() - before:.3f}\t{item.nodeid}\n")


def _spent() -> float:
    """Of this process, of those that it waited for, and of the server of forks with its forks."""
    own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    if not processes._server.cache_info().currsize:
        return own
    ticks = Path(f"/proc/{processes._server().pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:15]
    return own + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
