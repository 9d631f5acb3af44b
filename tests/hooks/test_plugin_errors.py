"""Plug-in errors: each is named in one line and disabled, and the plan is the one without it."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
from attrs import evolve

import nest
from nest import api
from nest.errors import InputError, InternalError
from nest.graph import Axis, Block, Collective, Communication
from nest.hooks import hook, loader
from nest.hooks.calls import PluginError
from nest.hooks.protocols import MeasuredOperator, OperatorCost
from nest.hooks.registry import Registry, registry
from nest.hooks.unchanged import Kept
from nest.instance import Level
from nest.spec import PlanDocument

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 2, "hidden": 256, "ffn": 1024, "heads": 4, "vocab": 1000}},
    "training": {"global_batch": 8, "sequence_length": 128, "micro_batch": [1, 2], "schedule": ["1f1b"]},
    "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 4, "bandwidth": "300 GB/s", "latency": "1 us"}]},
    "search": {"target": "none"},
}


@pytest.fixture(autouse=True)
def _short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a plug-in that sleeps; on a busy machine others may take a while."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if parameters.get("does") is sleeps:
        monkeypatch.setenv("NEST_PLUGIN_SECONDS", "0.5")


class Strategy:
    """A sound strategy, of which tests break one member: two ranks that do the same."""

    name = "foo"
    after = ()

    def degrees(self, block: Any, context: Any) -> Any:
        return (1, 2)

    def apply(self, block: Any, degree: int, context: Any) -> Any:
        return block.with_axis("foo", degree).applied("foo", degree, block.graph)


class Costs:
    name = "foo"

    def price(self, operator: Any, device: Any, training: Any) -> Any:
        return OperatorCost(1e-3, 1e-3)


class Collectives:
    name = "foo"

    def time(self, kind: str, bytes: float, shape: Any, levels: Any) -> Any:  # noqa: A002
        return 1e-3


class LayerTimes:
    name = "foo"

    def seconds(self, durations: Any, engines: Any, precedence: Any) -> Any:
        return 2 * sum(durations)


class Schedule:
    name = "foo"

    def weights(self, micro_batches: int, stages: int) -> Any:
        return (micro_batches, 0.0)  # faster than any other with several stages

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> Any:
        return micro_batches


class ModelImporter:
    name = "foo"

    def accepts(self, source: Any) -> Any:
        return False

    def load(self, source: Any, training: Any) -> Any:
        raise AssertionError


class TopologyImporter:
    name = "foo"

    def accepts(self, source: Any) -> Any:
        return source == "foo"

    def load(self, source: Any) -> Any:
        return None


OF_KIND: dict[str, type[Any]] = {
    "strategies": Strategy,
    "cost_models": Costs,
    "collective_models": Collectives,
    "layer_times": LayerTimes,
    "schedules": Schedule,
    "model_importers": ModelImporter,
    "topology_importers": TopologyImporter,
}

NAMING: dict[str, dict[str, Any]] = {
    "strategies": {},
    "cost_models": {"costs": "foo"},
    "collective_models": {"collectives": "foo"},
    "layer_times": {"layer_times": "foo"},
    "schedules": {"training": {**PROBLEM["training"], "schedule": ["foo", "1f1b"]}},
    "model_importers": {},
}
"""What makes a problem use the object called `foo`."""


def offering(kind: str, *items: Any) -> ModuleType:
    """A plug-in with objects of one kind."""
    made = ModuleType("faulty")

    def offer() -> list[Any]:
        return list(items)

    setattr(made, f"nest_{kind}", hook(offer))
    offer.__name__ = f"nest_{kind}"
    return made


def broken(kind: str, member: str, does: Any) -> Any:
    """An object of `kind` whose `member` is, or does, something else."""
    return type("Broken", (OF_KIND[kind],), {member: does})()


def decisions(plan: PlanDocument) -> dict[str, Any]:
    """A plan without the problem as written."""
    return {key: value for key, value in plan.to_dict().items() if key != "problem"}


def returns(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def raises(error: BaseException) -> Callable[..., Any]:
    def raising(*_: Any) -> Any:
        raise error

    return raising


def sleeps(*_: Any) -> Any:
    time.sleep(60)


def applies(change: Callable[[Block], Any]) -> Callable[..., Any]:
    """An `apply` that spoils what the sound one returns."""
    return lambda self, block, degree, context: change(Strategy.apply(self, block, degree, context))


def first_operator(**keys: Any) -> Callable[[Block], Block]:
    """The block with something else about its first operator."""

    def change(block: Block) -> Block:
        first, *others = block.graph.operators
        return evolve(block, graph=evolve(block.graph, operators=(evolve(first, **keys), *others)))

    return change


def without_last_operator_of_first_layer(block: Block) -> Block:
    last = block.graph.by_layer[0][-1]
    return evolve(block, graph=block.graph.map_operators(lambda each: () if each is last else (each,)))


CALL = Communication("broadcast", 1.0, "foo")

FAULTS: list[tuple[str, str, Any, str]] = [
    ("strategies", "degrees", raises(ValueError("no\nway")), "raised ValueError: no way in degrees"),
    ("strategies", "degrees", raises(SystemExit(3)), "raised SystemExit: 3 in degrees"),
    ("strategies", "degrees", raises(KeyboardInterrupt()), "raised KeyboardInterrupt in degrees"),
    ("strategies", "degrees", returns((1, 0)), "a degree is 0"),
    ("strategies", "degrees", returns((1, 2.0)), "a degree is 2.0"),
    ("strategies", "degrees", returns(None), "None is no sequence"),
    ("strategies", "degrees", sleeps, "timed out after 0.5 s in degrees"),
    ("strategies", "by_default", "yes", "'yes' is neither true nor false"),
    ("strategies", "apply", raises(KeyError("heads")), "raised KeyError: 'heads' in apply"),
    ("strategies", "apply", returns(None), "None is no Block"),
    ("strategies", "apply", applies(lambda block: evolve(block, samples=2 * block.samples)), "samples in place of 1"),
    ("strategies", "apply", applies(lambda block: evolve(block, samples=0)), "the number of samples is 0"),
    ("strategies", "apply", applies(lambda block: evolve(block, axes=(Axis("foo", 0),))), "degree of an axis is 0"),
    ("strategies", "apply", applies(lambda block: evolve(block, axes=(*block.axes, Axis("foo", 2)))), "the same name"),
    ("strategies", "apply", applies(lambda block: evolve(block, degrees=())), "do not end with ('foo', 2)"),
    ("strategies", "apply", applies(lambda block: evolve(block, replicated=(("dense", "bar"),))), "'bar'"),
    ("strategies", "apply", applies(lambda block: evolve(block, graph=None)), "None is no OperatorGraph"),
    (
        "strategies",
        "apply",
        applies(lambda block: evolve(block, graph=evolve(block.graph, layers=(*block.graph.layers, "more")))),
        "other layers",
    ),
    ("strategies", "apply", applies(without_last_operator_of_first_layer), "which leaves its layer, is not made"),
    ("strategies", "apply", applies(first_operator(space=(("batch", 0.5),))), "axis 'batch' of operator"),
    ("strategies", "apply", applies(first_operator(flops_per_point=float("nan"))), "a FLOP count of operator"),
    ("strategies", "apply", applies(first_operator(saves=("nobody has it",))), "'nobody has it' is saved"),
    ("strategies", "apply", applies(first_operator(collective=Collective((CALL,)))), "is a 'broadcast'"),
    (
        "strategies",
        "apply",
        applies(first_operator(collective=Collective((Communication("all_reduce", 1.0, "nobody's"),)))),
        "no axis of the block",
    ),
    ("strategies", "apply", applies(first_operator(outputs=None)), "raised TypeError"),
    ("strategies", "apply", applies(first_operator(split=(1,))), "is no word"),
    ("cost_models", "price", raises(RuntimeError("no table")), "raised RuntimeError: no table in price"),
    ("cost_models", "price", returns(OperatorCost(float("nan"), 0.0)), "forward is nan"),
    ("cost_models", "price", returns(OperatorCost(0.0, 0.0, update=-1.0)), "update is -1.0"),
    ("cost_models", "price", returns(OperatorCost(0.0, 0.0, measured=1)), "1 is no MeasuredOperator"),  # type: ignore[arg-type]
    (
        "cost_models",
        "price",
        returns(OperatorCost(0.0, 0.0, measured=MeasuredOperator((("rows", 8),), (("rows", 8.5),)))),  # type: ignore[arg-type]
        "the size rows is 8.5",
    ),
    ("cost_models", "price", sleeps, "timed out after 0.5 s in price"),
    ("collective_models", "time", returns(float("nan")), "the time is nan"),
    ("collective_models", "time", raises(OSError("gone")), "raised OSError: gone in time"),
    ("collective_models", "times", returns(numpy.zeros(1)), "no array of"),
    ("collective_models", "times", lambda self, kind, sizes, *_: numpy.full(sizes.shape, numpy.nan), "a time is nan"),
    ("collective_models", "time", lambda self, kind, size, *_: 1.0 / (1.0 + size), "bytes take"),
    ("collective_models", "times", lambda self, kind, sizes, *_: 1.0 / (1.0 + sizes), "bytes take"),
    ("layer_times", "seconds", returns(float("nan")), "the time is nan"),
    ("layer_times", "seconds", returns(1e300), "the time is 1e+300"),
    ("schedules", "weights", returns((1.0, float("nan"))), "a weight is nan"),
    ("schedules", "weights", returns((1.0,)), "(1.0,) is no pair of weights"),
    ("schedules", "weights", lambda self, m, s: (m / 2, 0.0), "which has 8 micro-batches to run"),
    ("schedules", "weights", lambda self, m, s: (0.0, m, m, -0.5), "which has "),
    ("schedules", "in_flight", returns(0), "from in_flight: 0 micro-batches are in flight"),
    ("schedules", "chunks", 0, "the number of chunks is 0"),
    ("model_importers", "accepts", raises(AttributeError("x")), "raised AttributeError: x in accepts"),
    ("model_importers", "accepts", returns("llama"), "'llama' is neither true nor false"),
    ("model_importers", "accepts", returns(True), "accepts model, as does the importer 'transformer'"),
]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What is planned without any plug-in."""
    return decisions(api.solve(PROBLEM, plugins=Registry()))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("kind", "member", "does", "told"),
    [*FAULTS[::2], *(pytest.param(*each, marks=pytest.mark.slow) for each in FAULTS[1::2])],
)
def test_an_object_that_fails_is_named_once_and_the_plan_is_the_one_without_it(
    kind: str, member: str, does: Any, told: str, alone: dict[str, Any]
) -> None:
    known = registry([offering(kind, broken(kind, member, does))])
    plan = api.solve({**PROBLEM, **NAMING[kind]}, plugins=known)
    assert decisions(plan) == alone
    (warning,) = known.warnings
    assert warning.startswith("plug-in faulty is disabled: its ")
    assert "'foo'" in warning
    assert told in warning
    assert "\n" not in warning
    assert api.check(plan, plugins=known).ok


