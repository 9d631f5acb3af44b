"""Space of allowed plans, and usual decisions."""

from attrs import frozen

from nest.instance.schedule import Schedule, Weights, weights_of
from nest.records import Record
from nest.spec.constraints import Constraint


@frozen(eq=False, repr=False)
class Usual(Record):
    """Default decisions of a framework.

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
    """Allowed plans, beyond the candidates themselves (PROBLEM.md sections 3 and 5).

    Attributes:
        global_batch: samples per optimizer step.
        uneven_batch: `M` may be rounded up.
        exposed: share of data-parallel communication that is not hidden (`e`); with `hiding`, its least share.
        exposed_often: same for ZeRO 2 and 3 communication in every micro-batch; None: `exposed`.
        whole_gradients: ZeRO 2 adds up the gradients of all micro-batches and reduces them once per batch, with the
            costs and memory of ZeRO 1; else as in PROBLEM.md section 4.
        adapters: only adapters beside frozen weights are trained, so ZeRO 1 and 2 shard almost nothing: they cost and
            keep the same as ZeRO 0, as no framework gathers weights that no step changes.
        by_products: undecided stages have equal shares of the parameters behind the embedding, not of blocks.
        schedules: pipeline schedules to choose from, preferred first.
        rank_orders: rank orders to choose from, preferred first.
        zero: ZeRO stages to choose from, preferred first.
        recompute: names of recompute modes to choose from; None: all of a candidate's.
        constraints: on every plan.
        partition: layers of each stage, if given.
        mixed: stages of one plan may use different candidates with the same samples.
        together: groups of layers that no cut may separate, besides those of `constraints`.
        blocks: units for schedules of several chunks: layers of each transformer block, in order, with the embedding in
            the first and the head in the last. None: no plan has several chunks.
        blocks_and_ends: same with embedding and head as blocks of their own: the first chunk may hold only the
            embedding, the last only the head. With `even` they count so only if chunks divide evenly no other way.
            None: never.
        even: the framework splits blocks evenly: stage `i` of `s` holds the `i`-th of `s` equal runs, and schedules of
            several chunks only have even splits.
        hidden_messages: names of the schedules with which messages between stages hide under the compute of the steady
            state, as far as that lasts (section "Messages that hide" of docs/explanation/problem.md).
        zero_degrees: most ranks for ZeRO sharding to choose from, preferred first; None among them: all with equal
            parameters. A number must divide the ranks of each parameter group into equal shard groups.
        hiding: data-parallel communication overlaps with compute only as far as that lasts (section "Hiding" of
            docs/explanation/problem.md); else only `exposed` counts.
        synchronisation: ratio of communication once per batch to the collective model's seconds.
        sharded_synchronisation: factor on that with ZeRO 1 and up.
        direct: a tensor that skips stages is sent directly from its maker to its readers, not through the stages
            between; schedules then have one chunk per stage, and the network is the cluster's levels.
        wishes: constraints that refuse no plan: for a decided plan, unsatisfied ones are reported.
        alike: the stages of a plan on several pools are split alike, whatever their devices (`Candidate.split`).
        replayed: every schedule's plans are also priced by their replay; else not those with `closed_form`
            (`training.price`).
        most_pools: most pools of a plan; None: any number.
        usual: decisions that plans prefer if they cost little.
        partial: names of partial recompute modes, `nest.instance.Partial`, preferred first.
        units: their blocks: layers of each transformer block in pipeline order; single layers without blocks.
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
    by_products: bool = False
    direct: bool = False
    hidden_messages: tuple[str, ...] = ()
    alike: bool = False
    replayed: bool = False
    most_pools: int | None = None
    usual: Usual = Usual()
    partial: tuple[str, ...] = ()
    units: tuple[tuple[int, ...], ...] = ()

    def replays(self, schedule: Schedule) -> bool:
        """True if a schedule's plans are also priced by their replay; it needs an order of passes."""
        return hasattr(schedule, "order") and (self.replayed or not getattr(schedule, "closed_form", False))

    @property
    def often_exposed(self) -> float:
        """Exposed share of ZeRO communication in every micro-batch, however much compute there is."""
        return self.exposed if self.exposed_often is None else self.exposed_often

    def hides(self, schedule: str) -> bool:
        """True if messages between stages hide with this schedule."""
        return schedule in self.hidden_messages

    def weights(self, schedule: Schedule, micro_batches: int, stages: int) -> Weights:
        """Weights of a schedule, with its hiding of messages."""
        return weights_of(schedule, micro_batches, stages, hides=self.hides(schedule.name))

    def effective_zero(self, zero: int) -> int:
        """ZeRO stage of PROBLEM.md section 4 that determines communication and memory of a stage with `zero`."""
        if self.adapters and zero < 3:
            return 0
        return 1 if zero == 2 and self.whole_gradients else zero
