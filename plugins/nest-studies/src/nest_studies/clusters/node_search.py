"""Numbers of nodes of one cluster that answer a question: the fewest in time, the cheapest, the fastest affordable.

Every answer is a decision, whether some number of nodes has a plan that is fast enough, for as many numbers as needed
(`nest.solve.decision`); compute alone answers most (`least` of `Sizes` and `Mixtures`).
"""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Protocol

from attrs import define, evolve, field, frozen

from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import Instance, Result
from nest.public.planning import Formulation, PricedModels, evaluate, runs_on, solved_document
from nest.public.questions import Nodes
from nest.public.text import SECONDS_AN_HOUR, egress_of_a_step, layout_text, training_steps
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT
from nest_studies.clusters.mixtures import Mixtures
from nest_studies.clusters.sizes import Sizes

Answer = dict[str, Any]
"""A number of nodes with its plan, as `--json` has it."""

Count = Any
"""A number of nodes, or nodes of each pool: what `Sizes` and `Mixtures` take."""


class NodeCounts(Protocol):
    """A problem on every number of nodes of its cluster, or on every mixture of nodes of its pools."""

    @property
    def total(self) -> int:
        """Nodes of the whole cluster."""

    @property
    def devices_per_node(self) -> int | dict[str, int]:
        """Of every node, or by pool."""

    @property
    def price(self) -> float | dict[str, float] | None:
        """Of a device and hour, or by pool; None: nobody says."""

    def counts(self) -> tuple[Count, ...]:
        """Those that make a cluster."""

    def used(self, count: Count) -> int:
        """Its nodes."""

    def devices(self, count: Count) -> int:
        """Of all its nodes."""

    def hourly(self, count: Count) -> float:
        """Cost of an hour; without a price, the number of devices."""

    def named(self, count: Count) -> dict[str, int] | None:
        """Its nodes by pool; None: they are of one kind."""

    def least(self, count: Count) -> float:
        """Seconds that no plan on it beats."""

    def formulated(self, count: Count) -> tuple[Problem, Instance, Formulation]:
        """The problem on it as solvers see it."""


@frozen
class Found:
    """The fastest plan of so many nodes."""

    count: Count
    seconds: float
    problem: Problem
    instance: Instance
    result: Result
    document: Callable[[], PlanDocument] = field(eq=False)
    egress: float = 0.0


