"""Numbers of nodes of a cluster for a training: the fewest in time, the cheapest, the fastest for the money.

More nodes are not always faster, so no bisection finds the fewest. With more devices per replica (PROBLEM.md section 3)
one may straddle nodes; blocks of 16 devices need an even number of nodes of 8; and room for four blocks adds a group of
ranks, which takes memory. Only the least time of n nodes or fewer never rises, as nodes may be left idle. So every
number below the fewest is tried and proved to miss the deadline.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from json import dumps
from math import inf, prod
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from nest.catalogue import clusters, enlarged
from nest.errors import InputError
from nest.hooks.registry import Registry, registry
from nest.io import check_writable, is_file_name, write_text
from nest.public.planning import (
    EVEN_ODDS,
    Changes,
    PricedModels,
    Source,
    any_cluster,
    at_risk,
    device_of,
    leaves_risk_open,
    naming,
    read_record,
    self_contained,
    with_target,
)
from nest.public.questions import Nodes, processes, with_levels
from nest.spec import ClusterSpec, Problem
from nest_studies.clusters.curve import curve_lines
from nest_studies.clusters.node_search import NodeSearch

COUNTED = 1024
"""Devices up to which machines of a cloud's type are counted if nobody says how many there are."""

Told = Callable[[str, int, int], None]
"""Called with which cluster is answered, how many are, and how many there are."""

FOUND = ("fewest", "cheapest", "fastest", "nearest")
"""Keys of an answer that have a number of nodes and its plan; docs/reference/command-line.md has them."""


