"""What is counted where: the mistakes that users of memory estimates report."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import asdict, evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.catalogue import device, estimate_error
from nest.formulate.instance import build_instance
from nest.formulate.risk import EVEN_ODDS, RISK, admits
from nest.hooks.registry import registry
from nest.spec import ClusterSpec, Fixed, LevelSpec, MemoryOverheads, Problem, StageRecord, Training, TransformerSpec
from nest.units import Bytes
from tests.bare_devices import bare
from tests.measured import profile

Build = Callable[..., Problem]

BF16, FP32, ADAM = 2, 4, 12
HIDDEN, TOKENS, VOCAB = 64, 128, 512
DENSE = TransformerSpec(layers=8, hidden=HIDDEN, ffn=128, heads=8, vocab=VOCAB)
EXPERTS = TransformerSpec(layers=4, hidden=HIDDEN, ffn=128, heads=8, vocab=VOCAB, experts=8, top_k=2, moe_ffn=32)
ROUTED = 8 * 3 * HIDDEN * 32
"""Parameters of the routed experts of one layer: three matrices each."""


def asked(model: TransformerSpec = DENSE, gpu: Any = None, margin: float | None = 0.0, **fixed: Any) -> Problem:
    stages = fixed.pop("stages", None)
    return Problem(
        nest=1,
        model=model,
        training=Training(global_batch=16, sequence_length=TOKENS, memory_margin=margin, stack="none"),
        cluster=ClusterSpec(
            device=gpu or bare("a100-sxm-80g"),
            levels=(LevelSpec(fanout=8, link="nvlink3"), LevelSpec(fanout=2, link="infiniband-hdr")),
        ),
        fixed=Fixed(fixed, stages),
    )


def stages(*arguments: Any, **fixed: Any) -> tuple[StageRecord, ...]:
    return nest.evaluate(asked(*arguments, **fixed)).stages


def parts(stage: StageRecord) -> dict[str, float]:
    assert stage.memory_breakdown is not None
    found: dict[str, float] = asdict(stage.memory_breakdown)
    return found


@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 1, 1), (1, 8, 1), (4, 2, 4), (4, 4, 1), (8, 4, 2), (2, 2, 2)])
def test_routed_experts_are_divided_by_ep_and_by_etp_not_by_tp(tp: int, ep: int, etp: int) -> None:
    decided = asked(EXPERTS, tp=tp, sp=tp > 1, ep=ep, etp=etp, pp=1)
    candidates = [c for c in build_instance(decided, registry()).candidates if c.degrees.get("etp", 1) == etp]
    assert candidates
    for candidate in candidates:
        (expert,) = (group for group in candidate.state if group.name == "expert")
        held = ROUTED / (ep * etp)
        assert expert.weights.tolist() == [0, *[held * BF16] * 4, 0]
        assert expert.gradients.tolist() == [0, *[held * FP32] * 4, 0]
        assert expert.optimizer.tolist() == [0, *[held * ADAM] * 4, 0]


@pytest.mark.parametrize("capacity", [1.0, 1.5])
def test_expert_parallelism_does_not_divide_the_tokens_that_were_dispatched(capacity: float, problem: Build) -> None:
    kept = set()
    for ep in (1, 2, 4, 8):
        decided = problem(
            EXPERTS,
            training={"micro_batch": (1,), "expert_capacity": capacity},
            fixed={"tp": 1, "cp": 1, "ep": ep, "etp": 1, "micro_batch": 1},
        )
        for candidate in build_instance(decided, registry()).candidates:
            mode = candidate.mode("none")
            kept.add((mode.first[1], mode.more[1]))
            assert mode.first[1] > 2 * TOKENS * BF16 * (HIDDEN + 32) * capacity
    assert len(kept) == 1


@pytest.mark.longer
@given(
    zero=st.integers(0, 3), cp=st.sampled_from([1, 2, 4]), ep=st.sampled_from([1, 2, 4, 8]), pp=st.sampled_from([1, 2])
)
@settings(max_examples=10)
def test_zero_shards_each_group_over_the_ranks_that_hold_the_same_of_it(zero: int, cp: int, ep: int, pp: int) -> None:
    """Dense parameters lie on all ranks of a stage; routed experts on one in `ep` of them."""
    plan = nest.evaluate(asked(EXPERTS, tp=1, cp=cp, ep=ep, etp=1, pp=pp, dp=16 // (pp * cp), zero=zero, micro_batch=1))
    ranks, layers = 16 // pp, 4 // pp
    attention = 4 * HIDDEN * HIDDEN + 8 * HIDDEN + 2 * HIDDEN  # Projections, router, norms.
    ends = [[VOCAB * HIDDEN], [HIDDEN, VOCAB * HIDDEN]] if pp == 2 else [[VOCAB * HIDDEN, HIDDEN, VOCAB * HIDDEN]]
    for stage, own in zip(plan.stages, ends, strict=True):
        dense, expert = layers * attention + sum(own), layers * ROUTED / ep
        for name, width, sharded_from in (("weights", BF16, 3), ("gradients", FP32, 2), ("optimizer", ADAM, 1)):
            shared = zero >= sharded_from
            held = dense / (ranks if shared else 1) + expert / (ranks / ep if shared else 1)
            assert parts(stage)[name] == pytest.approx(held * width, rel=1e-12), name


def test_embedding_and_head_are_on_their_stages_only() -> None:
    found = [parts(stage)["weights"] for stage in stages(tp=2, sp=True, pp=4, dp=2)]
    table = VOCAB * HIDDEN * BF16 / 2
    assert found[1] == found[2]
    assert found[0] - found[1] == table
    assert found[3] - found[2] == table + HIDDEN * BF16
    logits = [parts(stage)["transient"] for stage in stages(tp=1, pp=4, dp=4, recompute="full")]
    assert logits[0] == logits[1] == logits[2] != logits[3]


def test_uneven_stages_have_peaks_of_their_own() -> None:
    counts = (4, 1, 2, 1)
    found = stages(tp=1, pp=4, dp=4, stages=list(counts))
    kept = [parts(stage)["activations"] / stage.in_flight / count for stage, count in zip(found, counts, strict=True)]
    assert kept[1] == pytest.approx(kept[2], rel=1e-12)
    assert [stage.in_flight for stage in found] == [4, 3, 2, 1]
    weights = [parts(stage)["weights"] for stage in found]
    assert weights[2] == 2 * weights[1]
    assert len({stage.memory for stage in found}) == 4


def overheads(**given: float) -> Any:
    return evolve(device("a100-sxm-80g"), memory_overheads=MemoryOverheads(**given))  # type: ignore[arg-type]


@given(
    fixed=st.fixed_dictionaries(
        {
            "tp": st.sampled_from([1, 2, 4]),
            "pp": st.sampled_from([1, 2, 4]),
            "zero": st.integers(0, 3),
            "recompute": st.sampled_from(["none", "selective", "full", "stage"]),
            "schedule": st.sampled_from(["1f1b", "gpipe"]),
        }
    ),
    sp=st.booleans(),
    margin=st.sampled_from([0.0, 0.25]),
    share=st.integers(0, 9).map(lambda tenths: tenths / 10),
    context=st.integers(0, 10**10),
)
@settings(max_examples=12)
def test_the_parts_add_up_to_the_memory(
    fixed: dict[str, Any], sp: bool, margin: float, share: float, context: int
) -> None:
    gpu = overheads(context=context, communicator=context / 4, fragmentation=share)
    problem = asked(EXPERTS, gpu, margin, sp=sp, **fixed)
    problem = evolve(problem, cluster=evolve(problem.cluster, reserve=Bytes(3e9)))
    plan = nest.evaluate(problem)
    for stage in plan.stages:
        assert sum(parts(stage).values()) == pytest.approx(stage.memory, rel=1e-12)
        assert min(parts(stage).values()) >= 0
        assert parts(stage)["reserve"] == 3e9
        assert stage.upper_memory == pytest.approx(3e9 + (stage.memory - 3e9) * (1 + margin), rel=1e-12)
        kept = parts(stage)["activations"] + parts(stage)["fragmentation"]
        assert parts(stage)["fragmentation"] <= share * kept * (1 + 1e-12)
    assert nest.check(plan.to_dict()).ok


@pytest.mark.parametrize("part", ["weights", "activations", "fragmentation", "framework", "communication"])
def test_a_part_that_is_wrong_is_told(part: str) -> None:
    gpu = overheads(context=1e9, communicator=1e8, fragmentation=0.3)
    plan = nest.evaluate(asked(DENSE, gpu, tp=2, pp=2, dp=4)).to_dict()
    plan["stages"][0]["memory_breakdown"][part] *= 1.01
    (told,) = nest.check(plan).disagreements
    assert f"stages[0].memory_breakdown.{part}" in told


def test_a_plan_of_before_there_were_parts_still_holds() -> None:
    plan = nest.evaluate(asked(tp=2, pp=2, dp=4)).to_dict()
    for stage in plan["stages"]:
        del stage["memory_breakdown"], stage["upper_memory"]
    assert nest.check(plan).ok


def test_only_micro_batches_beyond_the_first_leave_gaps() -> None:
    bare_stages = stages(tp=1, pp=4, dp=4)
    for share in (0.2, 0.5):
        for plain, stage in zip(
            bare_stages, stages(DENSE, overheads(fragmentation=share), tp=1, pp=4, dp=4), strict=True
        ):
            one = parts(plain)["activations"] / plain.in_flight
            gaps = (stage.in_flight - 1) * one * share / (1 - share)
            assert parts(stage)["fragmentation"] == pytest.approx(gaps, rel=1e-12)
            assert stage.memory - plain.memory == pytest.approx(gaps, rel=1e-9)


def test_each_group_of_ranks_costs_one_communicator() -> None:
    def framework(**fixed: Any) -> float:
        return parts(stages(EXPERTS, overheads(context=5e8, communicator=1e8), **fixed)[0])["framework"]

    # Those of stages and of replicas count wherever there is room for both, whatever is decided.
    assert framework(tp=1, pp=1, dp=16) == pytest.approx(7e8)
    assert framework(tp=2, etp=1, pp=1, dp=8) == pytest.approx(8e8)
    assert framework(tp=8, etp=1, pp=1, dp=2) == pytest.approx(7e8)
    assert framework(tp=2, etp=1, pp=2, dp=4) == pytest.approx(8e8)
    assert framework(tp=2, etp=1, cp=2, pp=2, dp=2) == pytest.approx(9e8)
    assert framework(tp=2, cp=2, ep=4, etp=1, sp=True, pp=2, dp=2) == pytest.approx(10e8)


def test_zero_3_has_room_for_the_layers_it_gathers() -> None:
    buffers = [parts(stages(tp=1, pp=1, dp=16, zero=zero)[0])["communication"] for zero in range(4)]
    largest = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * 128 + 2 * HIDDEN
    assert buffers[0] == buffers[1] == buffers[2]
    assert buffers[3] - buffers[0] == max(largest, VOCAB * HIDDEN + HIDDEN) * (2 * BF16 + FP32)


@pytest.mark.longer
@given(risk=st.floats(0.01, 0.99), margin=st.sampled_from([None, 0.0, 0.3]))
@settings(max_examples=6)
def test_fits_is_more_likely_than_not_or_within_the_margin_and_a_search_admits_its_risk(
    risk: float, margin: float | None
) -> None:
    problem = asked(DENSE, margin=margin, tp=1, pp=1, dp=16)
    needed = nest.evaluate(problem).stages[0].memory
    problem = evolve(problem, training=evolve(problem.training, memory_risk=risk))
    factor = 1 + margin if margin is not None else estimate_error().factor(risk)
    for more in (0.999, 1.001):
        given = evolve(problem, cluster=evolve(problem.cluster, memory=Bytes(needed * factor * more)))
        plan = nest.evaluate(given)
        assert plan.stages[0].upper_memory == pytest.approx(needed * factor, rel=1e-12)
        if margin is not None:
            assert plan.fits == (more > 1)
        assert plan.fit_probability == pytest.approx(estimate_error().within(factor * more), abs=1e-9)
        if margin is None:
            assert plan.fits == ((plan.fit_probability or 0.0) >= EVEN_ODDS)
        assert admits(given, plan) == (more > 1)
        assert nest.check(plan.to_dict()).ok
        wrong = nest.check({**plan.to_dict(), "fit_probability": 0.5 + (plan.fit_probability or 0.0) / 4})
        assert any("fit_probability" in told for told in wrong.disagreements)


def test_left_out_the_risk_is_the_usual_one_and_none_for_profiles() -> None:
    (stage,) = stages(DENSE, None, None, tp=1, pp=1, dp=16)
    assert stage.upper_memory == pytest.approx(stage.memory * estimate_error().factor(RISK), rel=1e-12)
    measured = profile([1], [2], kept={"first": [4], "more": [4], "peak": [2]})
    plan = nest.solve(
        {
            "nest": 1,
            "profile": measured,
            "training": {"global_batch": 1},
            "cluster": {"levels": [{"fanout": 1, "bandwidth": 1}], "memory": 6},
        }
    )
    assert plan.stages[0].upper_memory == plan.stages[0].memory == 6
    assert plan.fit_probability == 1
    assert parts(plan.stages[0])["activations"] == 4
    assert parts(plan.stages[0])["transient"] == 2
