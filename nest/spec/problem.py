"""Problem files: their sections `profile`, `search` and `fixed`, and the whole (FORMATS.md)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from json import dumps
from typing import Any, ClassVar, get_args, get_type_hints

import attrs
from attrs import field, frozen

from nest.errors import FieldError, FieldErrors, InputErrors, Steps, dotted
from nest.io.names import hint
from nest.records import Record
from nest.spec.architecture import TransformerSpec
from nest.spec.cluster import ClusterSpec
from nest.spec.training import Training
from nest.spec.validators import all_different, at_least, at_least_or, between, degree, each, every, not_empty, one_of
from nest.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds

_EACH_NON_NEGATIVE = each(at_least(0))
_EACH_NON_NEGATIVE_OR_NONE = each(at_least(0), none=True)
_ROWS_NON_NEGATIVE = each(_EACH_NON_NEGATIVE)


@frozen(eq=False, repr=False)
class ProfileGroup(Record):
    """One named parameter group of a candidate; arrays run over the layers, per device before ZeRO.

    Attributes:
        ranks: device offsets inside a block with equal parameters.
        weights: bytes.
        gradients: bytes.
        optimizer: bytes.
        update: seconds of the optimizer step.
    """

    ranks: tuple[int, ...] = field(validator=every(not_empty, all_different, each(at_least(0))))
    weights: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    gradients: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    optimizer: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    update: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)


@frozen(eq=False, repr=False)
class ProfileRecompute(Record):
    """One recompute mode of a candidate; arrays run over the layers.

    Attributes:
        extra: seconds added to the backward pass.
        first: bytes for one micro-batch in flight; None if the layer cannot run in this mode.
        more: bytes for each further one.
        peak: transient bytes.
        stash_inputs: whether the stage's inputs are kept for each further micro-batch.
        busy: seconds per micro-batch that recomputed collectives occupy a device's port, a row of layers for each level
            of the network, innermost first; None: none are recomputed.
    """

    extra: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)
    first: tuple[Bytes | None, ...] = field(validator=_EACH_NON_NEGATIVE_OR_NONE)
    more: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    peak: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    stash_inputs: bool = False
    busy: tuple[tuple[Seconds, ...], ...] | None = field(default=None, validator=_ROWS_NON_NEGATIVE)


@frozen(eq=False, repr=False)
class ProfileCandidate(Record):
    """One candidate; arrays run over the layers, `edge_bytes` over the edges.

    Attributes:
        name: unique among the candidates.
        width: devices of one stage of one replica.
        samples: samples of a block per micro-batch.
        forward: seconds per micro-batch.
        backward: seconds per micro-batch.
        state: parameter groups by name.
        recompute: recompute modes by name.
        edge_bytes: bytes each device of the producer sends along each edge, per micro-batch.
        degrees: strategy degrees by name, for constraints and reports.
        micro_batch: samples per micro-batch of one data-parallel rank, a divisor of `samples`: in a block with several
            copies, each with samples of its own, those of one. With it, `dp` in constraints is `replicas * samples /
            micro_batch`; None: `replicas * width / (tp * cp)`.
        busy: seconds per micro-batch that a layer's collectives, hidden or not, occupy a device's port: a row of layers
            for each level of the network, innermost first (PROBLEM.md section 4, Ports); None: no ports.
        weight_gradients: seconds per micro-batch for weight gradients, at most half of `backward`; None: half of it.
        pool: name of the pool of these numbers; None: the cluster has no pools.
    """

    name: str
    width: int = field(validator=at_least(1))
    samples: int = field(validator=at_least(1))
    forward: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)
    backward: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)
    state: dict[str, ProfileGroup]
    recompute: dict[str, ProfileRecompute] = field(validator=not_empty)
    edge_bytes: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    degrees: dict[str, int] = field(factory=dict, validator=each(at_least(1)))
    micro_batch: int | None = field(default=None, validator=at_least(1))
    busy: tuple[tuple[Seconds, ...], ...] | None = field(default=None, validator=_ROWS_NON_NEGATIVE)
    weight_gradients: tuple[Seconds, ...] | None = field(default=None, validator=_EACH_NON_NEGATIVE)
    pool: str | None = None


@frozen(eq=False, repr=False)
class ProfileSpec(Record):
    """Layers, edges between them, and candidates.

    Attributes:
        layers: unique names.
        edges: `(producer, consumer)` layer indices; the edges of one producer carry one tensor, which counts once if
            several of them cross a cut: with the largest of their bytes.
        candidates: at least one.
    """

    layers: tuple[str, ...] = field(validator=every(not_empty, all_different))
    edges: tuple[tuple[int, int], ...]
    candidates: tuple[ProfileCandidate, ...] = field(validator=not_empty)

    def __attrs_post_init__(self) -> None:
        errors = list(self._edge_errors())
        if errors:
            raise FieldErrors(errors)

    def _edge_errors(self) -> Iterator[FieldError]:
        count = len(self.layers)
        for index, edge in enumerate(self.edges):
            for end, layer in enumerate(edge):
                if not 0 <= layer < count:
                    yield FieldError(("edges", index, end), f"is {layer}, but layers run from 0 to {count - 1}")
            if edge[0] == edge[1]:
                yield FieldError(("edges", index), f"goes from layer {edge[0]} to itself")


@frozen(eq=False, repr=False)
class Fixed(Record):
    """Decisions; `nest evaluate` completes them with framework defaults.

    Attributes:
        values: by name: any name of constraints (a strategy's degree, `pp`, `dp`, `zero` and the like), `sp` (true or
            false), `etp`, `recompute`, `recompute_rest`, `schedule`, `chunks`, `rank_order`, `zero_degree`.
        stages: per stage either a list of layer names, or a count of transformer blocks.
        pools: per stage the name of its pool, for `nest evaluate`; None: stages fill the pools one after the other.
    """

    REST_IN: ClassVar[str] = "values"

    values: dict[str, int | float | str | bool]
    stages: tuple[int | tuple[str, ...], ...] | None = None
    pools: tuple[str, ...] | None = field(default=None, validator=not_empty)


RANK_ORDERS = ("pp-inner", "dp-inner")
USUAL_RANK_ORDER = "dp-inner"
"""Megatron-LM's default order of ranks, `tp-cp-ep-dp-pp`: the replicas of one stage are adjacent."""


