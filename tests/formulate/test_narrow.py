"""What products in narrow formats keep of their inputs, and the other memory of a software stack."""

from typing import Any

import pytest

import nest

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


def test_in_wide_formats_and_recomputed_in_full_nothing_changes() -> None:
    for training, fixed in (({"precision": "bf16"}, {}), ({"precision": "fp8"}, {"recompute": "full"})):
        wide, narrow = (activations(saved_inputs=each, fixed=fixed, **training) for each in ("wide", "narrow"))
        assert wide == narrow


def test_a_fused_loss_makes_no_copy_of_the_logits() -> None:
    """The copy takes 4 bytes a logit and its gradient as many; what is kept in its place are the logits, of 2 bytes."""
    plain, fused = (evaluated(loss=each) for each in ("unfused", "fused"))
    logits = TOKENS * VOCAB
    before, after = (plan.stages[0].memory_breakdown for plan in (plain, fused))
    assert before.activations - after.activations == 2 * logits
    assert before.transient - after.transient == pytest.approx(4 * logits, rel=0.05)
    assert fused.batch_time < plain.batch_time


def test_weights_that_are_kept_once_take_sixteen_bytes_with_their_state() -> None:
    parts = evaluated(weights_once=True, fixed={"zero": 3}).stages[0].memory_breakdown
    twice = evaluated(fixed={"zero": 3}).stages[0].memory_breakdown
    assert (parts.weights, parts.gradients) == (twice.weights, twice.gradients)
    assert parts.weights + parts.gradients + parts.optimizer == pytest.approx(8 * parts.weights)
    assert twice.weights + twice.gradients + twice.optimizer == pytest.approx(9 * parts.weights)


def test_what_the_software_is_said_to_need_takes_the_place_of_the_device_s_overheads() -> None:
    fixed = {"pp": 2, "dp": 2, "micro_batch": 1}
    plan = evaluated(communicator="1 GB", fragmentation=0.5, fixed=fixed)
    other = evaluated(communicator="2 GB", fragmentation=0.0, fixed=fixed)
    for stage, without in zip(plan.stages, other.stages, strict=True):
        assert without.memory_breakdown.framework - stage.memory_breakdown.framework == pytest.approx(2e9)
        assert without.memory_breakdown.fragmentation == 0
    first = plan.stages[0].memory_breakdown
    assert first.fragmentation == pytest.approx(first.activations / 2)  # One of two micro-batches in flight.