@define(eq=False)
class NodeSearch:
    """One cluster's numbers of nodes, with what is known of the least step time of each.

    Attributes:
        problem: self-contained, on the whole cluster.
        known: registered strategies and the like.
        priced: models priced before with these.
        sizes: the problem on each number of nodes.
        diagnosis: why the number of nodes asked last has no plan; None: it has, or bounds alone say so.
        unproved: numbers of nodes on which a plan may have been missed.
    """

    problem: Problem
    known: Registry
    priced: PricedModels = field(factory=PricedModels)
    sizes: NodeCounts = field(init=False)
    _found: dict[Count, Found] = field(factory=dict)
    _least: dict[Count, float] = field(factory=dict)
    diagnosis: str | None = None
    unproved: set[Count] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        pooled = self.problem.cluster.pools is not None
        sizes: NodeCounts = (
            Mixtures(self.problem, self.known)
            if pooled
            else Sizes(self.problem, self.known, Nodes.of(self.problem.cluster), self.priced)
        )
        self.sizes, self._least = sizes, {count: sizes.least(count) for count in sizes.counts()}

    @property
    def steps(self) -> int:
        """Of the whole training."""
        steps = training_steps(self.problem.training)
        assert steps is not None
        return steps

    def within(self, count: Count, limit: float) -> Found | None:
        """The fastest plan of so many nodes if it takes at most so many seconds a step; None: none does."""
        if count not in self._found and self._least[count] <= limit:
            found = self._decide(count, limit)
            if found is None:
                self._least[count] = max(self._least[count], limit)
                return None
            self._found[count], self._least[count] = found, found.seconds
        return self._found[count] if count in self._found and self._found[count].seconds <= limit else None

    def _decide(self, count: Count, limit: float) -> Found | None:
        from nest.public.planning import fastest_within, solve

        try:
            problem, instance, formulation = self.sizes.formulated(count)
        except InputError as error:
            if self.sizes.used(count) == self.sizes.total == 1:
                raise
            self.diagnosis = str(error)
            return None
        result, proved = (solve(instance, runner_up=False), True) if limit == inf else fastest_within(instance, limit)
        if not proved:
            self.unproved.add(count)
        if result is None or result.solution is None or result.batch_time is None:
            self.diagnosis = self.diagnosis if result is None else result.diagnosis
            return None
        kept = result

        def document() -> PlanDocument:
            plan = solved_document(instance, formulation, kept, problem, self.known)
            return evolve(plan, runs_on=runs_on(plan, self.known))

        priced = evaluate(instance, result.solution)
        egress = egress_of_a_step(problem.cluster, instance, result.solution, priced.micro_batches)
        return Found(count, result.batch_time, problem, instance, result, document, egress)

    def cost(self, found: Found) -> float:
        """Of a step; where nobody says what devices cost, what hours of devices it takes."""
        hours = found.seconds / SECONDS_AN_HOUR
        egress = found.egress if self.sizes.price is not None else 0.0
        return self.sizes.hourly(found.count) * hours + egress

    def answers(self, within: float, budget: float | None) -> dict[str, Any]:
        """The fewest nodes that take so many seconds, the cheapest, the fastest within the budget, or the nearest."""
        limit = within / self.steps
        fewest = self.fewest(limit)
        missed = fewest is not None and any(
            self._by_nodes(each) < self._by_nodes(fewest.count) for each in self.unproved
        )
        found = {"fewest": fewest, "cheapest": None if fewest is None else self.cheapest(fewest, limit)}
        found["nearest"] = self.fastest(inf) if fewest is None else None
        if budget is not None and self.sizes.price is not None:
            found["fastest"] = self.fastest(budget / self.steps)
        answers: dict[str, Any] = {key: None if each is None else self.answer(each) for key, each in found.items()}
        answers["proved"] = None if fewest is None else not missed
        if fewest is None and found["nearest"] is None:
            answers["reason"] = self.diagnosis or "there is no plan."
        return answers

    def _by_nodes(self, count: Count) -> tuple[Any, ...]:
        """Key that orders numbers of nodes: the fewest first; of mixtures of as many, the cheapest."""
        return self.sizes.used(count), self.sizes.hourly(count), count

    def fewest(self, limit: float) -> Found | None:
        """The fewest nodes with a plan of at most so many seconds a step; fewer have none, unless `unproved`."""
        ordered = sorted(self._least, key=self._by_nodes)
        return next((found for count in ordered if (found := self.within(count, limit))), None)

    def cheapest(self, best: Found, limit: float) -> Found:
        """The cheapest plan among the fastest of all numbers of nodes, of at most so many seconds a step.

        Nodes are paid whole, whether or not a plan uses all of their devices. `best` has the fewest nodes.
        """
        hourly = self.sizes.hourly

        def most_seconds(count: Count) -> float:
            return self.cost(best) * (1 - AGREEMENT) * SECONDS_AN_HOUR / hourly(count)

        for count in sorted(
            self._least, key=lambda count: (hourly(count) * self._least[count], *self._by_nodes(count))
        ):
            found = self.within(count, min(limit, most_seconds(count)))
            if found is not None and self.cost(found) < self.cost(best):
                best = found
        return best

    def fastest(self, most: float) -> Found | None:
        """The fastest plan whose steps cost no more than `most`; of equals the one of fewest nodes."""
        best: Found | None = None
        for count in sorted(self._least, key=lambda count: (self._least[count], *self._by_nodes(count))):
            paid = most * SECONDS_AN_HOUR / self.sizes.hourly(count)
            before = best is None or self._by_nodes(count) < self._by_nodes(best.count)
            limit = inf if best is None else best.seconds * (1 + (AGREEMENT if before else -AGREEMENT))
            found = self.within(count, min(limit, paid))
            if found is not None and self.cost(found) <= most:
                best = found
        return best

    def curve(self) -> Iterator[dict[str, Any]]:
        """The fastest plan of every number of nodes or fewer, ascending.

        Raises:
            InputError: there are several kinds of node.
        """
        if isinstance(self.sizes, Mixtures):
            raise InputError("cluster.pools: --curve supports one device type only; leave it out.")
        best: Answer | None = None
        limit = inf
        for count in range(1, self.sizes.total + 1):
            found = self.within(count, limit) if count in self._least else None
            if found is not None:
                best, limit = self.answer(found), found.seconds * (1 - AGREEMENT)
            used = None if best is None else best["nodes"]
            rest = {} if best is None else {key: value for key, value in best.items() if key != "nodes"}
            yield {"nodes": count, "uses": used, **rest} if best else {"nodes": count, "uses": None, "plan": None}

    def answer(self, found: Found) -> Answer:
        """Figures of the whole training by a plan, and the plan itself."""
        plan, sizes = found.document(), self.sizes
        devices, seconds = sizes.devices(found.count), plan.batch_time or 0.0
        span = plan.batch_time_range
        times = {"time": seconds} if span is None else {"time": seconds, "low": span.low, "high": span.high}
        whole = {key: self.steps * each for key, each in times.items()}
        costs = {}
        if sizes.price is not None:
            hourly, egress = sizes.hourly(found.count), self.steps * found.egress
            costs = {
                key.replace("time", "cost"): each * hourly / SECONDS_AN_HOUR + egress for key, each in whole.items()
            }
        named = sizes.named(found.count)
        return {
            "nodes": sizes.used(found.count),
            **({} if named is None else {"pools": named}),
            "devices": devices,
            "batch_time": seconds,
            "steps": self.steps,
            "time": whole["time"],
            "low": whole.get("low"),
            "high": whole.get("high"),
            "device_hours": whole["time"] * devices / SECONDS_AN_HOUR,
            "cost": costs.get("cost"),
            "cost_low": costs.get("low"),
            "cost_high": costs.get("high"),
            "fit_probability": plan.fit_probability,
            "decisions": layout_text(plan),
            "plan": plan.to_dict(),
        }
