"""The registry: built-ins and plug-ins alike, broken ones disabled."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nest.errors import InputError
from nest.hooks import hook
from nest.hooks.calls import PluginError
from nest.hooks.kinds import KINDS
from nest.hooks.registry import Registry, registry
from planners_tests.instances import FOR_POOLS, PLANNERS


class Toy:
    """A strategy that does nothing."""

    def __init__(self, name: str = "toy", after: Any = ()) -> None:
        self.name = name
        self.after = after

    def degrees(self, block: Any, context: Any) -> tuple[int, ...]:
        return (1,)

    def apply(self, block: Any, degree: int, context: Any) -> Any:
        return block


def module(name: str, *strategies: Any) -> ModuleType:
    made = ModuleType(name)

    @hook
    def nest_strategies() -> list[Any]:
        return list(strategies)

    made.nest_strategies = nest_strategies  # type: ignore[attr-defined]
    return made


def test_built_ins_are_registered_with_their_distribution() -> None:
    known = Registry()
    assert list(known.strategies()) == ["tp", "sp", "cp", "ep", "etp", "batch"]
    schedules = ["1f1b", "gpipe", "nest", "interleaved", "zero-bubble", "zero-bubble-h2", "interleaved-zero-bubble"]
    assert list(known.schedules()) == [*schedules, "zb-v", "dualpipe", "dualpipe-v"]
    assert list(known.collective_models()) == ["alpha-beta"]
    assert list(known.cost_models()) == ["roofline"]
    assert list(known.layer_times()) == ["scheduled", "sequential"]
    assert list(known.planners()) == [*PLANNERS, *FOR_POOLS]
    assert "llama" in known.model_importers()
    assert "catalogue" in known.topology_importers()
    assert known.origin("schedules", "1f1b") == ("nest-planner", version("nest-planner"))
    assert known.distributions() == {"nest-planner": version("nest-planner")}
    assert known.warnings == ()


def test_every_kind_can_be_listed() -> None:
    known = Registry()
    for kind in KINDS:
        for name, item in getattr(known, kind)().items():
            assert item.name == name


def test_the_registry_is_shared_and_extra_modules_get_one_of_their_own() -> None:
    assert registry() is registry()
    assert "toy" in registry(extra=[module("extra", Toy())]).strategies()
    assert "toy" not in registry().strategies()


def test_what_was_made_last_is_made_anew_for_another_key_or_without_an_object() -> None:
    known, made = registry(extra=[module("toys", Toy())]), list[int]()

    def make() -> int:
        made.append(len(made))
        return made[-1]

    assert [known.memoized("model", key, make) for key in ("a", "a", "b", "b")] == [0, 0, 1, 1]
    assert known.memoized("other", "b", make) == 2
    assert "toy" in known.strategies()
    known.disable(PluginError("strategies", "toy", "is broken"))
    assert known.memoized("model", "b", make) == 3


def test_what_was_used_on_the_way_contributes_to_one_run() -> None:
    known = registry(extra=[module("used", Toy()), module("named", Toy("other")), module("idle", Toy("third"))])
    known.strategies()

    def planning() -> dict[str, str]:
        known.count_use("strategies", "toy")
        return known.contributing([("strategies", "other")])

    own = {"nest-planner": version("nest-planner")}
    assert known.run(planning) == {"named": "", **own, "used": ""}
    assert known.run(lambda: known.contributing([])) == own


def test_an_object_can_be_a_plug_in() -> None:
    class Bundle:
        @hook
        def nest_strategies(self) -> list[Any]:
            return [Toy()]

    assert registry(extra=[Bundle()]).origin("strategies", "toy") == ("Bundle", "")


def test_an_object_that_cannot_be_hashed_is_set_aside() -> None:
    known = registry(extra=[SimpleNamespace(), module("fine", Toy())])
    assert "toy" in known.strategies()
    (warning,) = known.warnings
    assert "SimpleNamespace is disabled" in warning


def test_strategies_come_behind_those_they_name() -> None:
    known = registry(extra=[module("a", Toy("last", ("middle", "sp")), Toy("first"), Toy("middle", ["tp", "nobody"]))])
    order = list(known.strategies())
    assert order.index("last") > order.index("middle") > order.index("tp")
    assert order.index("last") > order.index("sp")
    assert set(order) == {"tp", "sp", "cp", "ep", "etp", "batch", "last", "first", "middle"}


def test_a_cycle_names_the_distributions() -> None:
    known = registry(extra=[module("one", Toy("x", ("y",))), module("two", Toy("y", ("x",)))])
    with pytest.raises(InputError, match=r"x \(one\), y \(two\)"):
        known.strategies()


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (SimpleNamespace(name="half"), "lacks after, apply, degrees"),
        (Toy(""), "name is not a word"),
        (Toy(3), "name is not a word"),  # type: ignore[arg-type]
        (Toy("words", "tp"), "not a tuple of names"),
        (object(), "lacks after, apply, degrees, name"),
    ],
)
def test_a_broken_object_is_set_aside(item: Any, told: str) -> None:
    known = registry(extra=[module("broken", item, Toy("whole"))])
    assert set(known.strategies()) == {"tp", "sp", "cp", "ep", "etp", "batch", "whole"}
    (warning,) = known.warnings
    assert "plug-in broken is disabled" in warning
    assert told in warning


def test_a_property_that_raises_is_set_aside() -> None:
    class Nasty(Toy):
        @property
        def apply(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no\nway")

    known = registry(extra=[module("nasty", Nasty())])
    assert set(known.strategies()) == {"tp", "sp", "cp", "ep", "etp", "batch"}
    (warning,) = known.warnings
    assert "RuntimeError: no way" in warning
    assert "\n" not in warning


def test_a_clash_names_both_and_keeps_the_first() -> None:
    mine = Toy("tp")
    known = registry(extra=[module("imposter", mine)])
    assert known.strategies()["tp"] is not mine
    (warning,) = known.warnings
    assert "imposter" in warning
    assert "nest-planner" in warning


def test_a_misspelt_hook_is_pointed_out() -> None:
    slip = ModuleType("slip")

    @hook
    def nest_strategy() -> list[Any]:
        return [Toy()]

    slip.nest_strategy = nest_strategy  # type: ignore[attr-defined]
    known = registry(extra=[slip])
    assert known.warnings == ("plug-in slip: there is no hook nest_strategy; did it mean nest_strategies?",)


def install(folder: Path, distribution: str, name: str, text: str) -> None:
    """Put a distribution with one entry point of the group `nest` into `folder`."""
    (folder / f"{name}.py").write_text(text)
    information = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    (information / "entry_points.txt").write_text(f"[nest]\n{name} = {name}\n")


TOY = """
from nest.hooks import hook
from nest.hooks.calls import PluginError

