"""A pytest plugin: `--fault NAME` plants a fault before anything of nest is imported."""

import pytest

from tests import processes
from tests.mutants.planting import Planted, plant


class _Watch:
    """No test can see what was never imported, here or by the server of commands, which imports all there is."""

    def __init__(self, planted: Planted) -> None:
        self.planted = planted

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.planted.used and not processes.is_started():
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault", required=True, help="name of the fault to plant (tests/mutants)")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any of them imports nest."""
    early_config.pluginmanager.register(_Watch(plant(early_config.known_args_namespace.fault)))
