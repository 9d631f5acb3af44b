"""Plans applied to small modules on two local ranks, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from attrs import evolve
from typer.testing import CliRunner

import nest
from nest.errors import InputError
from nest.hooks.pipelines import deployed

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from torch.distributed.tensor.experimental import implicit_replication  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

import modules  # noqa: E402
import nest_torch  # noqa: E402
import zoo  # noqa: E402
from nest_torch.commands import register  # noqa: E402
from nest_torch.parallel.flow import copy_sharing, recorded  # noqa: E402
from nest_torch.parallel.layout import deployment_of  # noqa: E402
from nest_torch.parallel.scaling import scaled  # noqa: E402
from nest_torch.parallel.splits import Cut, rank_by_rank, splits  # noqa: E402
from nest_torch.parallel.stages import Stage, blocks_of  # noqa: E402
from nest_torch.parallel.tensors import TensorParallel  # noqa: E402

TOKENS = {"tokens": torch.zeros(1, 16, dtype=torch.long)}


def cluster(devices: int) -> dict[str, Any]:
    return {"device": "h100-sxm", "levels": [{"name": "node", "fanout": devices, "link": "nvlink4"}]}


def on_meta(make: Any) -> Any:
    with torch.device("meta"):
        return make()


def planned(make: Any, devices: int, fixed: dict[str, Any], **more: Any) -> Any:
    training = {"global_batch": 8, "micro_batch": [1]}
    return nest_torch.plan(on_meta(make), TOKENS, cluster(devices), training=training, fixed=fixed, **more)


SOME = {"pp": 2, "recompute": "full", "recompute_layers": 1}


@pytest.mark.parametrize(("make", "fixed"), [(modules.Gpt, SOME), (modules.Llama, {"tp": 2}), (modules.Gpt, {})])
def test_a_plan_trains_as_one_process_does(make: Any, fixed: dict[str, Any]) -> None:
    plan = planned(make, 2, fixed)
    assert nest.check(plan).ok
    found = nest_torch.check(make, plan, TOKENS, steps=2)
    assert found.ok, "\n".join(map(str, found.differences))
    assert found.ranks == 2
    assert found.losses[0] != found.losses[1]


def test_other_blocks_are_kept_whole_or_the_plan_is_refused() -> None:
    plan = planned(modules.Gpt, 2, SOME)
    assert {stage.recompute_name for stage in plan.stages} == {"full:1:none"}
    assert deployment_of(plan).recompute_layers == (1, 1)
    stages = tuple(evolve(stage, recompute_rest="selective") for stage in plan.stages)
    with pytest.raises(InputError, match="recompute mode 'selective'"):
        deployment_of(evolve(plan, stages=stages))


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [{"tp": 2}, {"dp": 2, "zero": 3}], ids=["tp", "zero-3"])
def test_compiled_and_narrow_blocks_train_too(fixed: dict[str, Any], tmp_path: Path) -> None:
    """Compiled blocks give the losses of plain ones; in bf16 they are near, and parameters stay in single precision."""
    plan = planned(lambda: modules.Llama(layers=2), 2, fixed)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_dict()))
    script = str(Path(__file__).with_name("two_ranks.py"))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    more = [] if "tp" in fixed else ["compiled"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, str(tmp_path / "plan.json"), *more], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    plain = found["plain"]["losses"]
    assert plain[-1] < plain[0]
    if more:
        assert found["compiled"]["losses"] == pytest.approx(plain, rel=1e-5)
    for name in ("autocast", "policy"):
        assert found[name]["losses"] == pytest.approx(plain, rel=2e-2)
        assert found[name]["formats"] == ["torch.float32"]
    assert found["autocast"]["losses"] != plain
    assert (found["policy"]["losses"] != plain) == ("zero" in fixed)  # Formats of FSDP, where it shards.


def test_a_rank_that_differs_is_named_with_its_module(tmp_path: Path) -> None:
    plan = planned(modules.Gpt, 2, {})
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_dict()))
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    given = ["--input", "tokens=int64[batch,sequence=16]", "--steps", "1"]
    place = f"{modules.__file__}:FaultyGpt"
    result = CliRunner().invoke(app, ["torch", "check", str(tmp_path / "plan.json"), place, *given])
    assert result.exit_code == 1, result.exception
    assert "of blocks.1 on rank 1" in result.stdout
    assert "does not train as one process does" in result.stdout


@pytest.mark.parametrize(
    ("make", "fixed", "told"),
    [
        (modules.EndedGpt, {}, r"^rank 1 failed: signal 6 \(Aborted\) ended it\.$"),
        (modules.LoneGpt, {"pp": 2}, r"^rank 1 failed: ValueError: no memory is left\.$"),
    ],
)
def test_the_rank_that_failed_is_told_before_those_that_waited_for_it(
    make: Any, fixed: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        nest_torch.check(make, planned(modules.Gpt, 2, fixed), TOKENS, steps=1, seconds=100)


def test_code_that_sets_threads_does_not_keep_ranks_from_starting() -> None:
    plan = planned(modules.Gpt, 2, {"pp": 2})
    assert nest_torch.check(modules.made_by_threads, plan, TOKENS, steps=1, seconds=100).ok


def test_fused_pieces_are_stored_rank_by_rank() -> None:
    rows = torch.arange(12).unsqueeze(1)
    stored = rank_by_rank(rows, Cut(0, "heads", 4, 3), 2)
    assert stored.flatten().tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]


def test_splits_are_those_of_the_graph() -> None:
    module = on_meta(modules.Gpt)
    found = splits(nest_torch.capture(module, (TOKENS["tokens"].to("meta"),)), module)
    assert found["blocks.0.qkv"].cuts["weight"] == (Cut(0, "heads", 4, 3),)
    assert not found["blocks.0.qkv"].contracted
    assert found["blocks.0.out"].cuts["weight"] == (Cut(1, "heads", 4, 1),)
    assert found["blocks.0.out"].contracted
    assert found["words"].cuts["weight"] == (Cut(0, "vocab", 100, 1),)
    assert not found["blocks.0.norm"].cuts


TWICE = {"embed.weight"}
"""Parameters of a part that `Shared` calls twice: each of its stages has a copy."""


def test_products_of_one_input_sum_its_gradients_in_one_all_reduce() -> None:
    """A layer needs two all-reduces in each direction (Megatron-LM, arXiv 1909.08053, section 3)."""
    layers, module = 2, modules.Llama(layers=2)
    found = splits(nest_torch.capture(on_meta(lambda: modules.Llama(layers=2)), (TOKENS["tokens"].to("meta"),)), module)
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        TensorParallel(module, init_device_mesh("cpu", (2,)), found, ["layers.0", "layers.1"], False).apply()
        with CommDebugMode() as seen, implicit_replication():
            module(TOKENS["tokens"]).sum().backward()
    finally:
        dist.destroy_process_group()
    counts = {str(call).rpartition(".")[2]: count for call, count in seen.get_comm_counts().items()}
    assert counts == {"all_reduce": 4 * layers + 2, "all_gather_into_tensor": 1}  # And embedding, head, logits.


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["llama", "skips", "held", "in_place", "shared", "everywhere", "residual_around"])
def test_stages_in_a_row_compute_what_the_module_does(name: str, cut: int) -> None:
    """Whatever crosses the cut arrives, and its gradients go back; each parameter is on the stages that read it."""
    torch.manual_seed(0)
    module = zoo.TRAINED[name]().double()
    layers = ["embedding", *(f"layers.{index}" for index in range(4)), "head"]
    tokens = torch.randint(0, zoo.VOCABULARY, (2, zoo.LENGTH))
    flow = recorded(module, {"tokens": tokens}, blocks_of(module, layers))
    expected = copy_sharing(module)(tokens)
    whole = torch.autograd.grad(expected.pow(2).mean(), [*module.parameters()])
    first, second = (
        Stage(copy_sharing(module), flow, names, torch.device("cpu")) for names in (layers[:cut], layers[cut:])
    )
    sent = first(tokens=tokens)
    sent = sent if isinstance(sent, tuple) else (sent,)
    made = second(*sent, tokens=tokens)
    assert torch.allclose(made, expected, 1e-12, 1e-14)  # Products of other layouts are rounded otherwise.
    found = torch.autograd.grad(made.pow(2).mean(), [*module.parameters()])
    assert all(torch.allclose(one, other, 1e-10, 1e-14) for one, other in zip(found, whole, strict=True))
    names = [{key for key, _ in stage.module.named_parameters()} for stage in (first, second)]
    assert names[0] | names[1] == {key for key, _ in module.named_parameters()}
    assert names[0] & names[1] == (TWICE if name == "shared" else set())


@pytest.mark.parametrize(("name", "tensors"), [("llama", 1), ("skips", 2), ("held", 2), ("residual_around", 1)])
def test_only_tensors_that_are_read_later_cross_a_cut(name: str, tensors: int) -> None:
    module = on_meta(zoo.TRAINED[name])
    flow = recorded(module, zoo_tokens(), blocks_of(module, [f"layers.{index}" for index in range(4)]))
    cut = next(index for index, call in enumerate(flow.calls) if call.layer == "layers.2")
    assert len(flow.crossing(cut)) == tensors


def zoo_tokens() -> dict[str, Any]:
    return {"tokens": torch.zeros(1, zoo.LENGTH, dtype=torch.long)}


@pytest.mark.parametrize(
    "fixed",
    [
        {"pp": 4, "tp": 4, "sp": True, "dp": 4, "zero": 1},
        {"pp": 4, "dp": 16, "schedule": "interleaved", "chunks": 2},
        {"cp": 4, "dp": 16, "zero": 3},
    ],
)
def test_plans_of_many_ranks_keep_their_shape_on_fewer(fixed: dict[str, Any]) -> None:
    model = {"transformer": {"layers": 8, "hidden": 64, "ffn": 176, "heads": 8, "kv_heads": 4, "vocab": 100}}
    training = {"global_batch": 128, "sequence_length": 64, "schedule": fixed.get("schedule", "1f1b")}
    decided = {key: value for key, value in fixed.items() if key != "schedule"}
    problem = {"nest": 1, "model": model, "training": training, "cluster": cluster(64), "fixed": decided}
    plan = nest.evaluate(problem, changes={"training": {"micro_batch": [1]}})
    fewer = scaled(plan, 16)
    before, after = deployed(plan), deployed(fewer)
    assert after.world_size <= 16 < before.world_size
    assert [name for run in after.runs for name in run.layers] == [name for run in before.runs for name in run.layers]
    for name in ("tp", "cp", "stages", "replicas"):
        assert (getattr(before, name) > 1) == (getattr(after, name) > 1)
    assert after.global_batch == after.micro_batch * after.micro_batches * after.data_parallel
    assert (after.zero[0], after.schedule, after.chunks) == (before.zero[0], before.schedule, before.chunks)


def test_a_plan_takes_eager_kernels_and_names_of_axes() -> None:
    def planned(**more: Any) -> Any:
        return nest_torch.plan(on_meta(zoo.TRAINED["llama"]), TOKENS, cluster(2), training={"global_batch": 8}, **more)

    compiled, eager, named = planned(), planned(fused=False), planned(axes=[("batch", "tokens")])
    assert compiled.batch_time < eager.batch_time
    assert compiled.problem["training"]["sequence_length"] > 1
    assert "sequence_length" not in named.problem["training"]


def test_what_cannot_be_planned_or_applied_is_refused_in_plain_words() -> None:
    module = on_meta(modules.Gpt)
    with pytest.raises(InputError, match="no section of a problem"):
        nest_torch.plan(module, TOKENS, cluster(2), trainings={})
    with pytest.raises(InputError, match="cannot be called with these inputs"):
        nest_torch.plan(module, (1, 2, 3), cluster(2))
    with pytest.raises(InputError, match="at the top of a module"):
        nest_torch.check(lambda: modules.Gpt(), planned(modules.Gpt, 2, {}), TOKENS)
    with pytest.raises(InputError, match="leave out `compiled`, or plan with tp"):
        nest_torch.apply(module, planned(modules.Llama, 2, {"tp": 2}), compiled={})
    with pytest.raises(InputError, match=r"has no part 'blocks\.7'"):
        blocks_of(module, ["embedding", "blocks.7"])