@pytest.mark.slow
def test_what_nest_brings_passes_the_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sound object is refused: the same plans come out with every built-in guarded as a plug-in is."""
    repository = Path(nest.__file__).resolve().parent.parent
    problems = [repository / "examples" / name / "problem.yaml" for name in ("llama-2-7b-on-tpu-v4-torus",)]
    mixture = {"layers": 2, "hidden": 256, "ffn": 512, "heads": 4, "vocab": 1000, "experts": 4, "top_k": 2}
    asked: list[Any] = [*problems, PROBLEM, {**PROBLEM, "model": {"transformer": mixture}, "search": {"mixed": True}}]
    plain = [api.solve(problem, plugins=Registry()).to_dict() for problem in asked]
    built_in = loader.built_in_plugin
    monkeypatch.setattr("nest.hooks.registry.built_in_plugin", lambda hook: built_in(hook)._replace(built_in=False))
    guarded = Registry()
    assert [api.solve(problem, plugins=guarded).to_dict() for problem in asked] == plain
    assert guarded.warnings == ()


def test_what_nest_brings_is_not_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Registry()
    costs = type(known.cost_models()["roofline"])
    monkeypatch.setattr(costs, "price", raises(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        api.solve(PROBLEM, plugins=known)
    assert known.warnings == ()


@pytest.mark.longer
@pytest.mark.parametrize(
    "asked",
    [
        {"constraints": ["foo <= 2"]},
        {"constraints": ["foo == 1 or tp == 1"]},
        {"fixed": {"foo": 2}},
        {"strategies": {"foo": [2]}},
        {"strategies": {"foo": [True]}, "search": {"mixed": True}},
    ],
)
def test_an_absent_strategy_has_degree_1(asked: dict[str, Any]) -> None:
    known = registry([offering("strategies", broken("strategies", "apply", returns(None)))])
    plan = api.solve({**PROBLEM, **asked}, plugins=known)
    expected = api.solve({**PROBLEM, "search": asked.get("search", PROBLEM["search"])}, plugins=Registry())
    assert (plan.status, plan.batch_time) == (expected.status, expected.batch_time)
    assert len(known.warnings) == 1
    assert known.warnings[0].endswith("; its degree is 1")
    assert api.check(plan, plugins=known).ok


def test_a_constraint_an_absent_strategy_cannot_meet_leaves_no_plan() -> None:
    known = registry([offering("strategies", broken("strategies", "apply", returns(None)))])
    assert api.solve({**PROBLEM, "constraints": ["foo == 2"]}, plugins=known).status == "infeasible"


@pytest.mark.longer
@pytest.mark.parametrize(
    ("written", "used"), [(["foo"], "1f1b"), (["foo", "gpipe"], "gpipe"), (["nest", "foo"], "nest")]
)
def test_other_schedules_stand_in(written: list[str], used: str) -> None:
    known = registry([offering("schedules", broken("schedules", "weights", returns(None)))])
    asked = {**PROBLEM, "training": {**PROBLEM["training"], "schedule": written}}
    assert api.solve(asked, plugins=known).schedule == used
    assert api.evaluate(asked, plugins=known).schedule == used
    assert api.evaluate(asked, fix={"schedule": "foo"}, plugins=known).schedule == used


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["cost_models", "layer_times", "schedules", "strategies"])
def test_evaluating_goes_on_without(kind: str) -> None:
    member = {"cost_models": "price", "layer_times": "seconds", "schedules": "weights", "strategies": "degrees"}[kind]
    known = registry([offering(kind, broken(kind, member, raises(ValueError("no"))))])
    plan = api.evaluate({**PROBLEM, **NAMING[kind]}, plugins=known)
    assert plan.batch_time == api.evaluate(PROBLEM, plugins=Registry()).batch_time
    assert len(known.warnings) == 1


@pytest.mark.longer
def test_a_solver_and_a_plan_that_are_told_different_things(alone: dict[str, Any]) -> None:
    """A model of collectives that times many at once otherwise than one by one."""

    def times(self: Any, kind: Any, sizes: Any, *_: Any) -> Any:
        return numpy.full(sizes.shape, 2e-3)

    model = broken("collective_models", "times", times)
    type(model).time = returns(1e-3)
    known = registry([offering("collective_models", model)])
    plan = api.solve({**PROBLEM, "collectives": "foo", "constraints": ["dp == 4"]}, plugins=known)
    assert plan.batch_time == api.solve({**PROBLEM, "constraints": ["dp == 4"]}, plugins=Registry()).batch_time
    (warning,) = known.warnings
    assert "told the solver something else" in warning


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (returns(None), "None is no Cluster"),
        (raises(ValueError("x")), "raised ValueError: x in load"),
        (sleeps, "0.5 s"),
    ],
)
def test_a_network_nobody_else_can_read_is_an_error_that_names_it(does: Any, told: str) -> None:
    known = registry([offering("topology_importers", broken("topology_importers", "load", does))])
    with pytest.raises(InputError, match="no importer knows 'foo'"):
        api.solve({**PROBLEM, "cluster": {"device": "a100-sxm-80g", "topology": "foo"}}, plugins=known)
    (warning,) = known.warnings
    assert told in warning


def test_an_importer_may_refuse_what_it_reads() -> None:
    known = registry(
        [offering("topology_importers", broken("topology_importers", "load", raises(InputError("bent."))))]
    )
    with pytest.raises(InputError, match="bent"):
        api.solve({**PROBLEM, "cluster": {"device": "a100-sxm-80g", "topology": "foo"}}, plugins=known)
    assert known.warnings == ()


def test_files_of_an_exporter_lie_in_a_folder() -> None:
    class Exporter:
        name = "foo"

        def export(self, plan: Any) -> Any:
            return plan

    known = registry([offering("exporters", Exporter())])
    export = known.exporters()["foo"].export
    assert export({"a/b.json": "{}"}) == {"a/b.json": "{}"}  # type: ignore[arg-type]
    for written in ({"../b": ""}, {"/b": ""}, {"C:\\b": ""}, {"b": b""}, {"": ""}, ["b"]):
        with pytest.raises(PluginError, match="returned an invalid result from export"):
            export(written)  # type: ignore[arg-type]


@pytest.mark.longer
def test_all_calls_together_may_not_take_too_long(monkeypatch: pytest.MonkeyPatch, alone: dict[str, Any]) -> None:
    monkeypatch.setattr("nest.hooks.calls.TOTAL_SHARE", 0.1)

    def price(self: Any, *_: Any) -> Any:
        time.sleep(0.2)
        return OperatorCost(0.0, 0.0)

    known = registry([offering("cost_models", broken("cost_models", "price", price))])
    assert decisions(api.solve({**PROBLEM, "costs": "foo"}, plugins=known)) == alone
    (warning,) = known.warnings
    assert "used up the 0.5 s of all calls into a plug-in in price" in warning


@pytest.mark.parametrize("kind", ["strategies", "cost_models"])
def test_a_strict_registry_makes_a_fault_an_error(kind: str) -> None:
    member = {"strategies": "degrees", "cost_models": "price"}[kind]
    plugin = offering(kind, broken(kind, member, raises(ValueError("boom"))))
    with pytest.raises(InputError, match=r"plug-in error in faulty, .*raised ValueError: boom in \w+\.$"):
        api.solve({**PROBLEM, **NAMING[kind]}, plugins=Registry([plugin], strict=True))


def test_a_strict_registry_makes_a_fault_at_the_start_an_error() -> None:
    with pytest.raises(InputError, match="plug-in error in SimpleNamespace"):
        Registry([SimpleNamespace()], strict=True)
    clash = broken("strategies", "name", "tp")
    with pytest.raises(InputError, match="has registered 'tp'") as caught:
        api.solve(PROBLEM, plugins=Registry([offering("strategies", clash)], strict=True))
    assert "\n" not in str(caught.value)


@pytest.mark.longer
def test_a_hook_that_sleeps_is_asked_no_more(monkeypatch: pytest.MonkeyPatch, alone: dict[str, Any]) -> None:
    monkeypatch.setenv("NEST_PLUGIN_SECONDS", "0.5")
    module = offering("strategies", Strategy())
    module.nest_strategies = hook(sleeps)  # type: ignore[attr-defined]
    module.nest_schedules = hook(sleeps)  # type: ignore[attr-defined]
    known = registry([module])
    assert decisions(api.solve(PROBLEM, plugins=known)) == alone
    assert known.warnings == ("plug-in faulty is disabled: its hook nest_schedules timed out after 0.5 s",)


@pytest.mark.longer
def test_what_computes_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch, alone: dict[str, Any]) -> None:
    monkeypatch.setenv("NEST_PLUGIN_SECONDS", "0.5")
    threads = []

    def degrees(*_: Any) -> Any:
        threads.append(threading.current_thread())
        while True:
            pass

    known = registry([offering("strategies", broken("strategies", "degrees", degrees))])
    assert decisions(api.solve(PROBLEM, plugins=known)) == alone
    (thread,) = threads
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.longer
def test_threads_may_plan_at_the_same_time() -> None:
    known = registry([offering("cost_models", Costs())])
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda _: api.solve({**PROBLEM, "costs": "foo"}, plugins=known), range(4)))
    assert len({plan.batch_time for plan in plans}) == 1
    assert known.warnings == ()


@pytest.mark.longer
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_its_own_threads() -> None:
    known = registry([offering("cost_models", Costs())])
    asked = {**PROBLEM, "costs": "foo"}
    api.solve(asked, plugins=known)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            api.solve(asked, plugins=known)
            code = len(known.warnings)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_hook_that_returns_nothing_is_an_error() -> None:
    plugin = ModuleType("faulty")

    @hook
    def nest_strategies() -> None:
        return None

    plugin.nest_strategies = nest_strategies  # type: ignore[attr-defined]
    known = Registry([plugin])
    known.strategies()
    assert [*known.warnings] == [
        "plug-in faulty is disabled: its hook nest_strategies returned an invalid result: None is no list"
    ]


@pytest.mark.longer
def test_a_schedule_that_ignores_its_chunks_is_set_aside(alone: dict[str, Any]) -> None:
    class Ignoring(Schedule):
        chunks = 1

        def with_chunks(self, chunks: int) -> Any:
            return self

    known = Registry([offering("schedules", Ignoring())])
    problem = {**PROBLEM, **NAMING["schedules"]}
    assert decisions(api.solve(problem, plugins=known)) == alone
    (line,) = known.warnings
    assert "ignores the chunks" in line


def test_a_fault_of_nobody_does_not_go_on_for_ever() -> None:
    def forged(*_: Any) -> Any:
        raise PluginError("strategies", "nobody", "raised what it should not")

    known = Registry([offering("strategies", broken("strategies", "degrees", forged))])
    with pytest.raises(InternalError, match="'nobody'"):
        api.solve(PROBLEM, plugins=known)


@pytest.mark.longer
def test_a_schedule_that_holds_too_little_for_its_speed_is_set_aside() -> None:
    """It says nothing of an order, but with one micro-batch in flight no stages can work at the same time."""
    known = registry([offering("schedules", broken("schedules", "in_flight", returns(1)))])
    asked = {**PROBLEM, **NAMING["schedules"], "constraints": ["pp == 2"]}
    plan = api.solve(asked, plugins=known)
    assert plan.schedule == "1f1b"
    assert "counts 1 micro-batches in flight in stage 1 of 2, with which" in known.warnings[0]
    sound = registry([offering("schedules", Schedule())])
    assert api.solve(asked, plugins=sound).schedule == "foo"
    assert sound.warnings == ()


def changes_in_place(field: str, value: Any) -> Callable[..., Any]:
    """An `apply` that sets a field of the first operator it is given, and returns what the sound one does."""

    def apply(self: Any, block: Block, degree: int, context: Any) -> Block:
        object.__setattr__(block.graph.operators[0], field, value)
        return Strategy.apply(self, block, degree, context)

    return apply


class Hoarding(Strategy):
    """Changes, at the next call, the operators of the blocks it has returned."""

    returned: Any = None

    def apply(self, block: Any, degree: int, context: Any) -> Any:
        if self.returned is not None:
            object.__setattr__(self.returned.graph.operators[-1], "flops_per_point", 0.0)
        operators = (*block.graph.operators[:-1], evolve(block.graph.operators[-1]))
        self.returned = super().apply(block, degree, context)
        self.returned = evolve(self.returned, graph=evolve(block.graph, operators=operators))
        return self.returned


def emptied(self: Any, block: Any, context: Any) -> Any:
    object.__setattr__(context.training, "global_batch", 1)
    return (1, 2)


def cheaper_operator(self: Any, operator: Any, device: Any, training: Any) -> Any:
    object.__setattr__(operator, "parameters", ())
    return OperatorCost(1e-3, 1e-3)


def faster_level(self: Any, kind: str, size: float, shape: Any, levels: Any) -> Any:
    object.__setattr__(levels[0], "bandwidth", 1e30)
    return 1e-3


def scribbled_sizes(self: Any, kind: str, sizes: Any, shape: Any, levels: Any) -> Any:
    sizes *= 0
    return numpy.full(sizes.shape, 1e-3)


IN_PLACE: list[tuple[str, Any, str]] = [
    ("strategies", broken("strategies", "apply", changes_in_place("flops_per_point", 0.0)), "flops_per_point"),
    ("strategies", broken("strategies", "apply", changes_in_place("parameters", ())), "parameters"),
    ("strategies", broken("strategies", "degrees", emptied), "`global_batch` of the Training in place in degrees"),
    ("strategies", Hoarding(), "`flops_per_point` of the Operator"),
    ("cost_models", broken("cost_models", "price", cheaper_operator), "`parameters` of the Operator"),
    ("collective_models", broken("collective_models", "time", faster_level), "`bandwidth` of the Level"),
    ("collective_models", broken("collective_models", "times", scribbled_sizes), "a ndarray in place in times"),
]


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "item", "told"), IN_PLACE)
def test_what_a_plug_in_is_given_stays_as_it_is(kind: str, item: Any, told: str, alone: dict[str, Any]) -> None:
    known = registry([offering(kind, item)])
    assert decisions(api.solve({**PROBLEM, **NAMING[kind]}, plugins=known)) == alone
    (warning,) = known.warnings
    assert "'foo' changed " in warning
    assert told in warning
    with pytest.raises(InputError, match=r"plug-in error in faulty, .* in place in"):
        api.solve({**PROBLEM, **NAMING[kind]}, plugins=Registry([offering(kind, item)], strict=True))


def test_no_price_of_changed_levels_stays_when_they_are_put_back() -> None:
    levels = (Level("node", 8, 4e11, 3e-6),)
    asked = "all_reduce", 1e9, (8,), levels
    sound = registry().collective_models()["alpha-beta"]
    expected = sound.time("all_reduce", 1e9, (8,), (Level("node", 8, 4e11, 3e-6),))
    kept = Kept(levels)
    object.__setattr__(levels[0], "bandwidth", 8e11)
    assert sound.time(*asked) < expected
    assert "bandwidth" in kept.put_back()
    assert sound.time(*asked) == expected
