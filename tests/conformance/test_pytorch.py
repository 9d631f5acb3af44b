"""PyTorch builds the mesh, wraps layers and loads the schedule that the exporter writes, on its fake backend."""

import re
from typing import Any

import pytest

import nest
from nest.hooks.registry import registry
from tests.conformance.consumer import consume, needs, refusal
from tests.conformance.framework_plans import KINDS, files_for, plan_for
from tests.conformance.plans import DENSE_MODEL, problem

START = """
import importlib.util, os, tempfile
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
folder = tempfile.mkdtemp()
for name, text in given["files"].items():
    open(os.path.join(folder, name), "w").write(text)
spec = importlib.util.spec_from_file_location("pytorch_plan", os.path.join(folder, "pytorch_plan.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
torch.distributed.init_process_group("fake", store=FakeStore(), rank=given["rank"], world_size=given["world"])
"""

MESH = (
    START
    + """
mesh = module.build_mesh("cpu")
groups = {name: torch.distributed.get_process_group_ranks(mesh.get_group(name)) for name in mesh.mesh_dim_names}
if hasattr(module, "build_expert_mesh"):
    experts = module.build_expert_mesh("cpu")
    groups |= {name: torch.distributed.get_process_group_ranks(experts.get_group(name)) for name in ("ep", "etp")}
answer(groups)
"""
)

WRAP = (
    START
    + """
mesh = module.build_mesh("cpu")
rank = mesh.get_local_rank("pp")
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
    def forward(self, x):
        return x + self.inner(x)
model = torch.nn.Sequential(Block(), Block())
model = module.wrap({"0": model[0], "1": model[1]}, model, mesh, rank)
for index in range(module.MICRO_BATCHES):
    module.before_backward(model, index, rank)
    model(torch.ones(module.MICRO_BATCH, 8)).sum().backward()
names = [type(inner).__name__ for inner in model.modules()]
shapes = [list(p.to_local().shape) if hasattr(p, "to_local") else list(p.shape) for p in model.parameters()]
answer({"names": names, "shapes": shapes})
"""
)

SCHEDULE = (
    START
    + """
from torch.distributed.pipelining import PipelineStage
mesh = module.build_mesh("cpu")
rank, ranks = mesh.get_local_rank("pp"), mesh["pp"].size()
mine = [index for index, (stage, _) in enumerate(module.RUNS) if stage == rank]
stages = [PipelineStage(torch.nn.Linear(8, 8), index, len(module.RUNS), torch.device("cpu"), group=mesh.get_group("pp"))
          for index in mine]
found = module.schedule(stages, loss_fn=lambda output, target: output.sum())
order = getattr(found, "pipeline_order", None)
rows = None
if order is not None:
    rows = [[str(action) for action in order[row] if action is not None] for row in range(ranks)]
answer({"class": type(found).__name__, "rows": rows})
"""
)


def _given(kind: str, rank: int) -> dict[str, Any]:
    needs("torch")
    files = files_for("pytorch", kind)
    assert files is not None
    return {"files": files, "rank": rank, "world": 16}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 13])
def test_the_groups_are_those_of_the_rank_table(kind: str, rank: int) -> None:
    from nest.deployment import rank_table

    groups = consume(MESH, _given(kind, rank))
    table = rank_table(plan_for(kind))
    here = table[rank]
    assert groups["tp"] == [r.rank for r in table if (r.pp, r.dp, r.cp) == (here.pp, here.dp, here.cp)]
    assert groups["pp"] == [r.rank for r in table if (r.tp, r.dp, r.cp) == (here.tp, here.dp, here.cp)]
    assert groups["dp_shard"] == [r.rank for r in table if (r.tp, r.pp, r.cp) == (here.tp, here.pp, here.cp)]
    if kind == "moe":
        members = [table[member] for member in groups["ep"]]
        assert [member.ep for member in members] == [0, 1, 2, 3]
        assert {(member.pp, member.etp) for member in members} == {(here.pp, here.etp)}


