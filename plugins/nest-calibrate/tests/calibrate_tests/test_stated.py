"""Facts that sources state beside their problems: keys of the training take them, unless it says otherwise itself."""

from typing import Any

import pytest

from calibrate_tests.synthetic import problem, read
from nest_calibrate.stated import with_stated


@pytest.mark.parametrize(
    ("stated", "key", "value"),
    [
        ({"attention_kernel": "cudnn"}, "attention_kernel", "cudnn"),
        ({"attention_kernel": "unfused"}, "attention", "unfused"),
        ({"dispatcher": "alltoall"}, "dispatch", "all-to-all"),
        ({"grouped_gemm": False}, "expert_products", "sequential"),
        ({"host": "grace"}, "host", "grace"),
        ({"fused_norm": False}, "norms", "eager"),
        ({"fused_norm": True}, "norms", "fused"),
        ({"kernels": "compiled"}, "kernels", "fused"),
        ({"graphs": "layers or iteration"}, "graphs", "layers"),
        ({"graphs": "not stated for the whole iteration"}, "graphs", "none"),
    ],
)
def test_facts_of_a_source_become_keys(stated: dict[str, Any], key: str, value: str) -> None:
    assert getattr(with_stated(read(problem(dp=32)), stated).training, key) == value


def test_what_the_problem_says_stays() -> None:
    written = read(problem(dp=32, training={"host": "x86"}))
    assert with_stated(written, {"host": "grace"}).training.host == "x86"


def test_facts_without_a_key_change_nothing() -> None:
    written = read(problem(dp=32))
    assert with_stated(written, {"release": "a container", "host": ["grace"], "graphs": "who knows"}) is written
