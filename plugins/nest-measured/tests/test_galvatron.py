"""Galvatron's profiles: its arithmetic by hand on small files, and real ones through a solve."""

import json
from pathlib import Path
from typing import Any

import pytest

from nest import api
from nest.errors import InputError
from nest_measured.galvatron import Asked, gather_seconds, profile_of, sequence_lengths
from nest_measured.galvatron_files import MEBIBYTE, Profiles, read_profiles
from small_models import call

TOKENS, HIDDEN, LAYERS = 64, 128, 3
TIMES = {
    "layernum[1]_bsz2_seq64": 26.0,
    "layernum[2]_bsz2_seq64": 42.0,
    "layertype_0_bsz2_seq64": 8.0,
    "layertype_other_bsz2_seq64": 5.0,
    "layertype_0_bsz4_seq64": 7.0,
    "layertype_other_bsz4_seq64": 4.0,
}
ENDS = {"model_states": {"1": 80, "2": 40}, "activation": {"1": 6, "2": 3}}
LAYER = {"parameter_size": 16, "tp_activation_per_bsz_dict": {"1": 10, "2": 6, "4": 3, "checkpoint": 2}}
MEMORY = {
    "1_1_8_sp": {"layernum[1]_bsz8_seq64_rank0_ms": 1.0},
    "layertype_0_sp": {"64": LAYER},
    "other_memory_pp_off_sp": {"64": ENDS},
    "other_memory_pp_on_first_sp": {"64": ENDS},
    "other_memory_pp_on_last_sp": {"64": ENDS},
}
MESSAGES = {"allreduce_size_2_1MB_time": 2.0, "allreduce_size_2_2MB_time": 3.0, "all2all_size_2_1MB_time": 1.0}
NAMES = ("computation_profiling_bf16_small_all.json", "memory_profiling_bf16_small_all.json", "sp_time.json")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in NAMES]
    for path, content in zip(paths, (TIMES, MEMORY, MESSAGES), strict=True):
        path.write_text(json.dumps(content))
    return paths


def asked(**other: Any) -> Asked:
    return Asked(**{"layers": LAYERS, "hidden": HIDDEN, "mixed": True, "tokens": TOKENS, **other})


def test_a_candidate_for_each_degree_and_micro_batch(files: list[Path]) -> None:
    profile = profile_of(read_profiles(files), asked())
    assert profile.layers == ("embedding", "layers.0", "layers.1", "layers.2", "head")
    assert [(each.name, each.width, each.samples) for each in profile.candidates] == [
        ("tp1 micro-batch 2", 1, 2),
        ("tp1 micro-batch 4", 1, 4),
        ("tp2 sp micro-batch 2", 2, 2),
        ("tp2 sp micro-batch 4", 2, 4),
    ]


def test_one_rank_by_hand(files: list[Path]) -> None:
    candidate = profile_of(read_profiles(files), asked(samples=(2,))).candidates[0]
    assert candidate.forward == pytest.approx((5e-3, 16e-3, 16e-3, 16e-3, 5e-3))
    assert candidate.backward == pytest.approx((10e-3, 32e-3, 32e-3, 32e-3, 10e-3))
    state = candidate.state["dense"]
    whole = [sum(parts) / MEBIBYTE for parts in zip(state.weights, state.gradients, state.optimizer, strict=True)]
    assert whole == pytest.approx([80, 64, 64, 64, 80])
    assert state.weights[1] == 16 * MEBIBYTE / 4 * 2  # two bytes of four
    none, full = candidate.recompute["none"], candidate.recompute["full"]
    assert [size / MEBIBYTE for size in none.first] == [12, 20, 20, 20, 12]
    assert [size / MEBIBYTE for size in full.more] == [12, 4, 4, 4, 12]
    assert [size / MEBIBYTE for size in full.peak] == [0, 16, 16, 16, 0]
    assert full.extra == pytest.approx((0, 16e-3, 16e-3, 16e-3, 0))
    assert candidate.edge_bytes == (2 * TOKENS * HIDDEN * 2,) * 4


def test_two_ranks_by_hand(files: list[Path]) -> None:
    """A message of 32 KiB takes half of the smallest measured all-reduce, 1 ms."""
    candidate = profile_of(read_profiles(files), asked(samples=(2,))).candidates[1]
    assert candidate.forward == pytest.approx((3.5e-3, 12e-3, 12e-3, 12e-3, 3.5e-3))
    assert candidate.backward == pytest.approx((5e-3, 18e-3, 18e-3, 18e-3, 5e-3))
    assert candidate.recompute["full"].extra[1] == pytest.approx(8e-3 + 3e-3)
    assert candidate.recompute["full"].first[1] == 2 * MEBIBYTE
    assert candidate.edge_bytes[0] == 2 * TOKENS * HIDDEN * 2 / 2
    assert candidate.degrees == {"tp": 2, "sp": 2}


def test_single_precision_divides_the_states_otherwise(files: list[Path]) -> None:
    state = profile_of(read_profiles(files), asked(mixed=False)).candidates[0].state["dense"]
    assert (state.weights[1], state.gradients[1], state.optimizer[1]) == tuple(
        share * MEBIBYTE for share in (16, 16, 32)
    )


