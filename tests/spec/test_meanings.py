"""What records mean by what is left out, and by what is said in one word."""

from typing import Any

import pytest

from nest.errors import InputErrors
from nest.instance.recompute import Partial, partial
from nest.io import structure
from nest.spec import Problem, StageDecisions, Study, Training
from nest.spec.training import PRECISIONS, Overlap, Trainable


@pytest.mark.parametrize(
    ("training", "exposed"),
    [
        (Training(1), 1.0),
        (Training(1, overlap=Overlap(data=True)), 0.0),
        (Training(1, overlap=Overlap(data=True), exposed=0.25), 0.25),
        (Training(1, exposed=0.25), 0.25),
    ],
)
def test_communication_of_data_parallelism_is_exposed_where_nothing_hides_it(
    training: Training, exposed: float
) -> None:
    assert training.exposed_share == exposed


@pytest.mark.parametrize("precision", PRECISIONS)
def test_scores_are_stored_in_fp16_alone_unless_the_kernel_is_named(precision: str) -> None:
    """Published runs in fp16 had no fused attention (arXiv 2104.04473, 2205.05198, 2211.05100)."""
    assert Training(1, precision=precision).stores_scores == (precision == "fp16")
    for attention in ("flash", "unfused"):
        assert Training(1, precision=precision, attention=attention).stores_scores == (attention == "unfused")


@pytest.mark.parametrize(
    ("trainable", "trained"),
    [
        (None, None),
        (("all",), None),
        (("head",), Trainable(layers=("head",))),
        (Trainable(layers=("head",)), Trainable(layers=("head",))),
    ],
)
def test_all_is_no_layer(trainable: tuple[str, ...] | Trainable | None, trained: Trainable | None) -> None:
    assert Training(1, trainable=trainable).trained == trained


def test_the_name_of_partial_recomputation_says_how_many_blocks_run_how() -> None:
    whole = StageDecisions(("layers.0",), "tp1", "full", 0, (0, 1))
    part = StageDecisions(("layers.0",), "tp1", "full", 0, (0, 1), recompute_layers=5, recompute_rest="selective")
    assert partial(whole.recompute_name) is None
    assert partial(part.recompute_name) == Partial("full", 5, "selective")


def problem(**changes: Any) -> dict[str, Any]:
    return {
        "nest": 1,
        "model": "llama-2-7b",
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 8, "link": "nvlink4"}]},
        "training": {"global_batch": 8, "sequence_length": 512},
        **changes,
    }


def test_a_micro_batch_may_be_all_of_the_batch() -> None:
    training = {"global_batch": 8, "sequence_length": 512, "micro_batch": [4, 8]}
    assert structure(problem(training=training), Problem).training.micro_batch == (4, 8)
    with pytest.raises(InputErrors) as error:
        structure(problem(training={**training, "micro_batch": [4, 9]}), Problem)
    assert error.value.problems == ("training.micro_batch[1] is 9, above the global batch of 8.",)


def test_lists_that_say_what_is_usual_are_not_written_beside_a_decision() -> None:
    """They would contradict it, though nobody wrote them."""
    decided = {"schedule": "gpipe", "zero_degree": 4}
    written = structure(problem(fixed=decided), Problem).to_dict()
    assert "schedule" not in written["training"]
    assert "zero_degree" not in written["search"]
    named = {"global_batch": 8, "sequence_length": 512, "schedule": ["gpipe", "1f1b"]}
    assert structure(problem(fixed=decided, training=named), Problem).to_dict()["training"]["schedule"] == [
        "gpipe",
        "1f1b",
    ]
    assert structure(problem(), Problem).to_dict()["training"]["schedule"] == ["1f1b"]


def test_a_study_has_keys_that_vary_or_points() -> None:
    points = {"nest": 1, "base": "problem.yaml", "points": [{"training.global_batch": 16}]}
    assert structure(points, Study).points == ({"training.global_batch": 16},)
    with pytest.raises(InputErrors, match="vary is missing; give vary, points or both"):
        structure({**points, "points": []}, Study)
