"""Bundled distributions: found by nest's own entry points, loaded when they are first used, absent without harm."""

import subprocess
import sys
from pathlib import Path

import pytest

import nest
from nest.hooks import bundled
from nest.hooks.registry import Registry
from nest.testing import check
from nest_testing.public_names import CHECK, private_imports

LAYERS = "import nest, sys; print(*sorted(name for name in sys.modules if name.startswith('nest_')))"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of the core alone."""
    monkeypatch.setattr(bundled, "_own_entry_points", lambda: "")
    return Registry()


def test_verbs_of_bundled_distributions_are_verbs_of_nest() -> None:
    assert nest.sweep.__module__ == "nest_studies.verbs"
    assert nest.report_page.__module__ == "nest_page.verbs"
    with pytest.raises(AttributeError, match="no attribute 'swept'"):
        nest.swept  # noqa: B018


def test_import_nest_loads_none_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", LAYERS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_core_alone_has_no_exporters(alone: Registry) -> None:
    assert not alone.exporters()
    assert not alone.planners()
    assert [*alone.topology_importers()][:2] == ["catalogue", "torus"]


def test_without_exporters_there_is_no_target(alone: Registry) -> None:
    written = {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 64, "ffn": 256, "heads": 8, "vocab": 1024}},
        "training": {"global_batch": 4, "sequence_length": 128},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 2, "bandwidth": 1e9}]},
    }
    told: list[str] = []
    plan = nest.solve(written, plugins=alone, message=told.append)
    assert plan.status in ("optimal", "near-optimal")
    assert "No target: no exporter is installed." in told


def test_a_copy_of_a_bundled_distribution_is_not_registered_twice() -> None:
    assert "nest_frameworks" in bundled.bundled_modules()
    assert all((Path(folder) / "__init__.py").is_file() for folder in bundled.bundled_folders())


def test_private_names_are_told() -> None:
    lines = [
        "from nest.spec import Problem",
        "from nest import hooks",
        "import nest.solve.dp",
        "from nest.plan.evaluate import evaluate",
        "from nest.graph import *",
        "from nest.plan import *",
    ]
    assert [line.split(", which")[0] for line in private_imports("\n".join(lines))] == [
        "line 3 imports nest.solve.dp",
        "line 4 imports nest.plan.evaluate.evaluate",
        "line 6 imports nest.plan.*",
    ]


def test_the_kit_fails_a_plug_in_that_imports_a_private_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (
        ("sound_plugin", "from nest.hooks.protocols import Pass"),
        ("prying_plugin", "import nest.solve"),
    ):
        (tmp_path / f"{name}.py").write_text(f"{line}\n\n\nclass Stack:\n    name = 'one'\n")
        monkeypatch.syspath_prepend(tmp_path)
        module = __import__(name)
        finding = next(each for each in check(module.Stack(), "stacks") if each.check == CHECK)
        assert finding.passed == (name == "sound_plugin"), finding
    assert "prying_plugin.py: line 1 imports nest.solve, which is private" in finding.told
