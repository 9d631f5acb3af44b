"""How many nodes of which cluster a training needs: the fewest in time, the cheapest, the fastest for the money.

More nodes are not always faster, so that no bisection finds the fewest: a replica owns as many devices as there are for
it (PROBLEM.md section 3), so that with more of them it may straddle nodes where it did not; blocks of 16 devices
need an even number of nodes of 8; and where there is room for four blocks they are in one group of ranks more, which
takes memory. What never rises is the least time of n nodes or fewer, as nodes may be left idle. So the fewest are
found by asking every number below, each proved to miss the deadline.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from nest.catalogue import clusters
from nest.errors import InputError
from nest.formulate.pools import any_cluster
from nest.formulate.problem import Changes, Source, naming, read_record, self_contained
from nest.formulate.target import with_target
from nest.hooks.registry import Registry, registry
from nest.io import check_writable, is_file_name, write_text
from nest.spec import ClusterSpec, Problem
from nest.whatif.curve import curve_lines
from nest.whatif.node_search import NodeSearch
from nest.whatif.sweep.run import processes

Told = Callable[[str, int, int], None]
"""Called with which cluster is answered, how many are, and how many there are."""


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
        any_cluster(whole.cluster, self.known)
        blank = dict.fromkeys(("nodes", "devices_per_node", "fewest", "cheapest", "fastest", "nearest", "reason"))
        answer: dict[str, Any] = {"cluster": name, **blank, "price": None, "error": None, "rows": []}
        try:
            search = NodeSearch(whole, self.known)
            sizes = search.sizes
            answer |= {"nodes": sizes.total, "devices_per_node": sizes.devices_per_node, "price": sizes.price}
            answer |= search.answers(self.wanted.within, self.wanted.budget)
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