def test_messages_are_interpolated() -> None:
    profiles = Profiles(messages={2: ((MEBIBYTE, 2e-3), (2 * MEBIBYTE, 3e-3))}, bandwidths={4: 2.0})
    times = [gather_seconds(profiles, size * MEBIBYTE, 2) for size in (0.1, 1, 1.5, 2, 4)]
    assert times == pytest.approx([1e-3, 1e-3, 1.25e-3, 1.5e-3, 2.5e-3])
    assert gather_seconds(profiles, 8 * MEBIBYTE, 4) == pytest.approx(8 * 3 / 4 / 2.0 * 1e-3)
    assert gather_seconds(profiles, 8 * MEBIBYTE, 1) == 0


def test_degrees_without_measured_messages_are_left_out(files: list[Path]) -> None:
    profile = profile_of(read_profiles(files[:2]), asked())
    assert {each.width for each in profile.candidates} == {1}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.json", '{"layertype_0_bsz1_seq64": "fast"}', "a.json.*layertype_0_bsz1_seq64 must be a number"),
        ("a.json", '{"layertype_0_bsz1_seq64": NaN}', "must be a number"),
        ("a.json", '{"layertype_0_bsz2_seq64": 9.0}', "given twice"),
        ("a.json", '{"layertype_0_bsz1_seq64": 1, "layertype_1_bsz1_seq64": 1}', "2 kinds of layer"),
        ("a.json", '{"layertype_0": {"64": {}}}', "'tp_activation_per_bsz_dict' is missing"),
        ("a.json", '{"layertype_0": 3}', "a.json: this is no profile"),
        ("a.json", "[]", "a.json.*one JSON object"),
        ("a.json", "{", "a.json.*JSON"),
    ],
)
def test_broken_files_are_named(name: str, content: str, told: str, files: list[Path], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        read_profiles([*files, tmp_path / name])


def test_what_was_not_measured_is_told(files: list[Path]) -> None:
    with pytest.raises(InputError, match="measured are micro-batches of 2, 4"):
        profile_of(read_profiles(files), asked(samples=(3,)))


def plan_of(profile: Path, **cluster: Any) -> Any:
    levels = [{"fanout": 8, "link": "nvlink3"}]
    training = {"global_batch": 64}
    return api.solve(
        {"nest": 1, "profile": str(profile), "training": training, "cluster": {"levels": levels, **cluster}}
    )


@pytest.mark.longer
def test_the_command_writes_a_profile_that_solves(files: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    done = call("galvatron", *files, "--layers", "3", "--hidden", "128", "--output", output)
    assert done.exit_code == 0, done.output
    plan = plan_of(output, memory="1 GB")
    assert plan.status == "optimal"
    assert api.check(plan.to_dict()).ok


@pytest.mark.parametrize("arguments", [["--precision", "int4"], ["--output", "profile.txt"]])
def test_the_command_refuses_in_sentences(arguments: list[str], files: list[Path], tmp_path: Path) -> None:
    asked = (*files, "--layers", "3", "--hidden", "128", "--output", tmp_path / "profile.json", *arguments)
    done = call("galvatron", *asked)
    assert isinstance(done.exception, InputError)


@pytest.mark.longer
def test_real_profiles(shared: Path, tmp_path: Path) -> None:
    """Llama 2 7B: a layer's time is the difference of two models', and a plan fits the 36 GB Galvatron tuned it for."""
    folder = shared / "samples" / "galvatron_profile"
    times = json.loads((folder / "computation_profiling_bf16_llama2-7b_all.json").read_text())
    chosen = [
        folder / name
        for name in (
            "computation_profiling_bf16_llama2-7b_all.json",
            "computation_profiling_bf16_llama2-7b_seqlen2048_all.json",
            "memory_profiling_bf16_llama2-7b_all.json",
            "memory_profiling_bf16_llama2-7b_seqlen2048_all.json",
            "sp_time_1nodes_8gpus_per_node.json",
            "overlap_coefficient.json",
        )
    ]
    profiles = read_profiles(chosen)
    assert [path.name for path in profiles.unused] == [chosen[1].name, chosen[3].name, chosen[5].name]
    assert sequence_lengths(profiles) == [2048]
    profile = profile_of(profiles, Asked(32, 4096, True, 2048))
    assert {(each.width, each.samples) for each in profile.candidates} == {
        (width, samples) for width in (1, 2, 4, 8) for samples in range(1, 13)
    }
    for samples in range(1, 13):
        layer = (times[f"layernum[4]_bsz{samples}_seq2048"] - times[f"layernum[2]_bsz{samples}_seq2048"]) / 2
        assert profile.candidates[samples - 1].forward[1] == pytest.approx(layer * 1e-3)
    output = tmp_path / "profile.json"
    done = call("galvatron", *chosen, "--layers", "32", "--hidden", "4096", "--output", output)
    assert done.exit_code == 0, done.output
    plan = plan_of(output, memory="36 GB")
    assert plan.status == "optimal"
    assert plan.fits


def test_real_bandwidths_serve_too(shared: Path) -> None:
    folder = shared / "samples" / "galvatron_profile"
    names = ("computation_profiling_bf16_llama2-7b_all.json", "memory_profiling_bf16_llama2-7b_all.json")
    network = folder / "allreduce_bandwidth_2nodes_8gpus_per_node.json"
    profile = profile_of(read_profiles([*(folder / name for name in names), network]), Asked(32, 4096, True, 2048))
    assert {each.width for each in profile.candidates} == {1, 2, 4, 8}
