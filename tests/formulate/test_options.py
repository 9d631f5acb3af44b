"""What a problem decides and allows, read once."""

from typing import Any

import pytest

from nest.errors import InputErrors
from nest.formulate.instance import formulate, options_of, read_options
from nest.formulate.problem import whole_problem
from nest.hooks.registry import registry
from nest.spec import Problem

WRITTEN: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 64, "ffn": 256, "heads": 4, "vocab": 256}},
    "training": {"global_batch": 8, "sequence_length": 64, "micro_batch": [1, 2]},
    "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "bandwidth": "100 GB/s"}]},
}


def problem(**changed: Any) -> Problem:
    sections = {key: {**WRITTEN.get(key, {}), **each} for key, each in changed.items() if isinstance(each, dict)}
    return whole_problem({**WRITTEN, **changed, **sections}, registry())[0]


def test_all_mistakes_are_told_at_once() -> None:
    asked = problem(
        training={"micro_batch": [3], "schedule": ["1f1"], "optimizer": "adm"},
        strategies={"tpp": [2]},
        constraints=["tp ==", "pq == 2"],
        costs="roofing",
        search={"target": "megaton"},
        fixed={"zero": 7},
    )
    with pytest.raises(InputErrors) as raised:
        read_options(asked, registry())
    places = ("strategies", "training.schedule", "costs", "search.target", "fixed.zero", "training.optimizer")
    told = raised.value.problems
    for place in (*places, "training.micro_batch", "constraints[0]", "constraints[1]"):
        assert any(each.startswith(place) for each in told), (place, told)
    assert len(told) == len({*told}) == 9


def test_a_target_narrows_what_is_read() -> None:
    asked = problem(training={"schedule": ["1f1b", "gpipe"]}, search={"target": "megatron", "rank_order": ["dp-inner"]})
    wide, narrow = read_options(asked, registry()), options_of(asked, registry())
    assert [each.name for each in wide.schedules] == ["1f1b", "gpipe"]
    assert [each.name for each in narrow.schedules] == ["1f1b"]
    assert narrow.micro_batches == (1, 2)
    assert narrow.limits is not None
    assert {*narrow.strategies} <= {*wide.strategies}
    for name in {*narrow.strategies}.difference(narrow.limits.strategies or ()):
        assert narrow.degrees[name].among((1, 2, 4)) == (1,)


def test_options_make_the_instance_of_their_problem() -> None:
    asked, known = problem(), registry()
    one, other = formulate(asked, known)[0], formulate(options_of(asked, known), known)[0]
    assert one.space == other.space
    assert [each.name for each in one.candidates] == [each.name for each in other.candidates]
