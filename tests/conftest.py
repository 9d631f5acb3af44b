"""Fixtures every test may use."""

import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

# As the command has it, before anything imports NumPy: threads of OpenBLAS take processors from other tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What an earlier run kept is no answer of this one.
os.environ["NEST_CACHE"] = "off"

import pytest
from _pytest.pathlib import import_path
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from tests.seeds import SLOW
from tests.shared_answers import FOLDER, Sharing

# Or each process compiles nest, its tests and their assertions anew: a tenth of the run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

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
        config.pluginmanager.register(Sharing())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send one message of a test to the process that prints, not six, unless it prints how long each part takes."""
    if "PYTEST_XDIST_WORKER" not in os.environ or item.config.option.durations is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_collection(session: pytest.Session) -> None:
    """Import modules of tests from the last on in the second process, so that each of two compiles half of them."""
    if os.environ.get("PYTEST_XDIST_WORKER") != "gw1" or session.config.args != session.config.getini("testpaths"):
        return
    files = sorted(path for folder in session.config.args for path in REPOSITORY.joinpath(folder).rglob("test_*.py"))
    for path in reversed(files):
        with suppress(Exception, pytest.skip.Exception):  # Collecting it says what is wrong.
            import_path(path, mode="importlib", root=session.config.rootpath, consider_namespace_packages=False)


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
