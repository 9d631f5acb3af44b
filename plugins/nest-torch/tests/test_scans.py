"""Loops along the sequence: one operator each, and for long sequences told from short ones."""

import re
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.graph import axis_size

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

import modules  # noqa: E402
import nest_torch  # noqa: E402
from nest_torch import repeats  # noqa: E402
from nest_torch.lengths import LENGTHS  # noqa: E402


def recurrence() -> Any:
    with torch.device("meta"):
        return modules.Recurrence()


def tokens(length: int) -> Any:
    return torch.zeros(1, length, dtype=torch.long, device="meta")


def test_a_loop_is_one_operator_with_the_flops_of_its_steps() -> None:
    graph = nest_torch.capture(recurrence(), (tokens(16),))
    found = [each for each in graph.operators if each.kind == "scan"]
    assert [each.layer for each in found] == ["layers.0", "layers.2", "layers.3"]
    assert all(each.flops == 2 * 16 * 64 * 16 for each in found)  # A product of 16 states for each number.
    assert all(axis_size(each.outputs[0].shape, "sequence") == 16 for each in found)
    traced = nest_torch.capture(recurrence(), (tokens(16),), fused=False)
    assert len(traced.operators) > 5 * len(graph.operators)
    assert traced.flops == graph.flops
    assert traced.parameter_count == graph.parameter_count


def test_long_sequences_are_told_from_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nest_torch.capture(recurrence(), (tokens(40),))
    monkeypatch.setattr(repeats, "MOST_OPERATORS", 100)
    lengths = []
    traced = nest_torch.capturing.exported

    def noted(module: Any, positional: Any, keywords: Any) -> Any:
        lengths.append(positional[0].shape[1])
        return traced(module, positional, keywords)

    monkeypatch.setattr(nest_torch.capturing, "exported", noted)
    assert nest_torch.capture(recurrence(), (tokens(40),)) == whole
    assert tuple(lengths) == LENGTHS


def test_thousands_of_steps_are_planned() -> None:
    graph = nest_torch.capture(recurrence().bfloat16(), (tokens(4096),))
    assert len(graph.operators) < 60
    problem = {
        "nest": 1,
        "model": graph,
        "training": {"global_batch": 8, "sequence_length": 4096},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 4, "link": "nvlink4"}]},
    }
    plan = nest.solve(problem)
    assert plan.status in ("optimal", "near-optimal")
    assert nest.check(plan).ok
    with pytest.raises(InputError, match="cp"):  # A recurrence has no rest of the sequence to begin with.
        nest.solve({**problem, "fixed": {"cp": 2}})


def test_what_grows_otherwise_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Triangle(modules.Recurrence):
        def forward(self, tokens: Any) -> Any:
            source = self.words(tokens)
            for place in range(tokens.shape[1]):
                for _ in range(place):
                    source = source.sin()
            return self.head(source)

    monkeypatch.setattr(repeats, "MOST_OPERATORS", 20)
    with torch.device("meta"):
        module = Triangle()
    with pytest.raises(InputError) as raised:
        nest_torch.capture(module, (tokens(40),), fused=False)
    assert re.search("something else for each place of the sequence", str(raised.value))
