"""Plan documents made up from decisions alone: where ranks lie hangs on nothing else."""

from typing import Any

from attrs import frozen
from hypothesis import strategies as st

from nest.spec import CandidateSummary, PlanDocument, StageRecord


@frozen
class Decisions:
    """What PROBLEM.md section 3 needs to say where blocks lie.

    Attributes:
        fanouts: of the levels, innermost first.
        tp: tensor-parallel degree.
        cp: context-parallel degree.
        copies: data-parallel ranks inside a block.
        etp: expert-tensor-parallel degree.
        ep: expert-parallel degree.
        replicas: `d`.
        rank_order: `pp-inner` or `dp-inner`.
        places: of each stage in its replica, in widths of a block; gaps are allowed.
    """

    fanouts: tuple[int, ...]
    tp: int
    cp: int
    copies: int
    etp: int
    ep: int
    replicas: int
    rank_order: str
    places: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.tp * self.cp * self.copies

    @property
    def devices(self) -> int:
        found = 1
        for fanout in self.fanouts:
            found *= fanout
        return found


@st.composite
def decisions(draw: st.DrawFn) -> Decisions:
    """Plans with gaps, devices left over at the end and inside replicas, copies and folded experts."""
    fanouts = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3)))
    devices = 1
    for fanout in fanouts:
        devices *= fanout
    tp = draw(st.sampled_from([n for n in (1, 2, 4) if n <= devices]))
    cp = draw(st.sampled_from([n for n in (1, 2) if tp * n <= devices]))
    copies = draw(st.sampled_from([n for n in (1, 2, 4) if tp * cp * n <= devices]))
    width = tp * cp * copies
    etp = draw(st.sampled_from([n for n in (1, 2, 4) if width % n == 0]))
    ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if width % (n * etp) == 0]))
    replicas = draw(st.integers(1, devices // width))
    room = devices // (replicas * width)
    stages = draw(st.integers(1, min(room, 4)))
    places = sorted(draw(st.sets(st.integers(0, room - 1), min_size=stages, max_size=stages)))
    order = draw(st.sampled_from(["pp-inner", "dp-inner"]))
    return Decisions(fanouts, tp, cp, copies, etp, ep, replicas, order, tuple(places))


def made_up(one: Decisions, **cluster: Any) -> PlanDocument:
    """A plan document that states these decisions; its times mean nothing."""
    stride = one.width * (one.replicas if one.rank_order == "dp-inner" else 1)
    stages = tuple(
        StageRecord(
            layers=(f"layers.{index}",),
            candidate="one",
            recompute="none",
            zero=0,
            devices=(place * stride, one.width),
            time=1.0,
            sync_time=0.0,
            memory=1.0,
            in_flight=1,
            level_in=-1,
            level_out=-1,
        )
        for index, place in enumerate(one.places)
    )
    levels = [{"fanout": fanout, "bandwidth": 1e9, "latency": 0.0} for fanout in one.fanouts]
    degrees = {"tp": one.tp, "cp": one.cp, "ep": one.ep, "etp": one.etp}
    return PlanDocument(
        nest=1,
        status="feasible",
        batch_time=1.0,
        lower_bound=None,
        throughput=1.0,
        fits=True,
        candidate=CandidateSummary("one", degrees, one.width, one.copies, 1),
        data_parallel=one.replicas,
        rank_order=one.rank_order,
        schedule="1f1b",
        micro_batches=1,
        stages=stages,
        verification=None,
        problem={
            "nest": 1,
            "model": {"transformer": {"layers": 4, "hidden": 8, "ffn": 8, "heads": 4, "vocab": 8}},
            "training": {"global_batch": one.replicas * one.copies, "sequence_length": 8},
            "cluster": {"levels": levels, "memory": 1e9, **cluster},
        },
    )
