"""Fixtures every test may use."""

import gc
import os
import sys
from pathlib import Path

# As the command has it, before anything imports NumPy: threads of OpenBLAS take processors from other tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What an earlier run kept is no answer of this one.
os.environ["NEST_CACHE"] = "off"

import pytest
from hypothesis import Phase, settings

from tests.seeds import SLOW
from tests.shared_answers import FOLDER, Sharing

# How long an example takes depends on the machine and on what is loaded when it runs first. The default run draws the
# same examples every time; `HYPOTHESIS_PROFILE=search pytest` draws new ones. Where a fault is planted (tests/mutants),
# any example will do, however large.
EXAMPLES = 16
settings.register_profile("nest", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.register_profile(
    "planted", deadline=None, derandomize=True, max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate]
)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "nest"))

# Collected tests and modules stay to the end: to look through them again and again for garbage took a fifth of the run.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    os.environ[SLOW] = "" if "not slow" in config.option.markexpr else "1"
    if getattr(config.option, "fault", None):
        os.environ[FOLDER] = ""  # Forks of another process have no fault.
    else:
        config.pluginmanager.register(Sharing(config))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 50, 100)


def pytest_runtest_setup() -> None:
    """No test begins with a model that another asked about."""
    hooks = sys.modules.get("nest.hooks.registry")
    for strict in () if hooks is None else (False, True):
        hooks.registry(strict=strict).take("model asked about last")


REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared test data that lies beside the repository; tests that need it skip where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the shared test data is not at {folder}")
    return folder
