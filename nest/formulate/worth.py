"""Lower bounds on candidates from compute time, used to price only those that can win."""

from collections.abc import Callable, Container, Iterator, Sequence
from functools import cached_property
from math import inf

import numpy
from attrs import evolve, field, frozen

from nest.formulate.formulation import FirstPlan, Formulation
from nest.formulate.pricing import Pricing, loads
from nest.formulate.recompute import tensor_bytes
from nest.formulate.shard import Family, ShardedGraphs, group_changed
from nest.graph import Block, Operator
from nest.graph.sharded_graph import region
from nest.hooks.calls import Guarded
from nest.hooks.registry import Registry
from nest.instance import Array
from nest.solve.effort import Waiting, least_first
from nest.spec.problem import Search
from nest.tolerances import LIMIT_SLACK

FEW, TRIED = 256, 32
"""Blocks to choose from for a first plan, and the number chosen: equally many of each micro-batch size, and of those
whose activations fit in memory and of others, which may take less time alone."""

NEAR = 1.01
"""Factor over the step time of a first plan up to which candidates are priced at once: the answer needs none slower,
but slightly slower plans are also sought."""


def can_be_worth(search: Search, registry: Registry) -> bool:
    """True if compute alone can rule out candidates.

    All stages of a plan must share one candidate, and layers and steps must take at least the compute of one engine,
    which is unknown for layer-time models and schedules of plug-ins.
    """
    read = (*registry.layer_times().values(), *registry.schedules().values())
    plain = search.granularity != "operator" and not search.mixed and search.tensors != "direct"
    return plain and not any(isinstance(each, Guarded) for each in read)


@frozen(eq=False, repr=False)
class BoundedCandidates:
    """Candidates of a model, priced only if needed.

    Each micro-batch is computed once, so a step of `B` samples on `P` devices takes at least `B / P` times the device
    seconds per sample of a candidate's layers, for any schedule (PROBLEM.md section 4); recomputation, bubbles and idle
    devices come on top.
    """

    made: Formulation  # The formulation, without candidates.
    sharded: ShardedGraphs  # Blocks of all candidates.
    with_priced: Callable[[Sequence[Block]], Formulation]  # The formulation with some blocks priced, each once.
    waiting: Waiting  # Its deadline ends the pricing.
    families: tuple["BoundedFamily", ...] = field(init=False)  # Of the blocks.

    @families.default
    def _bounded(self) -> tuple["BoundedFamily", ...]:
        assert self.made.pricing is not None
        assert self.made.classes is not None
        bounds = Bounds(self.made.pricing, numpy.bincount(self.made.classes.class_of).tolist())
        return tuple(BoundedFamily(family, bounds) for family in self.sharded.families)

    def begun(self, first_plan: Callable[[Formulation], FirstPlan | None], share: float, memory: float) -> Formulation:
        """Formulation with the candidates that may be as fast as a first plan, or slightly slower; else with all.

        Args:
            first_plan: finds a plan of a formulation's candidates; None: there is none.
            share: `B / P`, samples of a step per device.
            memory: bytes of a device.

        Raises:
            NoPlanYet: the time is up before there is a first plan.
        """
        few = _tried(self.families, memory, self.waiting.watch)
        if not few:
            return self.up_to(inf, inf)
        tried = evolve(self.with_priced(few), complete_to=0.0)
        known = first_plan(tried)
        if known is None:
            return self.up_to(inf, inf)
        result = self.up_to(known[1] * NEAR / share, 0.0)
        if not result.complete_to:
            return evolve(tried, first=known)
        return evolve(result, first=(known[0].among(tried.candidates, result.candidates), known[1]))

    def up_to(self, most: float, computed: float) -> Formulation:
        """Formulation with all candidates that may have plans of at most `most` device seconds per sample.

        `computed` is the same limit on a network with free communication.
        """
        left, most = list[Block](), most or inf
        while not left and most < inf:
            for family in self.families:
                if self.waiting.deadline.passed:
                    return evolve(self.made, complete_to=0.0)
                self.waiting.watch()
                blocks = family.within(most * (1 + LIMIT_SLACK), computed * (1 + LIMIT_SLACK))
                left += (each.family.block for each in blocks)
            most *= 1 if left else 2
        # Where no block is left, sharding says why.
        result = self.with_priced(left or self.sharded.every())
        if not result.complete_to or most == inf:
            return result
        return evolve(result, complete_to=max(most, computed), computed_to=computed, bounded=self)


