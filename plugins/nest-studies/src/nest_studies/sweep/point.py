"""One point of a study: its normalised problem and key, and its answer, whichever process finds it."""

import json
from collections.abc import Mapping
from hashlib import sha256
from math import inf
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any

import numpy
from attrs import define, evolve, field, frozen

from nest.deployment import deployment
from nest.errors import InputError, InternalError, NoPlanYet
from nest.hooks.registry import Registry, registry
from nest.instance import Instance, Result, Solution
from nest.public.planning import (
    Answer,
    Deadline,
    PricedModels,
    Waiting,
    evaluate,
    formulate,
    leaves_risk_open,
    naming,
    refuse_contradictions,
    result_document,
    searched_at_risk,
    simpler_within,
    whole_problem,
    with_target,
    with_unknown,
)
from nest.public.questions import MOST_STARTS, WarmStarts
from nest.public.verbs import named_plugins
from nest.spec import PlanDocument, Problem
from nest.spec.training import OF_PLANS
from nest_studies.sweep.points import Values, problem_at

if TYPE_CHECKING:
    from nest.public.planning import SearchCache

INVALID, UNANSWERED, FAILED = "invalid", "unanswered", "error"
"""Further values of `status`: the point is no problem; the time was up before there was a plan; a bug."""

SHARED = ("memory", "reserve", "price")
"""Keys of `cluster` that no layer's price depends on."""

LINKS = ("bandwidth", "latency")
"""Keys of `cluster.levels` that no layer's graph depends on."""


@frozen
class Item:
    """A point as an engine gets it.

    Attributes:
        values: what is varied, by path.
        key: of the point.
    """

    values: Values
    key: str


@frozen
class Asked:
    """A point before it is solved.

    Attributes:
        item: what an engine is given of it.
        refusal: why it is no problem; None: it is one.
        shares: what it has in common with its neighbours (`sharing`).
        memory: bytes of a device; infinite: its own.
    """

    item: Item
    refusal: str | None
    shares: tuple[str, str] = ("", "")
    memory: float = inf


@frozen
class PointSolver:
    """Solves points of one study, in any process of any machine that sees the same files.

    Attributes:
        base: the base problem's mapping.
        folder: from which relative paths in it start.
        time_limit: seconds for each point; None: as long as it takes.
        versions: of nest and what its answers depend on, by distribution.
        strict: whether an error of a plug-in ends the sweep.
        known: what is registered; None: all that is installed, as in every other process than the first.
    """

    base: Mapping[str, Any]
    folder: Path
    time_limit: float | None
    versions: Mapping[str, str]
    strict: bool
    known: Registry | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PointSolver, (self.base, self.folder, self.time_limit, self.versions, self.strict)

    def asked(self, values: Values) -> Asked:
        """A point, with its key, before it is solved."""
        known = self.known or registry(strict=self.strict)
        written = problem_at(self.base, values)
        try:
            whole = known.run(lambda: normalised(written, self.folder, known))
        except InputError as error:
            return Asked(Item(values, self._key(written)), _one_line(error))
        memory = whole.cluster.memory
        return Asked(Item(values, self._key(whole.to_dict())), None, sharing(whole), inf if memory is None else memory)

    def _key(self, problem: Mapping[str, Any]) -> str:
        """Key of an answer: the problem, its time limit, and the versions."""
        return _digest([problem, self.time_limit, self.versions])

    def __call__(self, item: Item) -> str:
        """The answer of a point, as one line of JSON: its `key`, its `row` and its `plan`, and warnings of plug-ins."""
        known = self.known or registry(strict=self.strict)
        if (here := versions(known)) != self.versions:
            text = f"a worker has {_list(here)}, and not {_list(self.versions)}; install the same on every worker"
            return _line(item.key, {"status": FAILED, "reason": f"{text}."}, None)
        before = len(known.warnings)
        plan, row = None, dict[str, Any]()
        try:
            plan = known.run(lambda: self._solved(item, known))
            row = answer(plan, known)
        except NoPlanYet as error:
            row = {"status": UNANSWERED, "reason": str(error)}
        except InputError as error:
            row = {"status": INVALID, "reason": _one_line(error)}
        except (InternalError, MemoryError) as error:
            row = {"status": FAILED, "reason": _one_line(error) or "this machine ran out of memory."}
        return _line(item.key, row, plan, known.warnings[before:])

    def _solved(self, item: Item, known: Registry) -> PlanDocument:
        deadline = Deadline.of(self.time_limit)
        whole = normalised(problem_at(self.base, item.values), self.folder, known)
        if self._key(whole.to_dict()) != item.key:
            raise InternalError("a file that its problem names changed, or is another one where it was solved")
        neighbours = _neighbours(known)

        def search(problem: Problem, _: float) -> Answer:
            instance, formulation = formulate(problem, known, known=neighbours.priced, waiting=Waiting(deadline, None))
            return instance, formulation, neighbours.result(problem, instance, deadline)

        instance, formulation, result = searched_at_risk(whole, search, deadline)
        plan = result_document(instance, formulation, result, whole, known, deadline, contenders=False)
        if plan.batch_time is not None:
            neighbours.starts.keep(plan)
        # What a search did depends on the points before.
        return evolve(with_unknown(plan, whole, known), statistics={})