def test_a_world_of_another_size_is_refused() -> None:
    assert "world" in (refusal(MESH, {**_given("dense", 0), "world": 8}) or "").lower()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_wrapped_and_run(kind: str) -> None:
    found = consume(WRAP, _given(kind, 0))
    shards = {"dense": 4, "moe": 4, "uneven": 2, "interleaved": 2, "zero3": 8}[kind]
    assert found["shapes"] == [[8 // shards, 8], [8 // shards]] * 2
    assert any("CheckpointWrapper" in name for name in found["names"]) == (kind in ("dense", "zero3"))


@pytest.mark.parametrize("kind", ["dense", "uneven", "interleaved"])
def test_the_schedule_is_pytorchs_own(kind: str) -> None:
    found = consume(SCHEDULE, _given(kind, 0))
    assert found["class"] == ("ScheduleInterleaved1F1B" if kind == "interleaved" else "Schedule1F1B")
    if kind == "interleaved":
        ours = [row.split(",") for row in _given(kind, 0)["files"]["pipeline_schedule.csv"].splitlines()]
        assert found["rows"] == ours


@pytest.mark.parametrize(
    ("schedule", "name"),
    [
        ("gpipe", "ScheduleGPipe"),
        ("interleaved-zero-bubble", "ScheduleInterleavedZeroBubble"),
        ("zb-v", "ScheduleZBVZeroBubble"),
        ("dualpipe-v", "ScheduleDualPipeV"),
    ],
)
@pytest.mark.parametrize("rank", [0, 13])
def test_every_class_takes_the_stages_of_its_rank_in_the_order_of_the_file(schedule: str, name: str, rank: int) -> None:
    needs("torch")
    chunks = {} if schedule == "gpipe" else {"chunks": 2}
    fixed = {"pp": 4, "dp": 4, "micro_batch": 1, "zero": 1, **chunks}
    document = nest.evaluate(problem(DENSE_MODEL, {"schedule": schedule}, fixed))
    files = dict(registry().exporters()["pytorch"].export(document))
    found = consume(SCHEDULE, {"files": files, "rank": rank, "world": 16})
    assert found["class"] == name
    if found["rows"] is not None:
        theirs = [[action for word in row for action in ACTION.findall(word)] for row in found["rows"]]
        assert theirs == [row.split(",") for row in files["pipeline_schedule.csv"].splitlines()]


ACTION = re.compile(r"\d+[FBIW]\d+")
"""An action by itself, or one of those that PyTorch runs together."""


@pytest.mark.parametrize(
    ("fixed", "shares"),
    [
        ({"zero": 0}, 1),
        ({"zero": 0, "cp": 4}, 1),
        ({"zero": 3, "cp": 4}, 16),
        ({"zero": 1}, 16),
        ({"zero": 2}, 16),
        ({"zero": 3, "zero_degree": 4, "cp": 2}, 4),
    ],
    ids=["replicated", "replicated cp", "sharded cp", "zero1", "zero2", "hybrid"],
)
def test_every_zero_stage_is_wrapped_and_run(fixed: dict[str, Any], shares: int) -> None:
    needs("torch")
    cp = fixed.get("cp", 1)
    plan = nest.evaluate(problem(DENSE_MODEL, {}, {"dp": 16 // cp, "micro_batch": 1, **fixed}))
    files = dict(registry().exporters()["pytorch"].export(plan))
    found = consume(WRAP, {"files": files, "rank": 0, "world": 16})
    first = -(-8 // shares)
    assert found["shapes"] == [[first, 8], [first]] * 2


def test_a_schedule_without_a_class_is_loaded_from_the_file() -> None:
    needs("torch")
    document = nest.evaluate(
        problem(DENSE_MODEL, {"schedule": "zero-bubble"}, {"pp": 4, "dp": 4, "micro_batch": 1, "zero": 1})
    )
    files = dict(registry().exporters()["pytorch"].export(document))
    found = consume(SCHEDULE, {"files": files, "rank": 0, "world": 16})
    assert found["class"] == "_PipelineScheduleRuntime"
    assert found["rows"] == [row.split(",") for row in files["pipeline_schedule.csv"].splitlines()]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_as_many_blocks_are_checkpointed_as_the_plan_says(count: int) -> None:
    needs("torch")
    fixed = {"pp": 2, "dp": 8, "zero": 1, "recompute": "full", "recompute_layers": count}
    files = dict(registry().exporters()["pytorch"].export(nest.evaluate(problem(DENSE_MODEL, {}, fixed))))
    found = consume(WRAP, {"files": files, "rank": 0, "world": 16})
    assert sum("CheckpointWrapper" in name for name in found["names"]) == min(count, 2)  # Of a model of two blocks.
