"""Plans of operator graphs whose blocks have names of their own, for PyTorch: as they are, and repeated."""

import json
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import unstructure
from nest.spec import Training, TransformerSpec
from nest_frameworks.common import named_layers
from nest_frameworks.pytorch import export

SPEC = TransformerSpec(layers=2, hidden=64, ffn=176, heads=8, kv_heads=2, vocab=100)


def graph() -> dict[str, Any]:
    """An operator graph of two blocks called `model.h.0` and `model.h.1`."""
    built = registry().model_importers()["transformer"].load(SPEC, Training(1, 16))
    found: dict[str, Any] = json.loads(json.dumps(unstructure(built)).replace("layers.", "model.h."))
    return found


@pytest.mark.longer
@pytest.mark.parametrize("count", [0, 2, 6])
def test_runs_name_the_blocks_as_the_graph_does(count: int) -> None:
    model: dict[str, Any] = {"graph": graph(), "repeat": count} if count else graph()
    problem = {
        "nest": 1,
        "model": model,
        "training": {"global_batch": 8, "sequence_length": 16, "schedule": "1f1b"},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 4, "link": "nvlink4"}]},
        "search": {"target": "pytorch"},
        "fixed": {"pp": 2},
    }
    plan = nest.solve(problem)
    blocks = [f"model.h.{index}" for index in range(count or 2)]
    assert [name for stage in plan.stages for name in stage.layers] == ["embedding", *blocks, "head"]
    written = export(plan)["pytorch_plan.py"]
    found: dict[str, Any] = {}
    exec(written.split("RUNS = ")[1].join(["RUNS = ", ""]).split('"""')[0], found)
    assert [name for _, layers in found["RUNS"] for name in layers] == ["embedding", *blocks, "head"]


def test_what_is_no_operator_graph_has_no_layers() -> None:
    assert named_layers({"model_type": "llama"}) == ()
    assert named_layers({"graph": [], "repeat": 3}) == ()
    assert named_layers(SPEC) == ()
    with pytest.raises(InputError, match="not with a number at its end"):
        named_layers({**graph(), "blocks": ["embedding"], "repeat": 3})
