"""Which plans a problem allows, and which decisions are usual."""

from attrs import frozen

from nest.instance.schedule import Schedule, Weights, weights_of
from nest.records import Record
from nest.spec.constraints import Constraint


@frozen(eq=False, repr=False)
class Usual(Record):
    """The decisions of a framework that is told nothing else.

    Attributes:
        schedule: name of the pipeline schedule.
        zero: ZeRO stage.
        rank_order: rank order.
    """

    schedule: str = ""
    zero: int = 0
    rank_order: str = ""


@frozen(eq=False, repr=False)
class Space(Record):
    """Which plans are allowed, beyond the candidates themselves (PROBLEM.md sections 3 and 5).

    Attributes:
        global_batch: samples per optimizer step.
        uneven_batch: whether `M` may be rounded up.
        exposed: share of data-parallel communication that is not hidden (`e`); with `hiding`, that no compute hides.
        exposed_often: the same of what ZeRO 2 and 3 send in every micro-batch; None: as `exposed`.
        whole_gradients: whether ZeRO 2 adds up the gradients of all micro-batches and reduces them once per batch, so
            that it costs and keeps what ZeRO 1 does; else it is that of PROBLEM.md section 4.
        adapters: whether adapters beside frozen weights are all that is trained, so that ZeRO 1 and 2 shard next to
            nothing: they cost and keep what ZeRO 0 does, as no framework gathers weights that no step changes.
        schedules: pipeline schedules to choose from, preferred first.
        rank_orders: rank orders to choose from, preferred first.
        zero: ZeRO stages to choose from, preferred first.
        recompute: names of recompute modes to choose from; None: all of a candidate's.
        constraints: what every plan must satisfy.
        partition: when given, the layers of each stage.
        mixed: whether stages of one plan may use different candidates with the same samples.
        together: groups of layers that no cut may part, beside those of `constraints`.
        blocks: what schedules of several chunks split: the layers of each transformer block, in order, the embedding
            with the first and the head with the last. None: no plan has several chunks.
        blocks_and_ends: the same where embedding and head count as blocks of their own: the first chunk may hold the
            embedding alone, the last the head alone. With `even` they count so where chunks come out even only so.
            None: they never do.
        even: whether the framework splits them evenly: stage `i` of `s` holds the `i`-th of `s` equal runs, and of
            schedules of several chunks only even splits are allowed.
        hidden_messages: names of the schedules with which messages between stages hide under the compute of the steady
            state, as far as that lasts (section "Messages that hide" of docs/explanation/problem.md).
        zero_degrees: ranks over which ZeRO may shard at most, to choose from, preferred first; None among them: all
            that hold the same parameters. One that divides the ranks of a parameter group into no equal shard groups
            is no choice.
        hiding: whether data-parallel communication overlaps with compute only as far as that lasts (section "Hiding" of
            docs/explanation/problem.md); else `exposed` says it all.
        synchronisation: seconds that what is sent once per batch takes, over those of the collective model.
        sharded_synchronisation: what that is multiplied by with ZeRO 1 and up.
        direct: whether a tensor that skips stages is sent straight from the stage that makes it to those that read it,
            in place of through the stages between; then schedules have one chunk for each stage, and there is no
            network but the cluster's levels.
        wishes: constraints that refuse no plan: of a plan that is already decided it is told which it does not satisfy.
        alike: whether the stages of a plan on several pools are split alike, whatever their devices
            (`Candidate.split`).
        replayed: whether every schedule's plans are priced by their replay, too; else those with `closed_form` are not
            (`training.price`).
        most_pools: pools that a plan may use; None: any number.
        usual: decisions that plans prefer where they cost little.
        partial: names of the parts of stages that may be recomputed, `nest.instance.Partial`, preferred first.
        units: what is counted there: layers of each transformer block in pipeline order; each layer alone where a
            problem has no blocks.
    """

    global_batch: int
    uneven_batch: bool
    exposed: float
    schedules: tuple[Schedule, ...]
    rank_orders: tuple[str, ...]
    zero: tuple[int, ...]
    recompute: tuple[str, ...] | None = None
    constraints: tuple[Constraint, ...] = ()
    partition: tuple[tuple[int, ...], ...] | None = None
    mixed: bool = False
    together: tuple[tuple[int, ...], ...] = ()
    blocks: tuple[tuple[int, ...], ...] = ()
    blocks_and_ends: tuple[tuple[int, ...], ...] = ()
    even: bool = False
    zero_degrees: tuple[int | None, ...] = (None,)
    hiding: bool = False
    synchronisation: float = 1.0
    sharded_synchronisation: float = 1.0
    wishes: tuple[Constraint, ...] = ()
    exposed_often: float | None = None
    whole_gradients: bool = False
    adapters: bool = False
    direct: bool = False
    hidden_messages: tuple[str, ...] = ()
    alike: bool = False
    replayed: bool = False
    most_pools: int | None = None
    usual: Usual = Usual()
    partial: tuple[str, ...] = ()
    units: tuple[tuple[int, ...], ...] = ()

    def replays(self, schedule: Schedule) -> bool:
        """Whether a schedule's plans are priced by their replay, too; what says no order of passes cannot be."""
        return hasattr(schedule, "order") and (self.replayed or not getattr(schedule, "closed_form", False))

    @property
    def often_exposed(self) -> float:
        """Share of what ZeRO sends in every micro-batch that is exposed, however much compute there is."""
        return self.exposed if self.exposed_often is None else self.exposed_often

    def hides(self, schedule: str) -> bool:
        """Whether messages between stages hide with the schedule of this name."""
        return schedule in self.hidden_messages

    def weights(self, schedule: Schedule, micro_batches: int, stages: int) -> Weights:
        """The weights of a schedule, as messages hide with it or not."""
        return weights_of(schedule, micro_batches, stages, hides=self.hides(schedule.name))

    def effective_zero(self, zero: int) -> int:
        """The ZeRO stage of PROBLEM.md section 4 by which a stage with `zero` sends and keeps."""
        if self.adapters and zero < 3:
            return 0
        return 1 if zero == 2 and self.whole_gradients else zero
