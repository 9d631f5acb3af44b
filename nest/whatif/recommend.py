"""How many nodes of which cluster a training needs: the fewest in time, the cheapest, the fastest for the money.

Every answer is a decision, whether some number of nodes has a plan that is fast enough, asked of as many numbers as it
takes (`nest.solve.decision`); compute alone answers most (`nest.whatif.nodes.Sizes.least`).

More nodes are not always faster, so that no bisection finds the fewest: a replica owns as many devices as there are for
it (PROBLEM.md section 3), so that with more of them it may straddle nodes where it did not; blocks of 16 devices
need an even number of nodes of 8; and where there is room for four blocks they are in one group of ranks more, which
takes memory. What never rises is the least time of n nodes or fewer, as nodes may be left idle. So the fewest are
found by asking every number below, each proved to miss the deadline.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from nest.catalogue import clusters
from nest.documents import solved_document
from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.problem import Changes, Source, naming, read_record, self_contained
from nest.formulate.target import runs_on, with_target
from nest.hooks.registry import Registry, registry
from nest.instance import Instance, Result
from nest.io import check_writable, is_file_name, write_text
from nest.report.decisions import decisions_text
from nest.report.plan_summary import SECONDS_AN_HOUR, training_steps
from nest.spec import ClusterSpec, PlanDocument, Problem
from nest.tolerances import AGREEMENT
from nest.whatif.curve import curve_lines
from nest.whatif.nodes import Nodes, Sizes
from nest.whatif.sweep.run import processes

Told = Callable[[str, int, int], None]
"""Called with which cluster is answered, how many are, and how many there are."""

Answer = dict[str, Any]
"""A number of nodes with its plan, as `--json` has it."""


@frozen
class Wanted:
    """What is asked.

    Attributes:
        within: seconds that the training may take.
        budget: that it may cost, in the currency of `cluster.price`; None: anything.
        curve: file for the plan of every number of nodes; None: they are not asked for.
    """

    within: float
    budget: float | None = None
    curve: str | Path | None = None


@frozen
class Recommendation:
    """What each cluster needs for a training.

    Attributes:
        tokens: of the training.
        wanted: what was asked.
        clusters: what was found of each, in the order asked about; docs/reference/command-line.md has the keys.
    """

    tokens: int
    wanted: Wanted
    clusters: tuple[dict[str, Any], ...]

    @property
    def met(self) -> bool:
        """Whether any cluster meets the deadline."""
        return any(each["fewest"] is not None for each in self.clusters)

    @property
    def nearest(self) -> dict[str, Any] | None:
        """The cluster that comes nearest to a deadline that none meets; None: none has a plan at all."""
        timed = [each for each in self.clusters if each["nearest"] is not None]
        return min(timed, key=lambda each: float(each["nearest"]["time"]), default=None)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain mappings, lists and numbers."""
        nearest = None if self.met else self.nearest
        return {
            "nest": 1,
            "tokens": self.tokens,
            "within": self.wanted.within,
            "budget": self.wanted.budget,
            "met": self.met,
            "nearest": None if nearest is None else nearest["cluster"],
            "clusters": list(self.clusters),
        }


def recommendation(
    source: Source | Problem,
    names: Sequence[str],
    changes: Changes | None,
    wanted: Wanted,
    known: Registry,
    progress: Told | None = None,
    jobs: int | None = None,
) -> Recommendation:
    """What each of some clusters needs for the training of a problem.

    Args:
        source: the problem; its global batch is kept.
        names: of clusters, or files with a `cluster` section; none: the problem's own and all of the catalogue.
        changes: keys of its sections in place of what is written.
        wanted: what is asked.
        known: registered strategies and the like.
        progress: called after each cluster.
        jobs: processes at work; None: one for each core there is for this one.

    Raises:
        InputError: the problem or a cluster cannot be used, or it does not say how many tokens there are.
    """
    if not wanted.within > 0 or (wanted.budget is not None and not wanted.budget > 0):
        raise InputError("--within and --budget must be above 0.")
    with naming(source):
        problem, written = read_record(source, Problem, changes)
        if problem.model is None:
            raise InputError(
                "profile has times that were measured on one cluster, and nothing tells those on others; give model."
            )
        if problem.training.tokens is None:
            raise InputError("training.tokens is missing; write it, or give --tokens.")
    curve = None if wanted.curve is None else Path(wanted.curve)
    if curve is not None:
        check_writable(curve, source)
    base = Path(source).parent if isinstance(source, (str, Path)) else None
    asked = _Asked(problem, written, base, known, wanted)
    each = tuple(names) or tuple(dict.fromkeys((asked.own, *clusters())))
    found = []
    for answer in _answers(asked, each, jobs):
        found.append(answer)
        if answer["unknown"]:
            raise InputError(answer["error"])
        if progress is not None:
            progress(f"{answer['cluster']} is answered", len(found), len(each))
    found.sort(key=lambda answer: int(answer.pop("place")))
    refused = [each["error"] for each in found if each["error"] is not None]
    if len(refused) == len(found):
        raise InputError(refused[0])
    rows = [row for each in found for row in each.pop("rows")]
    told = tuple({key: value for key, value in each.items() if key not in ("unknown", "error")} for each in found)
    if curve is not None:
        write_text(curve, curve_lines(rows))
    return Recommendation(problem.training.tokens, wanted, told)


