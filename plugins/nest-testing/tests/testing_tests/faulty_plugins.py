"""Faulty objects of plug-ins, one for each kind of fault, and the check of the kit that finds it."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy
from attrs import evolve

from nest.deployment import Reading
from nest.graph import Block, Operator
from nest.hooks import hook
from nest.hooks.planning import Proposal
from nest.hooks.protocols import OperatorCost, Pass
from nest.hooks.registry import registry
from nest.instance.pairs import Pairs
from nest.spec import StackDefaults

NUMBERS = count(1)


class Faulty:
    """A built-in object, found when first asked for, some members of which are replaced.

    A method that stands in is given the sound one first. The name is an attribute of the class, as plug-ins have it.
    """

    def __init__(self, kind: str, sound: str, name: str, **members: Any) -> None:
        self.name = name
        self._of = kind, sound
        self._members = members

    def __getattr__(self, member: str) -> Any:
        if member.startswith("_"):
            raise AttributeError(member)
        sound = built_in(*self._of)
        if member not in self._members:
            return getattr(sound, member)
        stands_in = self._members[member]
        if not callable(stands_in):
            return stands_in
        own = getattr(sound, member, None)
        return lambda *arguments, **named: stands_in(own, *arguments, **named)


@cache
def built_in(kind: str, name: str) -> Any:
    """The object of nest itself."""
    return getattr(registry(), kind)()[name]


def strategy(name: str, change: Callable[..., Block], **members: Any) -> Faulty:
    """Tensor parallelism whose blocks are spoilt by `change(made, before, degree)`, and that is called `name`."""

    def apply(sound: Any, block: Block, degree: int, context: Any) -> Any:
        made = sound(block, degree, context)
        made = evolve(made, degrees=(*block.degrees, (name, degree)))
        return change(made, block, degree)

    return Faulty("strategies", "tp", name, apply=apply, **members)


def each(change: Callable[[Operator], Operator | None]) -> Callable[..., Block]:
    """Spoil every operator; None leaves it out."""

    def spoilt(made: Block, *_: Any) -> Block:
        graph = made.graph.map_operators(lambda operator: () if (new := change(operator)) is None else (new,))
        return evolve(made, graph=graph)

    return spoilt


def free_in_place(made: Block, before: Block, degree: int) -> Block:
    object.__setattr__(before.graph.operators[0], "flops_per_point", 0.0)
    return made


class Hoard:
    """Spoils the blocks it returned before."""

    last: Block | None = None

    def __call__(self, made: Block, before: Block, degree: int) -> Block:
        if self.last is not None:
            object.__setattr__(self.last, "samples", 7)
        self.last = evolve(made)
        return self.last


class Turns:
    """Remembers how often it was asked: after many calls its blocks do more work."""

    calls = 0

    def __call__(self, made: Block, before: Block, degree: int) -> Block:
        self.calls += 1
        more = 1.0 + self.calls // 20
        return each(lambda operator: evolve(operator, backward_flops_ratio=operator.backward_flops_ratio * more))(made)


def by_environment(made: Block, *_: Any) -> Block:
    ratio = 2.0 + len(os.environ.get("HOME", "")) / 1000
    return each(lambda operator: evolve(operator, backward_flops_ratio=ratio))(made)


def halved_parameters(operator: Operator) -> Operator:
    parameters = [evolve(p, shape=tuple((n, max(1, size // 2)) for n, size in p.shape)) for p in operator.parameters]
    return evolve(operator, parameters=tuple(parameters))


def odd_shapes(operator: Operator) -> Operator:
    inputs = tuple(evolve(tensor, shape=(*tensor.shape, ("strange", 2))) for tensor in operator.inputs)
    return evolve(operator, inputs=inputs) if operator.kind == "norm" else operator


def schedule(name: str, of: str = "1f1b", **members: Any) -> Faulty:
    return Faulty("schedules", of, name, **members)


class NoOrder:
    """A schedule that says nothing of its order, and holds one micro-batch while all stages work."""

    name = "empty_handed"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        return micro_batches - 1.0, 1.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        return 1


def waits_for_ever(sound: Any, stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """Backward passes first, so that stages wait for one another; alone a stage has a sound order."""
    if stages == 1:
        return list(sound(stage, stages, micro_batches))
    order = [Pass("forward", index) for index in range(micro_batches)]
    order += [Pass("backward", index) for index in range(micro_batches)]
    return order[::-1] if stage == 1 else order


def collectives(name: str, time: Callable[..., float]) -> Any:
    class Model:
        def time(self, kind: str, size: float, shape: Any, levels: Any) -> float:
            sound = built_in("collective_models", "alpha-beta")
            return time(float(sound.time(kind, size, shape, levels)), size, shape, levels)

    model: Any = Model()
    model.name = name
    return model


def faster_links(seconds: float, size: float, shape: Any, levels: Any) -> float:
    object.__setattr__(levels[0], "bandwidth", levels[0].bandwidth * 2)
    return seconds


def costs(name: str, price: Callable[..., Any]) -> Faulty:
    return Faulty("cost_models", "roofline", name, price=price)


def unparametrised(sound: Any, operator: Operator, *rest: Any) -> OperatorCost:
    object.__setattr__(operator, "parameters", ())
    cost: OperatorCost = sound(operator, *rest)
    return cost


class Costly:
    """Raises the price of all operators after the first hundred calls."""

    calls = 0

    def __call__(self, sound: Any, *asked: Any) -> OperatorCost:
        self.calls += 1
        cost: OperatorCost = sound(*asked)
        return evolve(cost, update=cost.update + float(self.calls > 100))


CONFIG = {
    "model_type": "faulty",
    "vocab_size": 96,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


def model(name: str, change: Callable[[Any], Any]) -> Faulty:
    def load(sound: Any, source: Any, training: Any) -> Any:
        return change(sound({**source, "model_type": "llama"}, training))

    def accepts(sound: Any, source: Any) -> bool:
        return isinstance(source, dict) and source.get("model_type") == name

    return Faulty(
        "model_importers", "llama", name, load=load, accepts=accepts, examples=({**CONFIG, "model_type": name},)
    )


def in_a_circle(graph: Any) -> Any:
    """The layers, each of which reads what the next one makes."""
    return evolve(graph, operators=graph.operators[::-1])


class Network:
    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self.name = name
        self.examples = (name,)
        self._load = load

    def accepts(self, source: Any) -> bool:
        return bool(source == self.name)

    def load(self, source: Any) -> Any:
        return self._load()


def pairs(there: float, back: float) -> Pairs:
    return Pairs(("a", "b"), numpy.array([[numpy.inf, there], [back, numpy.inf]]), numpy.zeros((2, 2)))


class Exporter:
    def __init__(self, name: str, export: Callable[[Any], Any]) -> None:
        self.name = name
        self.summary = "faulty files"
        self.export = export


def wrote_itself(plan: Any) -> dict[str, str]:
    Path(os.devnull).write_text("half a file")
    return {"plan.txt": "all"}


def gives_up(plan: Any) -> dict[str, str]:
    files = {"first.txt": plan.status}
    files["second.txt"] = str(1 / (len(plan.stages) - len(plan.stages)))
    return files


def scribbles(plan: Any) -> dict[str, str]:
    plan.summary["seen"] = True
    return {"plan.txt": "all"}


class Reader:
    def __init__(self, name: str, read: Callable[[str], Any], summary: str = "faulty files") -> None:
        self.name = name
        self.summary = summary
        self.examples = ("mine",)
        self._read = read

    def read(self, text: str, nodes: int | None = None) -> Any:
        return self._read(text)


class Planner:
    summary = "plans wrongly"

    def __init__(self, name: str, plan: Callable[..., Any]) -> None:
        self.name = name
        self.plan = plan


def too_many_replicas(instance: Any, context: Any) -> Proposal:
    solution = context.search(instance).solution
    return Proposal(None if solution is None else evolve(solution, replicas=1000), ("no",))


class Optioned(Planner):
    def with_options(self, options: Any) -> "Optioned":
        return self


def alone(instance: Any, context: Any) -> Proposal:
    solution = context.search(instance).solution
    return Proposal(solution, ("none",))


def cheapening(instance: Any, context: Any) -> Proposal:
    object.__setattr__(instance.candidates[0], "samples", 7)
    return Proposal(context.search(instance).solution, ("none",))


class Engine:
    summary = "runs wrongly"

    def __init__(self, name: str, submit: Callable[..., Any]) -> None:
        self.name = name
        self.submit = submit


def swallowing(function: Any, items: Any) -> Iterator[Any]:
    for item in items:
        try:
            yield function(item)
        except ValueError:
            yield None


class Stack:
    description = "made up"
    targets: Any = ("megatron",)

    def __init__(self, name: str, training: Any, **members: Any) -> None:
        self.name = name
        self.training = training
        vars(self).update(members)


FAULTS: dict[str, list[tuple[Any, str]]] = {
    "strategies": [
        (strategy("in_place", free_in_place), "it leaves what it is given as it is"),
        (strategy("hoarding", Hoard()), "it does the same every time"),
        (strategy("counting", Turns()), "it does the same every time"),
        (
            strategy("moody", each(lambda o: evolve(o, backward_flops_ratio=float(next(NUMBERS))))),
            "it does the same every time",
        ),
        (strategy("at_home", by_environment), "it does the same every time"),
        (
            strategy("negative_work", each(lambda o: evolve(o, flops_per_point=-1.0))),
            "sizes and amounts are finite and not negative",
        ),
        (
            strategy("endless_work", each(lambda o: evolve(o, flops_per_point=float("nan")))),
            "sizes and amounts are finite and not negative",
        ),
        (strategy("odd_shapes", each(odd_shapes)), "tensors agree wherever they are handled"),
        (strategy("too_wide", lambda made, *_: made.with_axis("more", 3)), "it applies"),
        (strategy("losing", each(lambda o: None if o.kind == "loss" else o)), "no operator is lost"),
        (
            strategy("saving_work", each(lambda o: evolve(o, flops_per_point=o.flops_per_point / 2))),
            "work and activations of all ranks add up",
        ),
        (strategy("saving_bytes", each(halved_parameters)), "parameters of all ranks add up"),
        (
            strategy("never_one", lambda made, *_: made, degrees=lambda sound, *a: [d for d in sound(*a) if d > 1]),
            "degrees are whole numbers from 1",
        ),
        (strategy("raising", lambda *_: {}["heads"]), "it applies"),
    ],
    "schedules": [
        (schedule("cheap", weights=lambda sound, m, s: (m / s, 0.0)), "a batch takes no less than its slowest stage"),
        (
            schedule("cheap_order", weights=lambda sound, m, s: (float(m), 0.0)),
            "weights and counts are those of its order",
        ),
        (
            schedule("negative", weights=lambda sound, m, s: (m + 1.0, -1.0)),
            "weights are finite, and sums of them not negative",
        ),
        (schedule("stuck", order=waits_for_ever), "its order can be run"),
        (
            schedule("light", in_flight=lambda sound, i, s, m: max(sound(i, s, m) - 1, 1)),
            "weights and counts are those of its order",
        ),
        (NoOrder(), "enough are in flight for its weights"),
        (schedule("misplaced", chunks=2, placement=lambda sound, s: (1,) * 2 * s), "each stage has as many chunks"),
        (
            schedule("all_admitted", "interleaved", admits=lambda sound, *_: True),
            "weights and counts are those of its order",
        ),
    ],
    "collective_models": [
        (collectives("shrinking", lambda t, size, *_: 1e9 / (1 + size)), "more bytes never take less time"),
        (collectives("refunding", lambda t, *_: -t), "times are finite and not negative"),
        (collectives("alone", lambda t, *_: t + 1e-6), "one member costs nothing"),
        (collectives("faster_than_light", lambda t, *_: t / 100), "no more is sent than the links carry"),
        (collectives("levels_in_place", faster_links), "it leaves what it is given as it is"),
    ],
    "cost_models": [
        (costs("refund", lambda s, *a: evolve(s(*a), transient=-1.0)), "costs are finite and not negative"),
        (costs("endless", lambda s, *a: evolve(s(*a), backward=float("nan"))), "costs are finite and not negative"),
        (
            costs("less_for_more", lambda s, o, *a: evolve(s(o, *a), forward=1 / (1 + o.bytes_read))),
            "more work never takes less time",
        ),
        (costs("operators_in_place", unparametrised), "it leaves what it is given as it is"),
        (costs("dearer", Costly()), "it says the same every time"),
    ],
    "layer_times": [
        (
            Faulty("layer_times", "sequential", "at_once", seconds=lambda s, d, *_: max(d, default=0.0)),
            "a layer takes as long as what must follow one another",
        )
    ],
    "model_importers": [
        (
            model("unstable", lambda graph: evolve(graph, family=f"family {next(NUMBERS)}")),
            "it loads the same every time",
        ),
        (model("circular", in_a_circle), "it loads an operator graph of one sample"),
    ],
    "topology_importers": [
        (Network("one_way", lambda: pairs(1.0, 2.0)), "it loads a cluster, links or pairs"),
        (Network("shifting", lambda: pairs(float(next(NUMBERS)), 1.0)), "it loads a cluster, links or pairs"),
        (Network("torn", lambda: {}["links"]), "it loads a cluster, links or pairs"),
    ],
    "planners": [
        (Planner("impossible", too_many_replicas), "what it decides is a plan of the problem"),
        (Planner("priced", lambda *_: Proposal("59 s")), "it proposes what the problem has words for"),  # type: ignore[arg-type]
        (Planner("failing", lambda *_: 1 / 0), "it proposes what the problem has words for"),
        (Planner("instance_in_place", cheapening), "it leaves what it is given as it is"),
        (Planner("negative", lambda *_: Proposal(None, ("no",), -1.0)), "it proposes what the problem has words for"),
        (Optioned("careless", alone), "it refuses an option that it lacks"),
    ],
    "exporters": [
        (Exporter("half", gives_up), "it writes text under names that stay in a folder"),
        (Exporter("random", lambda plan: {"plan.txt": str(next(NUMBERS))}), "it says the same every time"),
        (Exporter("here", lambda plan: {"plan.txt": str(Path.cwd())}), "it says the same every time"),
        (Exporter("outside", lambda plan: {"../plan.txt": ""}), "it writes text under names that stay in a folder"),
        (Exporter("itself", wrote_itself), "it writes no file itself"),
        (Exporter("scribbling", scribbles), "it leaves the plan as it is"),
    ],
    "plan_readers": [
        (
            Reader("any", lambda text: Reading({"fixed": {"pp": 1 + len(text.split()[0])}})),
            "what it cannot read it refuses with an InputError",
        ),
        (Reader("lines", lambda text: Reading({"search": {}})), "it reads keys of a problem"),
    ],
    "engines": [
        (
            Engine("lossy", lambda function, items: [function(each) for each in items[1:]]),
            "each item has its answer, once",
        ),
        (Engine("swallowing", swallowing), "what raises is not taken for an answer"),
    ],
    "stacks": [
        (Stack("worded", StackDefaults(), targets="megatron"), "its targets, sources and schedules are names"),
        (Stack("keyed", {"keys": 1}), "it fills in keys of training"),
        (
            Stack("unsourced", StackDefaults(), notes={"kernels": "fast"}),
            "each statement has a source that begins with its key",
        ),
    ],
}
"""By kind, faulty objects with a check that each must fail."""


def _offered(kind: str) -> Callable[[], list[Any]]:
    def offer() -> list[Any]:
        return [item for item, _ in FAULTS[kind]]

    offer.__name__ = f"nest_{kind}"
    return hook(offer)


for _kind in FAULTS:
    globals()[f"nest_{_kind}"] = _offered(_kind)
