"""What layers save and recompute in each mode, and what they save in narrow formats."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
from nest.errors import InputError
from nest.formulate.recompute import recompute_modes
from nest.graph import Collective, Communication, Operator, Tensor
from tests.bare_devices import written


def tensor(name: str, size: int = 1) -> Tensor:
    return Tensor(name, (("hidden", size),), itemsize=1.0)


def operator(kind: str, reads: str, writes: str, saves: str = "") -> Operator:
    return Operator(
        f"a/{kind}-{writes}",
        "a",
        kind,
        inputs=tuple(map(tensor, reads.split())),
        outputs=tuple(map(tensor, writes.split())),
        saves=tuple(saves.split()),
    )


LAYER = (
    operator("norm", "x", "n", "x"),
    operator("matmul", "n", "q", "n"),
    operator("attention", "q", "s", "q"),
    operator("attention", "s", "c", "s c"),
    operator("matmul", "c", "o", "c"),
    operator("elementwise", "x o", "y"),
)


def test_none_keeps_what_operators_save() -> None:
    kept = recompute_modes(LAYER, ("attention",), repeated=True)["none"]
    assert kept.stored == {"x", "n", "q", "s", "c"}
    assert kept.restored == frozenset()
    assert kept.again == ()


def test_selective_runs_the_attention_core_again() -> None:
    kept = recompute_modes(LAYER, ("attention",), repeated=True)["selective"]
    # The scores go; the core's input and its result, which the next product keeps, stay.
    assert kept.stored == {"x", "n", "q", "c"}
    assert kept.restored == {"s"}
    assert [op.kind for op in kept.again] == ["attention", "attention"]


def test_full_keeps_what_the_layer_reads() -> None:
    kept = recompute_modes(LAYER, ("attention",), repeated=True)["full"]
    assert kept.stored == {"x"}
    assert kept.restored == {"n", "q", "s", "c"}
    assert kept.again == LAYER


def test_a_stage_keeps_what_its_layers_save_while_one_micro_batch_runs_again() -> None:
    kept = recompute_modes(LAYER, ("attention",), repeated=False)["stage"]
    assert kept.stored == frozenset()
    assert kept.held == {"x", "n", "q", "s", "c"}
    assert kept.again == LAYER


def test_a_stage_holds_what_layers_read_and_none_saves_and_always_what_comes_with_the_data() -> None:
    kept = recompute_modes(LAYER[1:], (), repeated=True, data=("n",))["stage"]
    assert kept.stored == {"n"}
    assert kept.held == {"x", "q", "s", "c"}


def test_what_travels_under_an_operator_travels_again_with_it() -> None:
    """Ring attention: keys that other ranks hold are not kept, so that attention which runs again needs them again."""
    steps = (Communication("point_to_point", 1.0, "cp", 3),)

    def beside(name: str, under: str, writes: str = "") -> Operator:
        made = tuple(map(tensor, writes.split()))
        call = Collective(steps, steps, under=under)
        return Operator(name, "a", "collective", inputs=(tensor("q"),), outputs=made, collective=call)

    rings = (
        beside("ring", "a/attention-s"),
        beside("elsewhere", "a/matmul-o"),
        beside("for others", "a/attention-s", "z"),
    )
    layer = (*LAYER[:2], *rings, *LAYER[2:5], operator("elementwise", "x o z", "y"))
    kept = recompute_modes(layer, ("attention",), repeated=True)
    assert [op.name for op in kept["selective"].again] == ["ring", "a/attention-s", "a/attention-c"]
    assert kept["selective"].stored == {"x", "n", "q", "c"}
    assert {"ring", "elsewhere"} <= {op.name for op in kept["full"].again}
    assert {"ring", "elsewhere"} <= {op.name for op in kept["stage"].again}


def test_a_chain_of_named_operators_keeps_only_what_it_reads() -> None:
    kept = recompute_modes(LAYER, ("norm-n", "matmul-q", "attention-s", "attention-c"), repeated=True)["selective"]
    assert kept.stored == {"x"}
    assert kept.restored == {"n", "q", "s", "c"}


def test_a_gather_for_recomputed_operators_runs_with_them() -> None:
    gather = Operator(
        "a/gather",
        "a",
        "collective",
        inputs=(tensor("n"),),
        outputs=(tensor("whole", 4),),
        saves=("n",),
        collective=Collective(forward=(Communication("all_gather", 4.0, "tp"),)),
    )
    product = Operator("a/up", "a", "matmul", inputs=(tensor("whole", 4),), outputs=(tensor("u"),))
    layer = (LAYER[0], gather, product)
    kept = recompute_modes(layer, ("matmul",), repeated=True)["selective"]
    assert [op.name for op in kept.again] == ["a/gather", "a/up"]
    assert kept.stored == {"x", "n"}
    reader = Operator("a/other", "a", "norm", inputs=(tensor("whole", 4),), outputs=(tensor("v"),))
    kept = recompute_modes((*layer, reader), ("matmul",), repeated=True)["selective"]
    assert [op.name for op in kept.again] == ["a/up"]
    assert kept.stored == {"x", "n", "whole"}


@st.composite
def layers(draw: st.DrawFn) -> tuple[Operator, ...]:
    """Operators that read earlier results or outside tensors and save some of what they touch."""
    rows: list[Operator] = []
    names = ["in0", "in1"]
    for index in range(draw(st.integers(1, 8))):
        reads = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        saves = draw(st.lists(st.sampled_from([*reads, f"t{index}"]), unique=True))
        kind = draw(st.sampled_from(["matmul", "norm", "attention"]))
        rows.append(operator(kind, " ".join(reads), f"t{index}", " ".join(saves)))
        names.append(f"t{index}")
    return tuple(rows)


CHOICES = [
    "matmul",
    "norm",
    "attention",
    *(f"{kind}-t{n}" for kind in ("matmul", "norm", "attention") for n in range(8)),
]


@given(layer=layers(), kinds=st.sets(st.sampled_from(CHOICES)))
def test_everything_saved_is_kept_or_comes_back(layer: tuple[Operator, ...], kinds: set[str]) -> None:
    saved = {name for op in layer for name in op.saves}
    outside = {t.name for op in layer for t in op.inputs} - {t.name for op in layer for t in op.outputs}
    modes = recompute_modes(layer, tuple(sorted(kinds)), repeated=True)
    stage = modes.pop("stage")
    assert stage.held == saved | outside
    assert not stage.stored
    for kept in modes.values():
        assert not kept.stored & kept.restored
        assert saved <= kept.stored | kept.restored
        # What comes back is made again, by operators whose inputs are kept or made again before them.
        at_hand = set(kept.stored) | {t.name for op in layer if op not in kept.again for t in op.outputs}
        for op in kept.again:
            assert {t.name for t in op.inputs} <= at_hand | kept.stored
            at_hand |= {t.name for t in op.outputs}
        assert kept.restored <= at_hand
    assert modes["full"].stored == outside
    assert modes["none"].stored == saved


PIPELINE: dict[str, Any] = {
    "nest": 1,
    "model": "llama-2-7b",
    "cluster": {"device": written("h100-sxm"), "memory": "30 GB", "levels": [{"fanout": 8, "link": "nvlink4"}]},
    "training": {
        "global_batch": 16,
        "sequence_length": 16384,
        "micro_batch": [1],
        "schedule": ["gpipe"],
        "memory_margin": 0,
    },
    "fixed": {"tp": 2, "pp": 4},
}


@pytest.mark.longer
def test_a_stage_s_memory_is_one_micro_batch_and_the_inputs_of_the_others() -> None:
    def evaluated(batch: int, mode: str) -> Any:
        training = {**PIPELINE["training"], "global_batch": batch}
        fixed = {"tp": 2, "pp": 4, "recompute": mode, "zero": 0}
        return nest.evaluate({**PIPELINE, "training": training, "fixed": fixed})

    one, two, none = (evaluated(*each) for each in ((1, "stage"), (2, "stage"), (1, "none")))
    assert [stage.memory for stage in one.stages] == [stage.memory for stage in none.stages]
    hidden, ids = 16384 * 4096 * 2, 16384 * 8
    more = [b.memory - a.memory for a, b in zip(one.stages, two.stages, strict=True)]
    # Token ids with the embedding, the stage's input behind each boundary, and labels with the head.
    assert more == [ids, hidden, hidden, hidden + ids]
    times = [(again.time, once.time) for again, once in zip(one.stages, none.stages, strict=True)]
    assert all(1.2 * once < again < 1.4 * once for again, once in times)


@pytest.mark.parametrize(("wrong", "right"), [("mlp_activate", "mlp_activated"), ("atention", "attention")])
def test_an_unknown_name_in_selective_gets_the_nearest(wrong: str, right: str) -> None:
    training = {**PIPELINE["training"], "selective": [wrong]}
    with pytest.raises(
        InputError, match=rf"training.selective: there is no operator .* {wrong!r}.*Did you mean {right!r}"
    ):
        nest.solve({**PIPELINE, "training": training})


@pytest.mark.longer
def test_the_operators_the_reference_lists_for_megatron_s_modules_are_there() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "problem.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| (.*?)(?: \||$)",
        page.split("| Megatron-LM `--recompute-modules` | `selective` |")[1],
        re.MULTILINE,
    )
    modules = {module: re.findall(r"`(\w+)`(?! \()", told) for module, told in rows[:6]}
    assert list(modules) == ["core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe"]
    problem = {**PIPELINE, "model": "deepseek-v3", "fixed": {"tp": 8, "pp": 1, "recompute": "selective"}}
    plain = nest.evaluate({**problem, "fixed": {**problem["fixed"], "recompute": "none"}})
    for names in modules.values():
        again = nest.evaluate({**problem, "training": {**PIPELINE["training"], "selective": names}})
        assert again.stages[0].memory < plain.stages[0].memory
        assert again.stages[0].time > plain.stages[0].time


LAYERS, HIDDEN, FFN, TOKENS, VOCAB = 4, 256, 512, 128, 32768
MODEL = {"layers": LAYERS, "hidden": HIDDEN, "ffn": FFN, "heads": 4, "kv_heads": 4, "vocab": VOCAB, "gated_mlp": True}
LEVELS = [{"fanout": 4, "bandwidth": "400 GB/s"}]


def evaluated(
    device: str = "b200-sxm", memory: str = "80 GB", fixed: dict[str, Any] | None = None, **training: Any
) -> Any:
    return nest.evaluate(
        {
            "nest": 1,
            "model": {"transformer": MODEL},
            "training": {"global_batch": 4, "sequence_length": TOKENS, "micro_batch": [1], "stack": "none", **training},
            "cluster": {"device": device, "levels": LEVELS, "memory": memory},
            "fixed": {"pp": 1, "recompute": "none", **(fixed or {})},
        }
    )


def activations(**arguments: Any) -> float:
    return float(evaluated(**arguments).stages[0].memory_breakdown.activations)


@pytest.mark.parametrize(("precision", "kept"), [("fp8", 1.0), ("mxfp8", 1 + 1 / 32), ("nvfp4", 0.5 + 1 / 16)])
@pytest.mark.parametrize("fixed", [{"tp": 1}, {"tp": 4, "sp": True}, {"tp": 4, "sp": False}])
def test_copies_take_the_place_of_what_only_products_read(precision: str, kept: float, fixed: dict[str, Any]) -> None:
    """A block reads four tensors in products; its attention keeps its own result in the wide format, too.

    Both norms' results and the activated gate give 2 bytes an element for the narrow copy, the result of attention adds
    one to what it keeps. Sequence parallelism divides the norms' results; without it every rank keeps them whole.
    """
    wide, narrow = (activations(precision=precision, saved_inputs=each, fixed=fixed) for each in ("wide", "narrow"))
    ranks = fixed["tp"]
    normed = 2 * HIDDEN / (ranks if fixed.get("sp") else 1)
    less = (normed + FFN / ranks) * (2 - kept) - HIDDEN / ranks * kept
    assert wide - narrow == pytest.approx(LAYERS * TOKENS * less, rel=1e-9)


@pytest.mark.longer
def test_in_wide_formats_and_recomputed_in_full_nothing_changes() -> None:
    for training, fixed in (({"precision": "bf16"}, {}), ({"precision": "fp8"}, {"recompute": "full"})):
        wide, narrow = (activations(saved_inputs=each, fixed=fixed, **training) for each in ("wide", "narrow"))
        assert wide == narrow


@pytest.mark.longer
def test_a_fused_loss_makes_no_copy_of_the_logits() -> None:
    """The copy takes 4 bytes a logit and its gradient as many; what is kept in its place are the logits, of 2 bytes."""
    plain, fused = (evaluated(loss=each) for each in ("unfused", "fused"))
    logits = TOKENS * VOCAB
    before, after = (plan.stages[0].memory_breakdown for plan in (plain, fused))
    assert before.activations - after.activations == 2 * logits
    assert before.transient - after.transient == pytest.approx(4 * logits, rel=0.05)
    assert fused.batch_time < plain.batch_time


@pytest.mark.longer
def test_weights_that_are_kept_once_take_sixteen_bytes_with_their_state() -> None:
    parts = evaluated(weights_once=True, fixed={"zero": 3}).stages[0].memory_breakdown
    twice = evaluated(fixed={"zero": 3}).stages[0].memory_breakdown
    assert (parts.weights, parts.gradients) == (twice.weights, twice.gradients)
    assert parts.weights + parts.gradients + parts.optimizer == pytest.approx(8 * parts.weights)
    assert twice.weights + twice.gradients + twice.optimizer == pytest.approx(9 * parts.weights)


@pytest.mark.longer
def test_what_the_software_is_said_to_need_takes_the_place_of_the_device_s_overheads() -> None:
    fixed = {"pp": 2, "dp": 2, "micro_batch": 1}
    plan = evaluated(communicator="1 GB", fragmentation=0.5, fixed=fixed)
    other = evaluated(communicator="2 GB", fragmentation=0.0, fixed=fixed)
    for stage, without in zip(plan.stages, other.stages, strict=True):
        assert without.memory_breakdown.framework - stage.memory_breakdown.framework == pytest.approx(2e9)
        assert without.memory_breakdown.fragmentation == 0
    first = plan.stages[0].memory_breakdown
    assert first.fragmentation == pytest.approx(first.activations / 2)  # One of two micro-batches in flight.