@frozen
class _Asked:
    """What is asked of every cluster; `written` and `base` are of the file of `problem`."""

    problem: Problem
    written: Mapping[str, Any]
    base: Path | None
    known: Registry
    wanted: Wanted

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has a registry of its own, of what is installed."""
        return _asked_elsewhere, (self.problem, self.written, self.base, self.wanted, self.known.strict)

    def __call__(self, item: tuple[int, str]) -> dict[str, Any]:
        """What the cluster of this name needs, and its place among those asked about."""
        answer: dict[str, Any] = {"place": item[0], "unknown": False}
        try:
            return answer | self.known.run(lambda: self.of(item[1]))
        except InputError as error:
            return {**answer, "unknown": True, "error": str(error)}

    @property
    def own(self) -> str:
        """What the problem's own cluster is called."""
        return self.problem.cluster.name or "the problem's"

    def of(self, name: str) -> dict[str, Any]:
        """What one cluster needs; one that cannot be used has an `error`.

        Raises:
            InputError: there is no such cluster.
        """
        own = name == self.own
        spec = self.problem.cluster if own else ClusterSpec(name=name)
        problem = evolve(self.problem, cluster=spec)
        if not own and is_file_name(name):  # It is beside whoever asks, not beside the problem.
            problem = evolve(problem, cluster=evolve(spec, name=str(Path(name).absolute())))
        whole = self_contained(problem, self.base, self.known)
        whole, _ = with_target(whole, {**self.written, "cluster": {}}, self.known)
        build_cluster(whole.cluster, self.known)
        blank = dict.fromkeys(("nodes", "devices_per_node", "fewest", "cheapest", "fastest", "nearest", "reason"))
        answer: dict[str, Any] = {"cluster": name, **blank, "price": whole.cluster.price, "error": None, "rows": []}
        try:
            search = _Search(whole, self.known)
            answer |= {"nodes": search.total, "devices_per_node": search.devices}
            answer |= search.answers(self.wanted)
            if self.wanted.curve is not None:
                answer["rows"] = [{"cluster": name, **row} for row in search.curve()]
        except InputError as error:
            answer |= {"error": str(error), "reason": str(error)}
        return answer


def _asked_elsewhere(
    problem: Problem, written: Mapping[str, Any], base: Path | None, wanted: Wanted, strict: bool
) -> _Asked:
    return _Asked(problem, written, base, registry(strict=strict), wanted)


def _answers(asked: _Asked, names: Sequence[str], jobs: int | None) -> Iterator[dict[str, Any]]:
    """What each cluster needs, as they come, each with its `place` among the names."""
    items, engine = tuple(enumerate(names)), processes(jobs, asked.known)
    yield from map(asked, items) if engine is None else engine.submit(asked, items)


@frozen
class _Found:
    """The fastest plan of so many nodes."""

    count: int
    seconds: float
    problem: Problem
    instance: Instance
    result: Result
    document: Callable[[], PlanDocument] = field(eq=False)


