"""Sharded graphs: every combination of allowed strategy degrees and micro-batch sizes."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from attrs import field, frozen

from nest.catalogue import unknown_name
from nest.errors import InputError
from nest.graph import Block, OperatorGraph
from nest.hooks.protocols import Strategy, StrategyContext
from nest.instance import Cluster
from nest.spec import ProfileSpec, Training

FORESEEN = ("tp", "sp", "cp", "ep")  # Strategies of FORMATS.md: without their plug-in, they may be given with degree 1.

Model = TypeVar("Model")

Made = dict[tuple[int, tuple[tuple[str, int], ...]], Block]
"""Blocks by micro-batch size and by the strategies that made them, in order, with degrees."""

USUAL_MICRO_BATCHES = (1, 2, 4, 8)
"""Default micro-batch sizes, in samples; published Megatron-LM runs use no others (arXiv 2104.04473, table 1, and arXiv
2205.05198, table 3)."""


class Allowed(NamedTuple):
    """Degrees a problem allows one strategy."""

    place: str  # In the problem, such as `fixed.tp`.
    degrees: tuple[int | bool, ...]  # True stands for the highest one possible, False for 1.
    # Degrees of a list, if it or `fixed` refers to the highest degree: `fixed` is then one of the list's.
    listed: "Allowed | None" = None

    def among(self, possible: Sequence[int]) -> tuple[int, ...]:
        """Allowed degrees among the `possible`, ascending."""
        left = possible if self.listed is None else self.listed.among(possible)
        chosen = {max(left, default=1) if d is True else max(int(d), 1) for d in self.degrees}
        return tuple(degree for degree in left if degree in chosen)

    def __str__(self) -> str:
        own = f"{self.place} allows {', '.join(str(d).lower() for d in self.degrees)}"
        return own if self.listed is None else f"{own} and {self.listed}"


def participating(
    named: Container[str], registered: Mapping[str, Strategy], *, mixed: bool = False
) -> dict[str, Strategy]:
    """Strategies that candidates are made with.

    A strategy whose `by_default` is false takes part only if `strategies` or `fixed` has it `named`, or if the stages
    of a plan may differ (`search.mixed`): elsewhere it offers little that other decisions lack.
    """
    return {
        name: strategy
        for name, strategy in registered.items()
        if mixed or name in named or getattr(strategy, "by_default", True)
    }


def profile_degrees(profile: ProfileSpec | str | None) -> set[str]:
    """Names of degrees of a profile's candidates."""
    candidates = profile.candidates if isinstance(profile, ProfileSpec) else ()
    return {name for candidate in candidates for name in candidate.degrees}


def allowed_degrees(
    strategies: Mapping[str, Sequence[int | bool]], decided: Mapping[str, object], registered: Iterable[str]
) -> Mapping[str, Allowed]:
    """Degrees of each strategy in `strategies` and `fixed`; others are free.

    Raises:
        InputError: a degree is not a positive integer, or a strategy is unknown or not installed.
    """
    known = set(registered)
    result: dict[str, Allowed] = {}
    for name, degrees in strategies.items():
        if name not in known | set(FORESEEN):
            raise unknown_name("strategies", "strategy", name, known | set(FORESEEN), degrees)
        result[name] = Allowed(f"strategies.{name}", tuple(degrees))
    for name, value in decided.items():
        if name in known | set(FORESEEN):
            listed = result.get(name)
            highest = listed is not None and any(degree is True for degree in (value, *listed.degrees))
            own = (_degree(f"fixed.{name}", value),)
            result[name] = Allowed(f"fixed.{name}", own, listed if highest else None)
    for name, allowed in result.items():
        for degree in allowed.degrees:
            _degree(allowed.place, degree)
        if name not in known and any(degree not in (1, False) for degree in allowed.degrees):
            raise InputError(f"{allowed}, but no strategy is called {name!r}; `nest strategies` lists them.")
    return result


def _degree(place: str, value: object) -> int | bool:
    if isinstance(value, int) and (isinstance(value, bool) or value >= 1):
        return value
    raise InputError(f"{place} is {value!r}; it must be a whole number of at least 1, or true or false.")