def usual_rank_order(allowed: Sequence[str], usual: str | None = None) -> str:
    """Rank order `usual`, else most frameworks'; else the first allowed one."""
    return order if (order := usual or USUAL_RANK_ORDER) in allowed else allowed[0]


ZERO_STAGES = (0, 1, 2, 3)
ALL_RANKS = "all"
"""Value of `search.zero_degree` for sharding over all ranks with equal parameters."""
RECOMPUTE_MODES = ("none", "selective", "full", "stage")
OFFLOAD = "offload"
"""Recompute mode with `activations` in `training.offload`: blocks keep them on the host."""

NO_TARGET = "none"
"""Target without limits on the search."""

TENSORS = ("relayed", "direct")
GRANULARITIES = ("layer", "block", "operator")


@frozen(eq=False, repr=False)
class Search(Record):
    """Choices of the search.

    Attributes:
        rank_order: rank orders (PROBLEM.md section 3).
        zero: ZeRO stages.
        recompute: names of recompute modes; None: all of a candidate's.
        recompute_layers: whether stages may recompute only their first blocks; None: with a model, not a profile.
        mixed: let stages of one plan use different candidates.
        granularity: possible cuts of stages: between any two layers (`layer`), not inside a branched region (`block`),
            or between operators (`operator`).
        zero_degree: most ranks for ZeRO sharding: numbers, or `all` for all with equal parameters.
        target: name of the exporter whose framework must be able to run the plan, or `none`: any may. None: the one of
            `training.stack`, if `nest solve` finds that it can run what the problem names.
        within: share of the least step time by which a simpler plan may be slower and still come first. None: 0.01 with
            a model, 0 with a profile.
        tensors: path of tensors that skip stages: `relayed` through the stages between, or `direct` from the stage that
            makes them. None: relayed.
    """

    rank_order: tuple[str, ...] = field(default=RANK_ORDERS, validator=every(not_empty, each(one_of(RANK_ORDERS))))
    zero: tuple[int, ...] = field(default=ZERO_STAGES, validator=every(not_empty, each(one_of(ZERO_STAGES))))
    recompute: tuple[str, ...] | None = field(default=None, validator=not_empty)
    recompute_layers: bool | None = None
    mixed: bool = False
    granularity: str = field(default="layer", validator=one_of(GRANULARITIES))
    zero_degree: tuple[int | str, ...] = field(
        default=(ALL_RANKS,), validator=every(not_empty, each(at_least_or(1, ALL_RANKS)))
    )
    target: str | None = None
    within: float | None = field(default=None, validator=between(0, 1))
    tensors: str | None = field(default=None, validator=one_of(TENSORS))

    @property
    def framework(self) -> str | None:
        """Exporter whose framework must be able to run the plan; None: any may."""
        return None if self.target == NO_TARGET else self.target


