"""A pytest plugin: `--fault NAME` plants a fault before anything of nest is imported."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

import pytest

from tests.mutants.faults import Fault, named


class _Loader(SourceFileLoader):
    """Compiles the module with the fault, and keeps nothing of it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.module, str(fault.path))
        self.fault = fault
        self.used = False

    def get_code(self, fullname: str) -> CodeType:
        self.used = True
        return compile(self.fault.source(), self.path, "exec")


class _Planted:
    """Finds the module with the fault in place of the one without."""

    def __init__(self, fault: Fault) -> None:
        self.loader = _Loader(fault)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.loader.fault.module:
            return None
        return spec_from_file_location(name, self.loader.path, loader=self.loader)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """No test can see what was never imported."""
        if not self.loader.used:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault", required=True, help="name of the fault to plant (tests/mutants)")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any of them imports nest."""
    fault = named(early_config.known_args_namespace.fault)
    package = fault.module.partition(".")[0]
    if {"nest", package} & {name.partition(".")[0] for name in sys.modules}:
        raise pytest.UsageError(f"nest or {package} is imported already")
    planted = _Planted(fault)
    sys.meta_path.insert(0, planted)
    early_config.pluginmanager.register(planted)
