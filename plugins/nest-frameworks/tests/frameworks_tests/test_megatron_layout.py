import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
from frameworks_tests.megatron_plans import LEVELS, MODELS
from nest.errors import InputError
from nest.hooks.registry import registry
from nest_frameworks.megatron.notation import (
    LONGEST,
    check_layout,
    read_layout,
    read_pattern,
    write_layout,
    write_pattern,
)

CHUNKS = st.lists(st.text("EtmL", max_size=30), min_size=1, max_size=20)


@given(CHUNKS)
def test_what_is_written_is_read_again(chunks: list[str]) -> None:
    assert list(read_layout(write_layout(chunks))) == chunks


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("Et*7|t*8|t*9|t*8L", ["E" + "t" * 7, "t" * 8, "t" * 9, "t" * 8 + "L"]),
        ("E|(t|)*3,m|m||L", ["E", "t", "t", "t", "m", "m", "", "L"]),
        ("tt(EL|tm|t)*2,mm", ["ttEL", "tm", "tEL", "tm", "tmm"]),
        ("(tt)*2", ["tttt"]),
        ("(|tt)*2", ["", "tt", "tt"]),
        ("t*0|L", ["", "L"]),
    ],
)
def test_repetitions_are_written_out(text: str, chunks: list[str]) -> None:
    assert list(read_layout(text)) == chunks


def test_deepseek_v3_on_sixteen_ranks_of_two_chunks() -> None:
    chunks = read_layout("Et*3|(tt|)*29,m|L")
    assert len(chunks) == 32
    check_layout(chunks, layers=61, stages=16, further=1)


@pytest.mark.parametrize("text", ["Etx|L", "E((t|)*2)*3L", "E(t|*2L", "Et*|L", "E t|L", "t*9999999999999999999|L"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--pipeline-model-parallel-layout"):
        read_layout(text)


def test_a_layout_that_stands_for_too_much_is_refused_unexpanded() -> None:
    with pytest.raises(InputError, match="more than"):
        read_layout(f"({'t' * 99})*{LONGEST}")


@pytest.mark.parametrize(
    ("text", "layers", "stages", "told"),
    [
        ("Et*7|t*8|t*8|t*8L", 32, 4, "31 transformer layers, but --num-layers is 32"),
        ("Et*16|t*16L", 32, 4, "2 chunks, which --pipeline-model-parallel-size 4 does not divide"),
        ("t*16|Et*16L", 32, 2, "must have E exactly once, as its first letter"),
        ("Et*16L|t*16", 32, 2, "must have L exactly once, as its last letter"),
        ("Et*16L|t*16L", 32, 2, "must have L exactly once"),
        ("Et*16m|t*16L", 32, 2, "a transformer layer behind m"),
        ("Et*16|t*16m|m|L", 32, 2, "must have all m in one chunk, the last of its pipeline rank"),
        ("Et*16|t*16m|t*0|L", 32, 2, "must have all m in one chunk, the last of its pipeline rank"),
    ],
)
def test_layouts_that_are_none_of_the_model_are_refused(text: str, layers: int, stages: int, told: str) -> None:
    with pytest.raises(InputError) as error:
        check_layout(read_layout(text), layers, stages, text.count("m"))
    assert told in str(error.value)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=100))
def test_patterns_are_read_as_python_reads_them(values: list[int]) -> None:
    text = write_pattern(values)
    assert list(read_pattern("--moe-layer-freq", text)) == values == eval(text, {"__builtins__": {}})


@pytest.mark.parametrize("text", ["([0]*3+[1]*2)*2", "[0]*3+[1]*58", "[1,0,1]", "([1]*3+[0]*1)*3", "[1, 1]"])
def test_patterns_people_write(text: str) -> None:
    assert list(read_pattern("--moe-layer-freq", text)) == eval(text, {"__builtins__": {}})


@pytest.mark.parametrize(
    "text", ["__import__('os')", "[1]*99999999", "([1]", "[1]]", "1", "", "[1]*[1]", "((((", "[a]"]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--moe-layer-freq"):
        read_pattern("--moe-layer-freq", text)


def test_a_layout_has_as_many_predictions_as_the_model() -> None:
    with pytest.raises(InputError, match="has 1 m, but --mtp-num-layers is 2"):
        check_layout(read_layout("Et*16|t*16mL"), 32, 2, 2)


@pytest.mark.longer
def test_layers_that_predict_further_tokens_stay_on_one_stage() -> None:
    model = {**MODELS["predicting"]["transformer"], "mtp_layers": 2}
    problem = {
        "nest": 1,
        "model": {"transformer": model},
        "training": {"global_batch": 16, "sequence_length": 256},
        "cluster": {"device": "h100-sxm", "levels": LEVELS},
        "fixed": {"pp": 2, "dp": 2, "micro_batch": 1},
    }
    megatron = registry().exporters()["megatron"]
    even, uneven = (
        megatron.export(nest.evaluate(problem, fix={"stages": counts}))["megatron_flags.sh"]
        for counts in ([6, 8], [5, 9])
    )
    assert "--mtp-num-layers 2" in even
    assert "--pipeline-model-parallel-layout" not in even
    assert "--pipeline-model-parallel-layout 'Et*5|t*7m*2L'" in uneven
    with pytest.raises(InputError, match="builds all layers that predict further tokens in one place"):
        megatron.export(nest.evaluate(problem, fix={"stages": [13, 1]}))
