"""Records written and read again are the same, in every format."""

import json
import re
from typing import Any

import attrs
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nest import io
from nest.io.schema import schema
from nest.spec import CandidateSummary, PlanDocument, Problem, ProfileSpec, StageRecord
from tests.spec.records import optional, positive, problems, profiles, small, some, words

many = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=20)

stages = st.builds(
    StageRecord, layers=some(words), candidate=words, recompute=words, zero=st.integers(0, 3),
    devices=st.tuples(st.integers(0, 99), small),
    time=positive, sync_time=positive, memory=positive, in_flight=small, level_in=st.integers(-1, 5),
    level_out=st.integers(-1, 5),
)  # fmt: skip
plans = st.builds(
    PlanDocument,
    nest=st.just(1),
    status=st.sampled_from(["optimal", "feasible", "infeasible"]),
    batch_time=optional(positive),
    lower_bound=optional(positive),
    throughput=optional(positive),
    fits=st.booleans(),
    candidate=optional(st.builds(CandidateSummary, words, st.dictionaries(words, small, max_size=2), small, small)),
    data_parallel=optional(small),
    rank_order=optional(st.sampled_from(["pp-inner", "dp-inner"])),
    schedule=optional(words),
    micro_batches=optional(small),
    stages=st.lists(stages, max_size=2).map(tuple),
    verification=optional(st.dictionaries(words, positive, max_size=2)),
    problem=problems().map(Problem.to_dict),
    diagnosis=optional(words),
    summary=st.dictionaries(words, positive | st.lists(words, max_size=2), max_size=2),
    plugins=st.dictionaries(words, words, max_size=2),
)


def as_toml(mapping: dict[str, Any]) -> str:
    return "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in mapping.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _has_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return value is None or any(map(_has_null, inner))


def as_yaml(value: Any, indent: str = "") -> str:
    """Block style, words without quotes where that says the same."""
    if isinstance(value, dict) and value:
        rows = [f"{indent}{_yaml_word(key)}:{_yaml_below(item, indent)}" for key, item in value.items()]
    elif isinstance(value, list) and value:
        rows = [f"{indent}-{_yaml_below(item, indent)}" for item in value]
    else:
        return indent + _yaml_word(value)
    return "\n".join(rows)


def _yaml_below(value: Any, indent: str) -> str:
    nested = isinstance(value, (dict, list)) and value
    return "\n" + as_yaml(value, indent + "  ") if nested else " " + _yaml_word(value)


def _yaml_word(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch("[a-z]{3}[a-z_]*", value) and value not in ("null", "true", "false")
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


@many
@given(problems())
def test_problems_come_back_the_same_in_every_format(problem: Problem) -> None:
    written = problem.to_dict()
    assert io.structure(written, Problem) == problem
    assert io.read_text(json.dumps(written, indent=1), Problem, "problem.json") == problem
    assert io.read_text(as_yaml(written), Problem, "problem.yaml") == problem
    if not _has_null(written):  # TOML has none.
        assert io.read_text(as_toml(written), Problem, "problem.toml") == problem


@pytest.mark.longer
@many
@given(profiles())
def test_profiles_come_back_the_same(profile: ProfileSpec) -> None:
    assert io.structure(io.unstructure(profile), ProfileSpec) == profile


@many
@given(plans)
def test_plans_come_back_the_same(plan: PlanDocument) -> None:
    written = plan.to_dict()
    assert list(written) == [field.name for field in attrs.fields(PlanDocument)]
    assert io.structure(written, PlanDocument) == plan
    assert io.read_text(json.dumps(written), PlanDocument, "plan.json") == plan


problem_schema = jsonschema.Draft202012Validator(schema(Problem, "problem"))
plan_schema = jsonschema.Draft202012Validator(schema(PlanDocument, "plan"))


@pytest.mark.longer
@many
@given(problems())
def test_what_is_written_passes_the_schema(problem: Problem) -> None:
    problem_schema.validate(problem.to_dict())


@pytest.mark.longer
@many
@given(plans)
def test_plans_that_are_written_pass_the_schema(plan: PlanDocument) -> None:
    plan_schema.validate(plan.to_dict())
