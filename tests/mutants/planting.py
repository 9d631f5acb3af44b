"""Puts a fault in the place of its module, for all that this process imports from then on."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from tests.mutants.faults import Fault, named

PLANTED = "NEST_PLANTED_FAULT"
"""The environment variable that tells the server of commands (`tests.processes`) which fault is planted."""


class _Loader(SourceFileLoader):
    """Compiles the module with the fault, and keeps nothing of it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.module, str(fault.path))
        self.fault = fault
        self.used = False

    def get_code(self, fullname: str) -> CodeType:
        self.used = True
        return compile(self.fault.source(), self.path, "exec")


class Planted:
    """Finds the module with the fault in place of the one without."""

    def __init__(self, fault: Fault) -> None:
        self.loader = _Loader(fault)

    @property
    def used(self) -> bool:
        """Whether the module was imported."""
        return self.loader.used

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.loader.fault.module:
            return None
        return spec_from_file_location(name, self.loader.path, loader=self.loader)


def plant(name: str) -> Planted:
    """Plant the fault of that name, here and in the processes that tests run commands in.

    Raises:
        ValueError: its package is imported already.
    """
    fault = named(name)
    package = fault.module.partition(".")[0]
    if {"nest", package} & {each.partition(".")[0] for each in sys.modules}:
        raise ValueError(f"nest or {package} is imported already")
    planted = Planted(fault)
    sys.meta_path.insert(0, planted)
    os.environ[PLANTED] = name
    return planted