@frozen(eq=False, repr=False, slots=False)
class Problem(Record):
    """A model, a cluster and the choices of a search.

    Attributes:
        nest: version of the format.
        training: how the model is trained.
        cluster: the machines.
        model: a path or a name from `nest models`, a `TransformerSpec`, or the content of a `config.json` (a mapping
            with `model_type`).
        profile: candidates as numbers, or the path of their file; instead of `model`.
        strategies: allowed degrees of registered strategies, by name; others may use all admissible ones.
        search: choices of the search.
        constraints: expressions every plan must satisfy.
        fixed: decisions.
        costs: name of the cost model; None: the built-in one.
        collectives: name of the collective model; None: the built-in one.
        layer_times: name of the model that combines the times of a layer's operators; None: the built-in one.
    """

    nest: int = field(validator=one_of((1,)))
    training: Training
    cluster: ClusterSpec
    model: str | TransformerSpec | dict[str, Any] | None = None
    profile: str | ProfileSpec | None = None
    strategies: dict[str, tuple[int | bool, ...]] = field(
        factory=dict, validator=each(every(not_empty, each(degree())))
    )
    search: Search = Search()
    constraints: tuple[str, ...] = ()
    fixed: Fixed | None = None
    costs: str | None = None
    collectives: str | None = None
    layer_times: str | None = None

    def __attrs_post_init__(self) -> None:
        errors = [*self._model_errors(), *self._batch_errors(), *self._pool_errors()]
        if errors:
            raise FieldErrors(errors)

    def _model_errors(self) -> Iterator[FieldError]:
        if self.model is None and self.profile is None:
            yield FieldError(("model",), "is missing; give model or profile")
        if self.model is not None and self.profile is not None:
            yield FieldError(("profile",), "and model cannot both be given; leave one out")
        if self.profile is not None and self.training.offload:
            yield FieldError(("training", "offload"), "does not apply to a profile: its candidates state their bytes")
        if self.profile is not None and self.training.trained is not None:
            yield FieldError(("training", "trainable"), "says nothing of a profile, whose candidates state their bytes")
        if self.training.stored is not None and (told := self.training.precision) not in ("fp32", "fp16", "bf16"):
            yield FieldError(("training", "trainable", "stored"), f"goes with products in 16 or 32 bits, not in {told}")
        if self.profile is not None and self.training.stack is not None:
            yield FieldError(("training", "stack"), "does not apply to a profile: its candidates state their times")
        if self.profile is not None and self.training.tokens is not None and self.training.sequence_length is None:
            yield FieldError(("training", "sequence_length"), "is missing; training.tokens needs it")
        if isinstance(self.model, TransformerSpec) and self.training.sequence_length is None:
            yield FieldError(("training", "sequence_length"), "is missing; give the tokens per sample")

    def _batch_errors(self) -> Iterator[FieldError]:
        batch = self.training.global_batch
        for index, size in enumerate(self.training.micro_batch or ()):
            if size > batch:
                sentence = f"is {size}, above the global batch of {batch}"
                yield FieldError(("training", "micro_batch", index), sentence)
        if isinstance(self.profile, ProfileSpec):
            for index, candidate in enumerate(self.profile.candidates):
                if candidate.samples > batch:
                    sentence = f"is {candidate.samples}, above the global batch of {batch}"
                    yield FieldError(("profile", "candidates", index, "samples"), sentence)

    def _pool_errors(self) -> Iterator[FieldError]:
        if self.cluster.name is not None or isinstance(self.cluster.topology, str):
            return  # What they stand for may have pools.
        names = None if self.cluster.pools is None else [each.name for each in self.cluster.pools]
        for stage, name in enumerate((self.fixed.pools if self.fixed is not None else None) or ()):
            if name not in (names or ()):
                known = f"it is one of {', '.join(names)}" if names else "the cluster has no pools"
                yield FieldError(("fixed", "pools", stage), f"is {name!r}, but no pool has this name; {known}")
        if names is not None and self.search.mixed:
            yield FieldError(("search", "mixed"), "does not support cluster.pools; leave it out")
        if names is not None and self.search.tensors == "direct":
            yield FieldError(("search", "tensors"), "cannot be direct with cluster.pools; leave it out")
        for index, candidate in enumerate(self.profile.candidates if isinstance(self.profile, ProfileSpec) else ()):
            place = ("profile", "candidates", index, "pool")
            if names is None and candidate.pool is not None:
                yield FieldError(place, f"is {candidate.pool!r}, but the cluster has no pools; give cluster.pools")
            elif names is not None and candidate.pool is None:
                yield FieldError(place, f"is missing; it is one of {', '.join(names)}")
            elif names is not None and candidate.pool not in names:
                meaning = hint(str(candidate.pool), names)
                sentence = f"is {candidate.pool!r}, but no pool has this name" + f"; {meaning}" * bool(meaning)
                yield FieldError(place, sentence)

    @property
    def decided(self) -> dict[str, int | float | str | bool]:
        """Values of `fixed` by name; empty by default."""
        return self.fixed.values if self.fixed is not None else {}

    @property
    def replayed(self) -> bool:
        """True if every plan is priced by its replay (`training.price`)."""
        price = self.training.price
        return self.model is not None if price is None else price == "replay"

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain mappings, lists and numbers, in the form of FORMATS.md.

        Lists with default values are omitted if `fixed` decides, as they would contradict decisions that nobody
        restricted.
        """
        from nest.io.structuring import unstructure

        written: dict[str, Any] = unstructure(self)
        for name, section, usual in (("schedule", "training", Training(1)), ("zero_degree", "search", Search())):
            if name in self.decided and getattr(getattr(self, section), name) == getattr(usual, name):
                del written[section][name]
        return written

    def refuse_missing_units(self) -> None:
        """Refuse bandwidths, memories, speeds and latencies without a unit in a problem with a model.

        A profile's numbers only matter relative to each other.

        Raises:
            InputErrors: every such number, with its place and the likely meaning.
        """
        if self.model is not None:
            missing = [*_missing(self.training, ("training",)), *_missing(self.cluster, ("cluster",))]
            if missing:
                raise InputErrors(missing)

    @cached_property
    def text(self) -> str:
        """Text form, equal for problems that are written alike, in any order of keys."""
        return dumps(self.to_dict(), sort_keys=True)


LEAST: Mapping[object, tuple[float, str, str]] = {
    BytesPerSecond: (1e6, "bytes per second", "GB/s"),
    Bytes: (1e6, "bytes", "MiB"),
    FlopPerSecond: (1e6, "FLOP per second", "TFLOP/s"),
}
"""Least plausible figures (except 0), their units, and the unit that people leave out."""

USUAL = 1e4
"""Largest figure in the unit that people leave out."""

LONGEST = 1.0
"""Seconds; no link's latency and no kernel's launch takes as long."""


def _missing(record: Any, steps: Steps) -> Iterator[str]:
    hints = get_type_hints(type(record))
    for name in attrs.fields_dict(type(record)):
        value = getattr(record, name)
        for kind in (hints[name], *get_args(hints[name])):
            if (kind in LEAST or kind is Seconds) and isinstance(value, (int, float)):
                yield from _missing_unit_errors(value, kind, dotted((*steps, name)))
        for index, item in enumerate(value) if isinstance(value, tuple) else ():
            if attrs.has(type(item)):
                yield from _missing(item, (*steps, name, index))
        if attrs.has(type(value)):
            tag = getattr(value, "WRITTEN_UNDER", None)
            yield from _missing(value, (*steps, name) if tag is None else (*steps, name, tag))


def _missing_unit_errors(value: float, kind: object, place: str) -> Iterator[str]:
    if kind is Seconds:
        if value >= LONGEST:
            yield f"{place}: {value:g} is {value:g} seconds; did you mean {value:g} us?"
        return
    least, unit, meant = LEAST[kind]
    if 0 < value < least:
        meant = "GiB" if place.endswith(("memory", "reserve")) else meant
        hint = f"did you mean {value:g} {meant}?" if value < USUAL else f"give its unit, as in 80 {meant}."
        yield f"{place}: {value:g} is {value:g} {unit}; {hint}"
