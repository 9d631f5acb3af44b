"""Which of many candidates are priced at all: those that may beat a first plan, by what their operators compute."""

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
"""Blocks among which some are chosen to look for a first plan, and of these so many: as many of each size of
micro-batches, and of those whose activations fit into memory as of the others, which take less time alone."""

NEAR = 1.01
"""Times the step time of a first plan up to which candidates are priced at once: for the answer none slower is needed,
but beside it plans are looked for that are hardly slower."""


def can_be_worth(search: Search, registry: Registry) -> bool:
    """Whether compute says which candidates cannot have a plan as fast as another.

    All stages of a plan must have one candidate, and layers and steps take no less than all that one engine computes:
    of models of layer times and schedules of plug-ins nobody knows.
    """
    read = (*registry.layer_times().values(), *registry.schedules().values())
    plain = search.granularity != "operator" and not search.mixed and search.tensors != "direct"
    return plain and not any(isinstance(each, Guarded) for each in read)


@frozen(eq=False, repr=False)
class BoundedCandidates:
    """The candidates of a model, priced as far as plans need them.

    Each micro-batch is computed once, so that a step of `B` samples on `P` devices takes at least `B / P` times the
    device seconds that a candidate's layers take for a sample, whatever the schedule (PROBLEM.md section 4):
    recomputation, bubbles and devices left idle come on top.

    Attributes:
        made: the formulation, without candidates.
        sharded: the blocks of all candidates.
        with_priced: the formulation with some blocks priced, each once.
        waiting: who waits; when the time is up, no more are looked for.
        families: of the blocks.
    """

    made: Formulation
    sharded: ShardedGraphs
    with_priced: Callable[[Sequence[Block]], Formulation]
    waiting: Waiting
    families: tuple["BoundedFamily", ...] = field(init=False)

    @families.default
    def _bounded(self) -> tuple["BoundedFamily", ...]:
        assert self.made.pricing is not None
        assert self.made.classes is not None
        bounds = Bounds(self.made.pricing, numpy.bincount(self.made.classes.class_of).tolist())
        return tuple(BoundedFamily(family, bounds) for family in self.sharded.families)

    def begun(self, first_plan: Callable[[Formulation], FirstPlan | None], share: float, memory: float) -> Formulation:
        """The formulation with those candidates that may be as fast as a first plan, or hardly slower; else with all.

        Args:
            first_plan: a plan of a formulation's candidates; None: there is none.
            share: `B / P`, samples of a step for each device.
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
        """The formulation with all candidates that may have plans of at most so many device seconds for a sample.

        Args:
            most: device seconds.
            computed: the same on a network on which nothing that is sent takes time.
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
    """Blocks that a first plan is looked for of, the less they take the more of them; none: few are admitted."""
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
    """What bounds of the time of blocks are computed from.

    Attributes:
        pricing: prices operators.
        counts: layers of each class.
    """

    pricing: Pricing
    counts: Sequence[int]


@frozen(eq=False, slots=False, repr=False)
class BoundedFamily:
    """A family of blocks, and what the layers of each of them take at least.

    What the strategies that are left do not change is in each block of the family, and takes no less there than in the
    family's own block: it computes as much, and calls reach at least as far.

    Attributes:
        family: the blocks.
        bounds: what bounds are computed from.
        whole: the family that this is a part of; None: it is none.
    """

    family: Family
    bounds: Bounds
    whole: "BoundedFamily | None" = None
    _known: dict[int, dict[str, Operator]] = field(factory=dict, init=False)
    _loads: dict[tuple[int, bool], Array] = field(factory=dict, init=False)

    def within(self, most: float, computed: float = 0.0) -> Iterator["BoundedFamily"]:
        """The single blocks of the family whose bound is at most `most` device seconds for a sample.

        Or at most `computed`, that of what they compute alone.
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
        """The families that the next strategy makes of it, by degree."""
        return tuple(BoundedFamily(each, self.bounds, self) for each in self.family.parts)

    @property
    def saved(self) -> float:
        """Bytes that all layers save of a micro-batch, as the first stage of `1f1b` holds."""
        saved = 0.0
        for operators, count in zip(self.family.block.graph.by_layer, self.bounds.counts, strict=True):
            sizes = tensor_bytes(operators)
            saved += count * sum(
                sizes[name] for name in dict.fromkeys(name for each in operators for name in each.saves)
            )
        return saved

    @cached_property
    def least(self) -> float:
        """Device seconds that all layers of each block take for a sample at least, both passes, with what they send."""
        return self._least(silent=False)

    @cached_property
    def computed(self) -> float:
        """Device seconds that all layers of each block compute for a sample at least, both passes."""
        return self._least(silent=True)

    def _least(self, *, silent: bool) -> float:
        block, counts = self.family.block, self.bounds.counts
        whole = sum([count * float(self._load(index, silent).max(axis=1).sum()) for index, count in enumerate(counts)])
        return block.width / block.samples * whole

    def _load(self, index: int, silent: bool) -> Array:
        """The load of a class's layer in all blocks (`nest.formulate.pricing.loads`)."""
        key = (index, silent)
        if key not in self._loads:
            new = self._new(index)
            if self.whole and not new:
                return self.whole._load(*key)
            load = loads(new, self.family.block, self.bounds.pricing, silent=silent)
            self._loads[key] = self.whole._load(*key) + load if self.whole else load
        return self._loads[key]

    def _new(self, index: int) -> list[Operator]:
        """The operators of a class's layer that are in all blocks, but for those that are in all of `whole`."""
        before: Container[str] = self.whole._in_all(index) if self.whole else ()
        if not self.family.last:
            return [each for each in self.family.block.graph.by_layer[index] if each.name not in before]
        return [each for name, each in self._in_all(index).items() if name not in before]

    def _in_all(self, index: int) -> dict[str, Operator]:
        """The operators of a class's layer that are in all blocks, and call ranks that lie alike there, by name."""
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
