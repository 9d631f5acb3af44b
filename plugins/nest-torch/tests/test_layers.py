"""Layers from paths of modules; no PyTorch takes part."""

from hypothesis import given
from hypothesis import strategies as st

from nest_torch.program.axes import fresh
from nest_torch.program.layers import layering
from nest_torch.program.values import PARAMETER, Recorded, Stored


def operator(path: str, parameters: int = 0, target: str = "add") -> Recorded:
    learned = [Stored(f"{path}.weight", PARAMETER, (fresh(parameters),), 4, True)] if parameters else []
    return Recorded(target, path, "elementwise", [], learned, [])


def test_members_of_a_list_are_layers_between_embedding_and_head() -> None:
    paths = ["words", "layers.0.norm", "layers.0", "layers.1.norm", "", "layers.1", "norm", "head"]
    found = layering([operator(path, 1) for path in paths])
    assert found.layers == ("embedding", "layers.0", "layers.1", "head")
    assert found.of == (0, 1, 1, 2, 2, 2, 3, 3)


def test_blocks_are_the_list_that_holds_most_in_members_that_repeat() -> None:
    operators = [operator("stem.0", 1000, "convolution"), operator("stem.1", 1, "norm")]
    operators += [operator(f"stages.{index}", 10) for index in range(3)]
    assert layering(operators).blocks == ("stages.0", "stages.1", "stages.2")


def test_a_series_of_names_is_a_list() -> None:
    paths = [
        "conv",
        *(f"encoder.layers.encoder_layer_{index}.mlp.{part}" for index in range(3) for part in (0, 3)),
        "ln_1",
    ]
    found = layering([operator(path, 1) for path in paths])
    blocks = tuple(f"encoder.layers.encoder_layer_{index}" for index in range(3))
    assert found.layers == ("embedding", *blocks, "head")
    assert found.blocks == blocks


def test_what_runs_between_two_towers_belongs_to_the_one_it_stands_beside() -> None:
    paths = [
        "words",
        "encoder.block.0",
        "encoder.block.1.mlp",
        "encoder.norm",
        "decoder.words",
        "decoder.block.0",
        "head",
    ]
    found = layering([operator(path) for path in paths])
    assert found.layers == ("embedding", "encoder.block.0", "encoder.block.1", "decoder.block.0", "head")
    assert [found.layers[index] for index in found.of][3:5] == ["encoder.block.1", "decoder.block.0"]


def test_without_lists_modules_below_the_top_are_layers() -> None:
    assert layering([operator("first.a"), operator("first.b"), operator("second")]).layers == ("first", "second")
    assert layering([operator(""), operator("")]).layers == ("model",)


@given(st.lists(st.sampled_from(["", "words", "layers.0", "layers.1.norm", "layers.2", "more.0", "more.1", "head"])))
def test_layers_run_one_after_the_other(paths: list[str]) -> None:
    found = layering([operator(path) for path in paths])
    assert list(found.of) == sorted(found.of)
    assert set(found.of) == set(range(len(found.layers)))
    assert len(set(found.layers)) == len(found.layers)
    assert set(found.blocks) <= set(found.layers)
