"""JSON schemas: fresh, and of one mind with what nest reads and writes."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import nest
from nest.catalogue.formats import FORMATS
from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.io import read_mapping, structure
from nest.io.schema import field_descriptions, schema
from nest.spec import Problem, ProfileSpec
from tests.docs.document import blocks

REPOSITORY = Path(__file__).resolve().parent.parent
SCHEMAS = REPOSITORY / "schemas"
REFRESH = "write the schemas anew with: nest schema --output schemas"


def validator(name: str) -> jsonschema.Draft202012Validator:
    written = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return jsonschema.Draft202012Validator(written)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_written_schemas_are_fresh(name: str) -> None:
    from nest.cli.schema import text

    path = SCHEMAS / f"{name}.schema.json"
    assert path.exists(), REFRESH
    assert path.read_text() == text(name), REFRESH
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


def test_no_schema_is_left_over() -> None:
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in FORMATS}


def records(part: Any) -> Iterator[dict[str, Any]]:
    """Every object schema with properties in a schema."""
    if isinstance(part, dict):
        if "properties" in part:
            yield part
        for item in part.values():
            yield from records(item)
    elif isinstance(part, list):
        for item in part:
            yield from records(item)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_key_is_described(name: str) -> None:
    found = schema(FORMATS[name], name)
    silent = [
        (record.get("description"), key)
        for record in records(found)
        for key, value in record["properties"].items()
        if "description" not in value and key not in ("transformer", *PRECISION_KEYS)
    ]
    assert silent == []


PRECISION_KEYS = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")  # the class says it of all of them


def shared_problems(shared: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("small/optima.jsonl", "small/chains.jsonl", "fidelity/measured.jsonl"):
        for number, line in enumerate((shared / name).read_text().splitlines(), 1):
            yield f"{name}:{number}", json.loads(line)["problem"]
    for path in sorted((shared / "artifact").glob("*.json"))[::7]:
        yield path.name, json.loads(path.read_text())


@pytest.mark.slow
def test_shared_problems_pass_the_schema_and_are_read(shared: Path) -> None:
    passes, count = validator("problem"), 0
    for place, problem in shared_problems(shared):
        assert passes.is_valid(problem), (place, jsonschema.exceptions.best_match(passes.iter_errors(problem)))
        read = structure(problem, Problem)
        again = read.to_dict()
        assert passes.is_valid(again), place
        assert structure(again, Problem) == read
        count += 1
    assert count > 100


def test_shared_profiles_pass_the_schema(shared: Path) -> None:
    passes = validator("profile")
    for line in (shared / "small" / "optima.jsonl").read_text().splitlines():
        profile = json.loads(line)["problem"]["profile"]
        passes.validate(profile)
        assert isinstance(structure(profile, ProfileSpec), ProfileSpec)


EXAMPLES = sorted((REPOSITORY / "examples").glob("*/problem.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.parent.name for path in EXAMPLES])
def test_examples_pass_the_schema(path: Path) -> None:
    validator("problem").validate(read_mapping(path).mapping)


def test_graphs_that_are_none_fail_the_schema() -> None:
    page = (REPOSITORY / "docs" / "reference" / "graph.md").read_text()
    graph = json.loads("\n".join(next(block.lines for block in blocks(page) if block.file == "graph.json")))
    passes = validator("graph")
    for path, value in [
        ("operators.0.kin", "matmul"),
        ("operators.0.space.0.1", "one"),
        ("operators.0.inputs.0.itemsize", "wide"),
        ("operators.0.layer", None),
        ("layers", 3),
    ]:
        broken = altered(graph, path, value)
        assert not passes.is_valid(broken), path
        with pytest.raises(InputError):
            structure(broken, OperatorGraph)


MEASURED = read_mapping(REPOSITORY / "examples" / "measured-layers" / "problem.yaml").mapping
DESCRIBED: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 100}},
    "training": {"global_batch": 8, "sequence_length": 64},
    "cluster": {"device": "a100-sxm-40g", "levels": {"fanout": 4, "link": "nvlink3"}},
}
DESCRIBED["cluster"]["levels"] = [DESCRIBED["cluster"]["levels"]]


@pytest.mark.longer
@pytest.mark.parametrize("problem", [MEASURED, DESCRIBED, {**DESCRIBED, "cluster": "dgx-a100-superpod-8"}])
def test_plans_pass_the_schema(problem: dict[str, Any]) -> None:
    passes = validator("plan")
    solved = nest.solve(problem)
    assert solved.status in ("optimal", "near-optimal")
    for plan in (solved, nest.evaluate(problem)):
        passes.validate(plan.to_dict())
    starved = copy.deepcopy(MEASURED)
    starved["cluster"]["memory"] = "1 MB"
    infeasible = nest.solve(starved)
    assert infeasible.status == "infeasible"
    passes.validate(infeasible.to_dict())


ALTERATIONS: list[tuple[str, Any, bool]] = [
    ("nest", 2, False),
    ("nest", 1.0, True),
    ("colour", 1, False),
    ("training.global_batch", 0, False),
    ("training.global_batch", 2.5, False),
    ("training.schedule", "1f1b", True),
    ("training.schedule", [], False),
    ("training.exposed", 1.5, False),
    ("training.exposed", None, True),
    ("training.precision", None, False),
    ("training.micro_batch", 4, True),
    ("training.overlap", {"data": True}, True),
    ("training.overlap", {"data": 1}, False),
    ("cluster", "dgx-h100-superpod", True),
    ("cluster", 5, False),
    ("cluster.memory", "16 GB", True),
    ("cluster.memory", "16 GB/s", False),
    ("cluster.memory", 0, False),
    ("cluster.memory", 1e40, False),
    ("cluster.levels", [], False),
    ("cluster.levels.0.fanout", 0, False),
    ("cluster.levels.0.bandwidth", -1, False),
    ("cluster.levels.0.latency", 0, True),
    ("cluster.device", {"name": "x", "memory": 1, "memory_bandwidth": "1 GB/s", "peak": {"bf16": "1 TFLOP/s"}}, True),
    ("cluster.device", {"name": "x", "memory": 1, "memory_bandwidth": "1 GB", "peak": {}}, False),
    ("search.zero", 3, True),
    ("search.zero", [4], False),
    ("search.zero_degree", 8, True),
    ("search.zero_degree", ["all", 8], True),
    ("search.zero_degree", "some", False),
    ("search.rank_order", "sideways", False),
    ("strategies", {"tp": [1, 2], "sp": True}, True),
    ("strategies", {"tp": []}, False),
    ("strategies", {"tp": ["2"]}, False),
    ("constraints", "tp == 1", True),
    ("constraints", [1], False),
    ("fixed", {"tp": 2, "sp": True, "recompute": "none"}, True),
    ("fixed", {"tp": [2]}, False),
    ("fixed", {"stages": [["a", "b"], ["c"]]}, True),
    ("fixed", {"stages": [2, 3]}, True),
    ("fixed", {"stages": 2}, True),
    ("profile", "costs.json", True),
    ("profile.layers", [], False),
    ("profile.layers", ["a", "a"], False),
    ("profile.edges.0", [0, 1, 2], False),
    ("profile.candidates", [], False),
    ("profile.candidates.0.width", 0, False),
    ("profile.candidates.0.forward.0", -1, False),
    ("profile.candidates.0.recompute", {}, False),
    ("profile.candidates.0.state.dense.ranks", [0, 0], False),
    ("profile.candidates.0.state.dense.ranks", 0, True),
    ("profile.candidates.0.recompute.none.stash_inputs", 1, False),
]


@pytest.mark.longer
@pytest.mark.parametrize(("path", "value", "allowed"), ALTERATIONS)
def test_schema_and_reader_agree(path: str, value: Any, allowed: bool) -> None:
    schema_and_reader_say(altered(MEASURED, path, value), allowed)


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("config.json", True),
        ({"model_type": "llama"}, True),
        ({"transformer": {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 100}}, True),
        ({"transformer": {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4}}, False),
        ({"transformer": {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 100}, "hidden": 3}, False),
        ({"transformer": {"layers": 0, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 100}}, False),
        (["config.json"], False),
    ],
)
def test_models_in_place(model: Any, allowed: bool) -> None:
    schema_and_reader_say({**DESCRIBED, "model": model}, allowed)


def schema_and_reader_say(problem: dict[str, Any], allowed: bool) -> None:
    assert validator("problem").is_valid(problem) is allowed
    if allowed:
        structure(problem, Problem)
    else:
        with pytest.raises(InputError):
            structure(problem, Problem)


def altered(problem: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(problem)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    target: Any = changed
    for step in steps:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
    target[last] = value
    return changed


def test_descriptions_come_from_docstrings() -> None:
    class Told:
        """A thing.

        Attributes:
            first: one line.
            second: two
                lines: with a colon.

        Raises:
            nothing: ever.
        """

    assert field_descriptions(Told) == {"first": "one line.", "second": "two lines: with a colon."}
    assert field_descriptions(object) == {}