def micro_batches(training: Training, fixed: object = None) -> tuple[int, ...]:
    """Micro-batch sizes in samples, ascending.

    Sizes that do not divide the batch are left out, unless `training.uneven_batch` is set; `fixed` is
    `fixed.micro_batch`.

    Raises:
        InputError: `fixed.micro_batch` is no size the batch can have, or no size is left.
    """
    place, sizes = "training.micro_batch", training.micro_batch
    if fixed is not None:
        if isinstance(fixed, bool) or not isinstance(fixed, int) or not 1 <= fixed <= training.global_batch:
            raise InputError(
                f"fixed.micro_batch is {fixed!r}; it must be a whole number from 1 to training.global_batch "
                f"({training.global_batch})."
            )
        place, sizes = "fixed.micro_batch", (fixed,)
    if sizes is None:
        sizes = tuple(size for size in USUAL_MICRO_BATCHES if size <= training.global_batch)
    fitting = sorted({s for s in sizes if training.uneven_batch or training.global_batch % s == 0})
    if not fitting:
        raise InputError(
            f"{place}: none of {', '.join(map(str, sizes))} divides training.global_batch "
            f"({training.global_batch}); change one, or set training.uneven_batch."
        )
    return tuple(fitting)


def chosen(registered: Mapping[str, Model], name: str | None, place: str, kind: str) -> Model:
    """Model of that name; None: the default, which is the first registered, a built-in.

    Raises:
        InputError: there is none; the text names `place`.
    """
    wanted = next(iter(registered), "") if name is None else name
    if wanted not in registered:
        raise unknown_name(place, kind, wanted, registered)
    return registered[wanted]


@frozen(eq=False, slots=False, repr=False)
class Family:
    """Blocks that differ only in the last strategies, each inside the regions of one parameter group."""

    block: Block  # After the strategies before them.
    last: tuple[Strategy, ...]  # Strategies still to apply; empty: `block` is complete.
    _sharding: "ShardedGraphs" = field(repr=False)

    @property
    def parts(self) -> "tuple[Family, ...]":
        """Families after the next strategy, by degree; empty if none is left."""
        made = self._sharding.under(self.block, self.last[:1]) if self.last else ()
        return tuple(Family(block, self.last[1:], self._sharding) for block in made)

    @property
    def blocks(self) -> Iterator[Block]:
        """All blocks of the family, in the order of degrees."""
        if not self.last:
            yield self.block
        else:
            for part in self.parts:
                yield from part.blocks

    @property
    def admitted(self) -> bool:
        """True if the cluster admits its block."""
        return self._sharding.context.cluster.admits(self.block.width)


def capacity_flags(block: Block, cluster: Cluster) -> tuple[bool, bool]:
    """Flags for room in a cluster for several blocks, and for both stages and replicas: at least four blocks."""
    blocks = cluster.size // block.width
    return blocks > 1, blocks >= 4


def group_changed(strategy: Strategy) -> str:
    """Parameter group in whose regions alone a strategy changes operators; empty: any."""
    group: str = getattr(strategy, "within", "")
    return group


