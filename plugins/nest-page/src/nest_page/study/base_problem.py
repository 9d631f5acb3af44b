"""What all rows of a study share: the base problem, from which the page has its title and sizes."""

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from nest.hooks.registry import registry
from nest.io import structure
from nest.public.text import model_name, title
from nest.spec import Problem
from nest.units import listed
from nest_page.drawing import clusters_of, sizes_of
from nest_page.records import Fold, Listing, Section
from nest_page.sections import problem_text
from nest_page.study.points import Study

VARIES = "(varies)"
"""In place of what is not alike in all rows."""

MOST_NAMED = 3
"""Models, clusters or keys that the title names; of more it says how many there are."""


@define
class Shared:
    """The problem that rows have in common, and their clusters in words.

    Attributes:
        problem: with `VARIES` in place of what differs.
        first: the problem of the first row.
        clusters: each once, in the order of the rows.
    """

    problem: dict[str, Any] = field(factory=dict)
    first: dict[str, Any] = field(factory=dict)
    clusters: dict[str, None] = field(factory=dict)

    def add(self, plan: Mapping[str, Any] | None) -> None:
        """Count a row in, by its plan; a row without one says nothing."""
        if not plan:
            return
        problem, summary = plan["problem"], plan.get("summary") or {}
        self.first = self.first or problem
        self.problem = problem if not self.problem else _alike(self.problem, problem)
        if plan.get("stages"):
            counts = [each["devices"] for each in summary.get("pools") or [summary]]
            self.clusters[title("", problem["cluster"], counts).removeprefix(" on ")] = None

    def title(self, study: Study) -> str:
        """`Llama 3 8B on 16 H100 SXM by device memory and spine bandwidth`."""
        axes = [study.axes[index] for index in study.varying]
        one = model_name(self.first.get("model")) if self.first else "Study"
        models = next((axis.values for axis in axes if axis.key == "model"), (one,))
        varied = [axis.name for axis in axes if axis.key != "model"]
        where = f" on {_named(tuple(self.clusters), 'clusters')}" if self.clusters else ""
        return f"{_named(models, 'models')}{where}" + (f" by {_named(varied, 'keys')}" if varied else "")

    def sizes(self) -> tuple[str, ...]:
        """Model, cluster and batch in words, each if all rows have the same."""
        if not self.first:
            return ()
        problem, training = structure(self.first, Problem), self.problem["training"]
        cluster = self.problem["cluster"]
        levels = cluster.get("levels") if isinstance(cluster, dict) else VARIES
        fanouts = [each["fanout"] if isinstance(each, dict) else VARIES for each in levels or ()]
        parts = (
            self.problem.get("model"),
            cluster if levels is None else fanouts,
            [training.get(key) for key in ("global_batch", "sequence_length")],
        )
        known = registry()
        sizes = sizes_of(problem, clusters_of(problem, known), known)
        return tuple(size for size, part in zip(sizes, parts, strict=True) if size and VARIES not in json.dumps(part))

    def sections(self) -> tuple[Section, ...]:
        """The problem as the last section; none: no row has one."""
        if not self.problem:
            return ()
        listing = Listing("problem.json", problem_text(self.problem))
        said = f"What the problems of all rows share; what differs between them says `{VARIES}`."
        folds = (Fold("problem.json", (listing,)),)
        return (Section("base", "Base problem", paragraphs=(said,), more=folds, more_title="The problem as read"),)


def _alike(one: Any, two: Any) -> Any:
    if one == two:
        return one
    if isinstance(one, dict) and isinstance(two, dict):
        return {key: _alike(one.get(key, VARIES), two.get(key, VARIES)) for key in {**one, **two}}
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [_alike(each, other) for each, other in zip(one, two, strict=True)]
    return VARIES


def _named(names: tuple[str, ...] | list[str], what: str) -> str:
    return listed(list(names)) if len(names) <= MOST_NAMED else f"{len(names):,} {what}"