def normalised(written: Mapping[str, Any], folder: Path, known: Registry) -> Problem:
    """The problem that is solved: complete, with the files it names read in and its framework chosen.

    Raises:
        InputError: it cannot be used.
    """
    with naming(written):
        whole, _ = whole_problem(written, known, folder=folder)
        whole, _ = with_target(whole, written, known)
        refuse_contradictions(whole, written, known)
        return whole


def sharing(problem: Problem) -> tuple[str, str]:
    """Group problems that share work when solved one after the other.

    That is first the graphs of their layers, whatever the links of the network can do, then what layers cost.
    """
    document = problem.to_dict()
    document["cluster"] = {name: each for name, each in document["cluster"].items() if name not in SHARED}
    document["training"] = {name: each for name, each in document["training"].items() if name not in OF_PLANS}
    for name in ("constraints", "search"):
        document.pop(name)
    levels = document["cluster"].get("levels") or ()
    shapes = [{name: each for name, each in level.items() if name not in LINKS} for level in levels]
    graphs = {**document, "cluster": {**document["cluster"], "levels": shapes}}
    return _digest(graphs), _digest(document)


def versions(known: Registry) -> dict[str, str]:
    """The versions that answers depend on: of nest, of its plug-ins, and of what it reckons with.

    A plug-in that is a file has no version, but content.
    """
    files = {each.distribution: Path(each.name) for each in named_plugins() if each.name.endswith(".py")}
    contents = {name: sha256(path.read_bytes()).hexdigest()[:12] for name, path in files.items() if path.is_file()}
    return {**known.installed(), **contents, "numpy": numpy.__version__}


def answer(plan: PlanDocument, known: Registry) -> dict[str, Any]:
    """The columns of a point's row that its plan fills, but for the plan; degrees are in their usual order."""
    whole, spread = plan.summary.get("training") or {}, plan.batch_time_range
    figures = {
        "status": plan.status,
        "reason": plan.diagnosis,
        "batch_time": plan.batch_time,
        "lower_bound": plan.lower_bound,
        "low": None if spread is None else spread.low,
        "high": None if spread is None else spread.high,
        "throughput": plan.throughput,
        "tokens_per_second_per_device": plan.summary.get("tokens_per_second_per_device"),
        "mfu": plan.summary.get("model_flops_utilisation"),
        "devices": plan.summary.get("devices_used"),
        "fit_probability": plan.fit_probability,
        "cost": whole.get("cost"),
    }
    if plan.candidate is None:
        return figures
    shape = deployment(plan)
    degrees = dict(plan.candidate.degrees)
    names = dict.fromkeys([*(name for name in known.strategies() if name in degrees), *sorted(degrees)])
    ranks = shape.replicas * plan.candidate.samples // shape.micro_batch
    return {
        **figures,
        **{name: degrees[name] for name in names},
        "pp": shape.stages,
        "dp": ranks,
        "schedule": plan.schedule,
        "zero": _alike(shape.zero),
        "recompute": _alike(tuple(stage.recompute_name for stage in plan.stages)),
    }