class Toy:
    name = "{name}"
    after = ()
    def degrees(self, block, context):
        return (1,)
    def apply(self, block, degree, context):
        return block

@hook
def nest_strategies():
    return [Toy()]

@hook
def nest_commands(app):
    app.seen.append("{name}")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("toy_"):
            del sys.modules[name]


def test_installed_distributions_join_in_the_order_of_their_names(site: Path) -> None:
    install(site, "toy-b", "toy_b", TOY.format(name="b"))
    install(site, "toy-a", "toy_a", TOY.format(name="a"))
    known = Registry()
    assert list(known.strategies()) == ["tp", "sp", "cp", "ep", "etp", "batch", "a", "b"]
    assert known.origin("strategies", "a") == ("toy-a", "1.2")
    assert known.distributions()["toy-b"] == "1.2"


@pytest.mark.parametrize("written", ["toy-off", "Toy_Off", "toy-off, toy.off "])
def test_a_distribution_can_be_switched_off(site: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    install(site, "toy-off", "toy_off", "raise RuntimeError('loaded all the same')\n")
    monkeypatch.setenv("NEST_DISABLED_PLUGINS", written)
    known = Registry()
    assert list(known.strategies()) == ["tp", "sp", "cp", "ep", "etp", "batch"]
    assert known.warnings == ()


def test_plug_ins_add_commands_without_loading_built_ins(site: Path) -> None:
    install(site, "toy-command", "toy_command", TOY.format(name="command"))
    ((plugin, app, names),) = Registry().commands(lambda: SimpleNamespace(seen=[]), lambda made: tuple(made.seen))
    assert plugin.origin == "toy-command 1.2"
    assert app.seen == ["command"]
    assert names == ("command",)


@pytest.mark.longer
def test_importing_the_registry_stays_light() -> None:
    script = (
        "import sys, types\n"
        "from nest.hooks.registry import Registry\n"
        "list(Registry().commands(types.SimpleNamespace, lambda made: ()))\n"
        "heavy = {'numpy', 'cattrs', 'ruamel', 'networkx', 'nest.models', 'nest.instance'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