@frozen
class Wanted:
    """Deadline, budget and tokens of a question.

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
    """Nodes of each cluster for a training.

    Attributes:
        tokens: of the training.
        batch: samples of a step.
        wanted: what was asked.
        clusters: what was found of each, in the order asked about; docs/reference/command-line.md has the keys.
    """

    tokens: int
    batch: int
    wanted: Wanted
    clusters: tuple[dict[str, Any], ...]

    @property
    def met(self) -> bool:
        """True if any cluster meets the deadline."""
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
            "batch": self.batch,
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
    """Find the nodes of each cluster for the training of a problem.

    Args:
        source: the problem; its global batch is kept.
        names: of clusters, or files with a `cluster` section; none: the problem's own and all of the catalogue.
        changes: keys of its sections in place of what is written.
        wanted: the question.
        known: registered strategies and the like.
        progress: called after each cluster.
        jobs: processes at work; None: one for each core there is for this one.

    Raises:
        InputError: the problem or a cluster cannot be used, or it does not say how many tokens there are.
    """
    if not all(0 < each < inf for each in (wanted.within, wanted.budget) if each is not None):
        raise InputError("--within and --budget must be finite and above 0.")
    with naming(source):
        problem, written = read_record(source, Problem, changes)
        if problem.model is None:
            raise InputError("profile: its measured times hold for one cluster only; give a model.")
        if problem.training.tokens is None:
            raise InputError("training.tokens is missing; add it, or use --tokens.")
    curve = None if wanted.curve is None else Path(wanted.curve)
    if curve is not None:
        check_writable(curve, source)
    base = Path(source).parent if isinstance(source, (str, Path)) else None
    own, tokens = enlarged(problem.cluster.name or "the problem's", COUNTED), problem.training.tokens
    cluster = evolve(problem.cluster, name=problem.cluster.name and own)
    training = _Training(evolve(problem, cluster=cluster), written, base, known, own)
    each = tuple(enlarged(name, COUNTED) for name in names) or tuple(dict.fromkeys((own, *_comparable(training))))
    alike = _alike([training.on(name) for name in each])
    found: dict[int, dict[str, Any]] = {}
    for place, answer in _answers(_Search(known, wanted), alike, jobs):
        for index, member in alike[place].members:
            found[index] = _answer_of(answer, alike[place], each[index], member)
            if progress is not None:
                progress(f"{each[index]} is answered", len(found), len(each))
    ordered = [found[index] for index in range(len(each))]
    refused = [answer["error"] for answer in ordered if answer["error"] is not None]
    if len(refused) == len(ordered):
        raise InputError(refused[0])
    rows = [row for answer in ordered for row in answer.pop("rows")]
    told = tuple({key: value for key, value in answer.items() if key != "error"} for answer in ordered)
    if curve is not None:
        write_text(curve, curve_lines(rows))
    return Recommendation(tokens, problem.training.global_batch, wanted, told)


def _comparable(training: "_Training") -> Iterator[str]:
    """Clusters of the catalogue; a cloud's type of machine as many times as the problem's own cluster has devices."""
    own = with_levels(training.on(training.own).cluster)
    devices = sum(prod(level.fanout for level in each.levels or ()) for each in own.pools or (own,))
    yield from (enlarged(name, devices) for name in clusters())


@frozen
class _Training:
    """The training in question, as written; `written` and `base` are of the file of `problem`."""

    problem: Problem
    written: Mapping[str, Any]
    base: Path | None
    known: Registry
    own: str

    def on(self, name: str) -> Problem:
        """It on one cluster, self-contained.

        Raises:
            InputError: there is no such cluster.
        """
        own = name == self.own
        spec = self.problem.cluster if own else ClusterSpec(name=name)
        if not own and is_file_name(name):  # It is beside whoever asks, not beside the problem.
            spec = evolve(spec, name=str(Path(name).absolute()))
        whole = self_contained(evolve(self.problem, cluster=spec), self.base, self.known)
        whole, _ = with_target(whole, {**self.written, "cluster": {}}, self.known)
        any_cluster(whole.cluster, self.known)
        return whole


@define
class _Alike:
    """Clusters that have the same answer: they differ in their names, and in networks around all of their devices.

    Attributes:
        problem: on the first of them, self-contained.
        members: each with its place among all, and the problem on it.
    """

    problem: Problem
    members: list[tuple[int, Problem]]


def _alike(problems: Sequence[Problem]) -> list[_Alike]:
    """Some problems by what decides their answer, those on one kind of device one after the other."""
    found: dict[str, _Alike] = {}
    for place, problem in enumerate(problems):
        bare = evolve(problem, cluster=with_levels(problem.cluster)).to_dict()
        levels = list(bare["cluster"].get("levels", ()))
        for index in range(len(levels) - 1, 0, -1):
            if levels[index]["fanout"] > 1:
                break
            levels[index] = levels[index].get("name")  # Plans say how busy each level is by its name.
        key = dumps({**bare, "cluster": {**bare["cluster"], "levels": levels}}, sort_keys=True)
        found.setdefault(key, _Alike(problem, [])).members.append((place, problem))
    return sorted(found.values(), key=lambda each: str(device_of(each.problem.cluster)))


def _answer_of(answer: dict[str, Any], alike: _Alike, name: str, problem: Problem) -> dict[str, Any]:
    """The answer of clusters alike, of the one of this name: plans carry the problem on so many of its nodes."""

    def carried(found: dict[str, Any], count: str) -> dict[str, Any]:
        if found["plan"] is None or problem == alike.problem:
            return found
        nodes = Nodes.of(problem.cluster)
        here = problem if nodes is None else nodes.on(problem, found[count])
        assert here is not None
        return {**found, "plan": {**found["plan"], "problem": here.to_dict()}}

    found = {key: answer[key] and carried(answer[key], "nodes") for key in FOUND}
    rows = [carried({"cluster": name, **row}, "uses") for row in answer["rows"]]
    return {"cluster": name, **answer, **found, "rows": rows}


@frozen
class _Search:
    """A search over clusters; `priced`: models priced on earlier ones, in this process."""

    known: Registry
    wanted: Wanted
    priced: PricedModels = field(factory=PricedModels, eq=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has a registry of its own, of what is installed."""
        return _search_elsewhere, (self.wanted, self.known.strict)

    def __call__(self, item: tuple[int, Problem]) -> tuple[int, dict[str, Any]]:
        """Search the cluster of a problem; its place among those asked about comes back too."""
        place, problem = item
        return place, self.known.run(lambda: self.of(problem))

    def of(self, problem: Problem) -> dict[str, Any]:
        """Search the cluster of a problem; one that cannot be used has an `error`."""
        blank = dict.fromkeys(("nodes", "devices_per_node", *FOUND, "proved", "reason"))
        answer: dict[str, Any] = {**blank, "price": None, "error": None, "rows": []}
        try:
            search = NodeSearch(problem, self.known, self.priced)
            answers = search.answers(self.wanted.within, self.wanted.budget)
            if leaves_risk_open(problem.training, problem.model) and all(
                answers[key] is None for key in ("fewest", "nearest")
            ):
                search = NodeSearch(at_risk(problem, EVEN_ODDS), self.known, self.priced)
                answers = search.answers(self.wanted.within, self.wanted.budget)
            sizes = search.sizes
            answer |= {
                "nodes": sizes.total,
                "devices_per_node": sizes.devices_per_node,
                "price": sizes.price,
                **answers,
            }
            if self.wanted.curve is not None:
                answer["rows"] = list(search.curve())
        except InputError as error:
            answer |= {"error": str(error), "reason": str(error)}
        return answer


def _search_elsewhere(wanted: Wanted, strict: bool) -> _Search:
    return _Search(registry(strict=strict), wanted)


def _answers(search: _Search, alike: Sequence[_Alike], jobs: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The place of each group of clusters and what is needed of it, as they come."""
    items = [(place, each.problem) for place, each in enumerate(alike)]
    engine = processes(jobs, search.known)
    yield from map(search, items) if engine is None else engine.submit(search, items)