def _tried(families: Sequence["BoundedFamily"], memory: float, watch: Callable[[], None]) -> list[Block]:
    """Blocks to search for a first plan, more of the faster ones; empty: few are admitted."""
    groups: dict[tuple[bool, int], list[BoundedFamily]] = {}
    for family in families:
        watch()
        groups.setdefault((family.saved <= memory, family.family.block.micro_batch), []).append(family)
    tried = []
    for group in groups.values():
        blocks: list[BoundedFamily] = []
        for family in group:
            watch()
            blocks += family.within(inf)
            if len(blocks) >= FEW // len(groups):
                break
        least = numpy.array([each.least for each in blocks])
        tried += [blocks[index] for index in least_first(least, max(TRIED // len(groups), 1))]
    return [each.family.block for each in tried]


@frozen
class Bounds:
    """Data for lower bounds on blocks."""

    pricing: Pricing
    counts: Sequence[int]  # Layers of each class.


@frozen(eq=False, slots=False, repr=False)
class BoundedFamily:
    """A family of blocks, with lower bounds on their layers.

    Parts that the remaining strategies do not change are in each block of the family, and take no less there than in
    the family's own block: equal compute, and calls that reach at least as far.
    """

    family: Family  # The blocks.
    bounds: Bounds
    whole: "BoundedFamily | None" = None  # The family that this is a part of; None: none.
    _known: dict[int, dict[str, Operator]] = field(factory=dict, init=False)
    _loads: dict[tuple[int, bool], Array] = field(factory=dict, init=False)

    def within(self, most: float, computed: float = 0.0) -> Iterator["BoundedFamily"]:
        """Single blocks of the family with a bound of at most `most` device seconds per sample.

        Or of at most `computed` for compute alone.
        """
        if most < inf and self.least > most and (not computed or self.computed > computed):
            return
        if not self.family.last:
            if self.family.admitted:
                yield self
            return
        for part in self.parts:
            yield from part.within(most, computed)

    @cached_property
    def parts(self) -> "tuple[BoundedFamily, ...]":
        """Families after the next strategy, by degree."""
        return tuple(BoundedFamily(each, self.bounds, self) for each in self.family.parts)

    @property
    def saved(self) -> float:
        """Bytes that all layers save of a micro-batch, as on the first stage of `1f1b`."""
        saved = 0.0
        for operators, count in zip(self.family.block.graph.by_layer, self.bounds.counts, strict=True):
            sizes = tensor_bytes(operators)
            saved += count * sum(
                sizes[name] for name in dict.fromkeys(name for each in operators for name in each.saves)
            )
        return saved

    @cached_property
    def least(self) -> float:
        """Lower bound (device seconds per sample) on all layers of each block, both passes, with communication."""
        return self._least(silent=False)

    @cached_property
    def computed(self) -> float:
        """Lower bound (device seconds per sample) on the compute of all layers of each block, both passes."""
        return self._least(silent=True)

    def _least(self, *, silent: bool) -> float:
        block, counts = self.family.block, self.bounds.counts
        whole = sum([count * float(self._load(index, silent).max(axis=1).sum()) for index, count in enumerate(counts)])
        return block.width / block.samples * whole

    def _load(self, index: int, silent: bool) -> Array:
        """Load of a class's layer in all blocks (`nest.formulate.pricing.loads`)."""
        key = (index, silent)
        if key not in self._loads:
            new = self._new(index)
            if self.whole and not new:
                return self.whole._load(*key)
            load = loads(new, self.family.block, self.bounds.pricing, silent=silent)
            self._loads[key] = self.whole._load(*key) + load if self.whole else load
        return self._loads[key]

    def _new(self, index: int) -> list[Operator]:
        """Operators of a class's layer in all blocks, except those in all of `whole`."""
        before: Container[str] = self.whole._in_all(index) if self.whole else ()
        if not self.family.last:
            return [each for each in self.family.block.graph.by_layer[index] if each.name not in before]
        return [each for name, each in self._in_all(index).items() if name not in before]

    def _in_all(self, index: int) -> dict[str, Operator]:
        """Operators of a class's layer in all blocks whose calls have equally placed ranks, by name."""
        if index not in self._known:
            block, groups = self.family.block, {group_changed(each) for each in self.family.last}
            operators = block.graph.by_layer[index]
            changed = frozenset[str]().union(*(region(operators, group) for group in groups))
            anew = {fold.name for fold in block.folds if fold.group in groups}
            kept = [each for each in operators if each.name not in changed]
            self._known[index] = {
                each.name: each
                for each in kept
                if each.collective is None or anew.isdisjoint([call.axis for call in each.calls])
            }
        return self._known[index]