@define(eq=False)
class _Search:
    """One cluster's numbers of nodes, with what is known of the least step time of each."""

    problem: Problem
    known: Registry
    sizes: Sizes = field(init=False)
    _found: dict[int, _Found] = field(factory=dict)
    _least: dict[int, float] = field(factory=dict)
    diagnosis: str | None = None

    def __attrs_post_init__(self) -> None:
        self.sizes = Sizes(self.problem, self.known, Nodes.of(self.problem.cluster))
        self._least = {count: self.sizes.least(count) for count in self.sizes.counts()}

    @property
    def total(self) -> int:
        """Nodes of the whole cluster."""
        return 1 if self.sizes.nodes is None else self.sizes.nodes.count

    @property
    def devices(self) -> int:
        """Devices of a node."""
        cluster, _ = build_cluster(self.problem.cluster, self.known)
        return cluster.size // self.total

    @property
    def steps(self) -> int:
        """Of the whole training."""
        steps = training_steps(self.problem)
        assert steps is not None
        return steps

    def within(self, count: int, limit: float) -> _Found | None:
        """The fastest plan of so many nodes if it takes at most so many seconds a step; None: none does."""
        if count not in self._found and self._least[count] <= limit:
            found = self._decide(count, limit)
            if found is None:
                self._least[count] = max(self._least[count], limit)
                return None
            self._found[count], self._least[count] = found, found.seconds
        return self._found[count] if count in self._found and self._found[count].seconds <= limit else None

    def _decide(self, count: int, limit: float) -> _Found | None:
        from nest.solve.decision import fastest_within, simplified
        from nest.solve.solver import solve

        try:
            problem, instance, formulation = self.sizes.formulated(count)
        except InputError as error:
            if count == self.total and self.total == 1:
                raise
            self.diagnosis = str(error)
            return None
        result: Result | None = solve(instance, runner_up=False) if limit == inf else fastest_within(instance, limit)
        if result is None or result.batch_time is None:
            self.diagnosis = self.diagnosis if result is None else result.diagnosis
            return None
        kept = result

        def document() -> PlanDocument:
            plan = solved_document(instance, formulation, simplified(instance, kept), problem, self.known)
            return evolve(plan, runs_on=runs_on(plan, self.known))

        return _Found(count, result.batch_time, problem, instance, result, document)

    def answers(self, wanted: Wanted) -> dict[str, Any]:
        """The fewest nodes, the cheapest and the fastest, or what comes nearest."""
        limit, price = wanted.within / self.steps, self.problem.cluster.price
        fewest = self.fewest(limit)
        found = {"fewest": fewest, "cheapest": None if fewest is None else self.cheapest(fewest, limit)}
        found["nearest"] = self.fastest(lambda _: inf) if fewest is None else None
        if wanted.budget is not None and price is not None:
            most = wanted.budget / price * SECONDS_AN_HOUR / self.steps / self.devices
            found["fastest"] = self.fastest(lambda count: most / count)
        answers: dict[str, Any] = {key: None if each is None else self.answer(each) for key, each in found.items()}
        if fewest is None and found["nearest"] is None:
            answers["reason"] = self.diagnosis or "there is no plan."
        return answers

    def fewest(self, limit: float) -> _Found | None:
        """The fewest nodes with a plan of at most so many seconds a step; all fewer are proved to have none."""
        return next((found for count in sorted(self._least) if (found := self.within(count, limit))), None)

    def cheapest(self, best: _Found, limit: float) -> _Found:
        """The plan of fewest node hours among those of at most so many seconds a step; `best` is that of fewest nodes.

        Nodes are paid whole, whether or not a plan uses all of their devices.
        """
        for count in sorted(self._least, key=lambda count: (count * self._least[count], count)):
            if count * self._least[count] < best.count * best.seconds:
                least = best.count * best.seconds * (1 - AGREEMENT)
                best = self.within(count, min(limit, least / count)) or best
        return best

    def fastest(self, most: Callable[[int], float]) -> _Found | None:
        """The fastest plan whose steps take at most what each number of nodes may; of equals that of fewest nodes."""
        best: _Found | None = None
        for count in sorted(self._least, key=lambda count: (self._least[count], count)):
            limit = inf if best is None else best.seconds * (1 + (AGREEMENT if count < best.count else -AGREEMENT))
            best = self.within(count, min(limit, most(count))) or best
        return best

    def curve(self) -> Iterator[dict[str, Any]]:
        """The fastest plan of every number of nodes or fewer, ascending."""
        best: Answer | None = None
        limit = inf
        for count in range(1, self.total + 1):
            found = self.within(count, limit) if count in self._least else None
            if found is not None:
                best, limit = self.answer(found), found.seconds * (1 - AGREEMENT)
            used = None if best is None else best["nodes"]
            rest = {} if best is None else {key: value for key, value in best.items() if key != "nodes"}
            yield {"nodes": count, "uses": used, **rest} if best else {"nodes": count, "uses": None, "plan": None}

    def answer(self, found: _Found) -> Answer:
        """What there is to say of a plan: of the whole training, and the plan itself."""
        plan = found.document()
        devices, seconds = found.count * self.devices, plan.batch_time or 0.0
        span = plan.batch_time_range
        times = {"time": seconds} if span is None else {"time": seconds, "low": span.low, "high": span.high}
        whole = {key: self.steps * each for key, each in times.items()}
        price = self.problem.cluster.price
        hours = {key: each * devices / SECONDS_AN_HOUR for key, each in whole.items()}
        costs = {} if price is None else {key.replace("time", "cost"): each * price for key, each in hours.items()}
        return {
            "nodes": found.count,
            "devices": devices,
            "batch_time": seconds,
            "steps": self.steps,
            "time": whole["time"],
            "low": whole.get("low"),
            "high": whole.get("high"),
            "device_hours": hours["time"],
            "cost": costs.get("cost"),
            "cost_low": costs.get("low"),
            "cost_high": costs.get("high"),
            "fit_probability": plan.fit_probability,
            "decisions": decisions_text(plan),
            "plan": plan.to_dict(),
        }