def _alike(of_stages: tuple[Any, ...]) -> Any:
    """The value of all stages, or each value once in pipeline order."""
    values = list(dict.fromkeys(of_stages))
    return values[0] if len(values) == 1 else "/".join(map(str, values))


@frozen
class _Best:
    """The first of the fastest plans of a problem whose devices have so much memory, bytes."""

    memory: float
    solution: Solution


@define(eq=False)
class _Neighbours:
    """Results of solved points that save work for the next.

    Attributes:
        priced: their models.
        starts: their plans.
        searched: tables of their searches; None: nothing was searched.
    """

    priced: PricedModels = field(factory=PricedModels)
    starts: WarmStarts = field(factory=WarmStarts)
    searched: "SearchCache | None" = None
    _best: dict[str, list[_Best]] = field(factory=dict)

    def result(self, problem: Problem, instance: Instance, deadline: Deadline) -> Result:
        """The answer of a problem, the first plan of which is chosen as `nest solve` does."""
        from nest.public.planning import SearchCache, with_first_plan

        self.searched = self.searched or SearchCache()
        fastest = self._fastest(problem, instance, deadline)
        return with_first_plan(
            instance, fastest, simpler_within(problem.search, problem.model), deadline, self.searched
        )

    def _fastest(self, problem: Problem, instance: Instance, deadline: Deadline) -> Result:
        """The fastest plan of a problem: the one found with more memory, if it fits.

        All plans of less memory are plans of more: the first of the fastest there is the first of the fastest here,
        too.
        """
        from nest.public.planning import solve_beside

        key, memory = _digest(_without_memory(problem)), instance.cluster.device_memory
        for best in self._best.get(key, ()):
            if best.memory >= memory and instance.network is None:
                priced = evaluate(instance, best.solution)
                if priced.admitted:
                    return Result("optimal", best.solution, priced.batch_time, priced.batch_time)
        known, diagnosed = (
            self.starts.best(instance),
            not leaves_risk_open(problem.training, problem.model),
        )  # Else it is searched again.
        result, first = solve_beside(instance, deadline, known, self.searched, diagnosed=diagnosed)
        if first and result.solution is not None:
            kept = self._best.setdefault(key, [])
            kept.append(_Best(memory, result.solution))
            while len(self._best) > MOST_STARTS:
                del self._best[next(iter(self._best))]
        return result


def _without_memory(problem: Problem) -> dict[str, Any]:
    document = problem.to_dict()
    document["cluster"] = {name: each for name, each in document["cluster"].items() if name not in ("memory", "price")}
    return document


_here = local()


def _neighbours(known: Registry) -> _Neighbours:
    """Results of this thread with the plug-ins registered now."""
    state = (known, len(known.warnings))
    if getattr(_here, "state", None) != state:
        _here.state, _here.neighbours = state, _Neighbours()
    neighbours: _Neighbours = _here.neighbours
    return neighbours


def _digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _line(key: str, row: Mapping[str, Any], plan: PlanDocument | None, warnings: tuple[str, ...] = ()) -> str:
    document = {"key": key, "row": row, "plan": None if plan is None else plan.to_dict()}
    further = {"warnings": list(warnings)} if warnings else {}
    return json.dumps({**document, **further}, allow_nan=False, ensure_ascii=False)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _list(of: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}".rstrip() for name, version in sorted(of.items()))