class ShardedGraphs:
    """All blocks that strategies make of a graph, made on demand.

    Attributes:
        families: blocks under all strategies but the last, which change regions alone (`Strategy.within`), in the order
            of micro-batch sizes, then of degrees.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        strategies: Mapping[str, Strategy],
        allowed: Mapping[str, Allowed],
        micro_batches: Sequence[int],
        context: StrategyContext,
        watch: Callable[[], None] = lambda: None,
        made: Made | None = None,
    ) -> None:
        """Apply all strategies but the last.

        Args:
            graph: for one sample.
            strategies: in order of application.
            allowed: restrictions by strategy; others may take any of their degrees.
            micro_batches: samples per micro-batch.
            watch: called before each block; may raise to stop.
            made: reused blocks of the same strategies and `graph`; new ones are added.
        """
        self.context = context
        self._strategies, self._micro_batches, self._watch = strategies, micro_batches, watch
        self._refused: dict[str, set[int]] = {}
        self._made = {} if made is None else made
        self._known = dict(self._made)
        self._made.clear()
        starts = [Block(graph.with_samples(samples), samples) for samples in micro_batches]
        idle = {name for name in allowed if name in strategies and _idle(strategies[name], starts, context)}
        self._wanted = {name: limit for name, limit in allowed.items() if name not in idle}
        order = list(strategies.values())
        first = len(order)
        while first and group_changed(order[first - 1]):
            first -= 1
        self.families = tuple(
            Family(block, tuple(order[first:]), self) for start in starts for block in self.under(start, order[:first])
        )

    def under(self, block: Block, strategies: Sequence[Strategy]) -> Iterator[Block]:
        """Block under every allowed combination of some strategies, in the order of degrees."""
        for each in self._combinations(block, strategies):
            self._watch()
            yield each

    def _combinations(self, block: Block, strategies: Sequence[Strategy]) -> Iterator[Block]:
        """Same as `under`; records unused degrees of restrictions."""
        if not strategies:
            yield block
            return
        strategy, *rest = strategies
        chosen, possible = _chosen(strategy, self._wanted.get(strategy.name), block, self.context)
        if not chosen:
            self._refused.setdefault(strategy.name, set()).update(possible)
        for degree in chosen:
            key = block.micro_batch, (*block.degrees, (strategy.name, degree))
            changed = self._made[key] = self._known.get(key) or _applied(strategy, block, degree, self.context)
            yield from self._combinations(changed, rest)

    @property
    def least(self) -> int:
        """Lower bound on the number of blocks, except those that the cluster does not admit."""
        return sum(len(self._degrees(family.block, family.last[0])) if family.last else 1 for family in self.families)

    def _degrees(self, block: Block, strategy: Strategy) -> tuple[int, ...]:
        return _chosen(strategy, self._wanted.get(strategy.name), block, self.context)[0]

    def every(self) -> tuple[Block, ...]:
        """All blocks that the cluster admits, in the order of micro-batch sizes, then of degrees.

        Raises:
            InputError: a restriction leaves no degree, or no block can be placed; the text names the cause.
        """
        blocks = [block for family in self.families for block in family.blocks]
        placed = tuple(block for block in blocks if self.context.cluster.admits(block.width))
        if placed:
            return placed
        if self._refused and not blocks:
            name = next(name for name in self._strategies if name in self._refused)
            possible = ", ".join(str(degree) for degree in sorted(self._refused[name]))
            sizes = " or ".join(str(samples) for samples in self._micro_batches)
            raise InputError(
                f"{self._wanted[name]}, but this model and cluster with micro-batches of {sizes} only allow {name} "
                f"{possible}."
            )
        widths = ", ".join(str(width) for width in sorted({block.width for block in blocks}))
        groups = ", ".join(str(capacity) for capacity in self.context.cluster.capacities)
        raise InputError(
            f"strategies: no combination aligns with the cluster (widths {widths}, groups of {groups} devices); "
            "allow other degrees."
        )


def untried(
    graph: OperatorGraph,
    strategies: Mapping[str, Strategy],
    allowed: Mapping[str, Allowed],
    micro_batch: int,
    degrees: Mapping[str, int],
    context: StrategyContext,
) -> dict[str, tuple[int, ...]]:
    """Strategies to which `compose` gives other degrees than a block of `micro_batch` samples has, and these."""
    result: dict[str, tuple[int, ...]] = {}
    start = block = Block(graph.with_samples(micro_batch), micro_batch)
    for name, strategy in strategies.items():
        degree = degrees.get(name, 1)
        limit = None if _idle(strategy, [start], context) else allowed.get(name)
        chosen = _chosen(strategy, limit, block, context)[0]
        if degree not in chosen:
            result[name] = chosen
        block = _applied(strategy, block, degree, context)
    return result


def _idle(strategy: Strategy, starts: Sequence[Block], context: StrategyContext) -> bool:
    """True if a strategy that follows another has nothing to do in the whole model; restrictions then do not count.

    If only degrees of others leave it nothing to do, the restriction excludes these.
    """
    return hasattr(strategy, "follows") and not any({*strategy.degrees(start, context)} - {1} for start in starts)


def _chosen(
    strategy: Strategy, limit: Allowed | None, block: Block, context: StrategyContext
) -> tuple[tuple[int, ...], list[int]]:
    """Degrees to try, and all possible ones, ascending."""
    possible = sorted({1, *strategy.degrees(block, context)})
    if limit is not None:
        return limit.among(possible), possible
    # Of a strategy of which nothing is said, all degrees are tried, or those it thinks worth a search.
    worth = {1, *strategy.searched(block, context)} if hasattr(strategy, "searched") else possible
    return tuple(degree for degree in possible if degree in worth), possible


def _applied(strategy: Strategy, block: Block, degree: int, context: StrategyContext) -> Block:
    """Block sharded by `strategy`; degree 1 is recorded as not taking part."""
    return strategy.apply(block, degree, context) if degree > 1 else block.applied(strategy.name, 1, block.graph)
