"""The newest Megatron-Core's own `parse_args` and `validate_args` take the flags of nest's exporter."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, seed, settings

import nest
from frameworks_tests.megatron_plans import problems
from nest.catalogue import library_models, optimizer
from nest.errors import InputError
from tests.conformance.consumer import consume, needs
from tests.conformance.megatron_core import FLAGS, PRELUDE, case, case_of, wheel
from tests.conformance.plans import DENSE_MODEL, EXPERT_MODEL, PROBLEMS, problem
from tests.docs.document import REPOSITORY, Step, documents, run, steps

README = Path(__file__).parents[2] / "examples/llama-3-70b-on-128-h100/problem.yaml"

CORE = "megatron-core"
VALIDATE = (
    PRELUDE
    + """
import contextlib, io

REST = "--mock-data --tokenizer-type NullTokenizer --lr 1e-4 --train-iters 10".split()  # A user's own.

def refused(plan):
    for name in plan["unset"]:
        os.environ.pop(name, None)
    os.environ.update(plan["environment"], WORLD_SIZE=str(plan["world"]), RANK="0")
    sys.argv = ["pretrain_gpt.py", *plan["words"], *REST]
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            args = arguments.validate_args(arguments.parse_args())
            args.apply_rope_fusion = False  # Which is a kernel of Transformer Engine.
            core_transformer_config_from_args(args)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error} {told.getvalue()[-300:] if isinstance(error, SystemExit) else ''}"

answer({name: refused(plan) for name, plan in given["plans"].items()})
"""
)

TRAININGS: dict[str, dict[str, Any]] = {
    "fp16": {"precision": "fp16"},
    "fp32": {"precision": "fp32"},
    "fp8": {"precision": "fp8"},
    "fp8 beside bf16": {"precision": "fp8", "primary_weights": "bf16"},
    "mxfp8": {"precision": "mxfp8"},
    "mxfp8 of Megatron Core": {"precision": "mxfp8", "stack": "megatron-core"},
    "nvfp4": {"precision": "nvfp4"},
    "narrow gradients": {"gradients": "bf16"},
    "bare gradients": {"gradients": "bf16", "master_gradients": False},
    "adam-bf16": {"optimizer": "adam-bf16"},
    "sgd": {"optimizer": "sgd-momentum"},
    "muon": {"optimizer": "muon"},
    "offload": {"offload": ["optimizer"]},
    "no overlap": {"overlap": {"data": False, "tensor": False}},
    "norms again": {"selective": ["attention_norm", "mlp_norm"]},
    "unfused attention": {"attention": "unfused"},
    "long": {"sequence_length": 32768},
}
LAYOUT: dict[str, Any] = {"tp": 2, "sp": True, "cp": 2, "pp": 2, "dp": 2, "zero": 1, "recompute": "selective"}
EXPERTS: dict[str, Any] = {"tp": 2, "sp": True, "ep": 4, "etp": 1, "pp": 2, "dp": 4, "zero": 1}
DECISIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "ZeRO 2": (DENSE_MODEL, {}, {"dp": 16, "zero": 2}),
    "ZeRO 3": (DENSE_MODEL, {}, {"tp": 2, "sp": True, "dp": 8, "zero": 3, "recompute": "full"}),
    "ZeRO 3 in bf16": (DENSE_MODEL, {"gradients": "bf16", "stack": "megatron-core"}, {"dp": 16, "zero": 3}),
    "ZeRO 3 in fp8": (DENSE_MODEL, {"precision": "fp8"}, {"dp": 16, "zero": 3}),
    "shard groups": (DENSE_MODEL, {}, {"dp": 16, "zero": 1, "zero_degree": 8}),
    "exchange hidden": (EXPERT_MODEL, {"overlap": {"experts": True}}, {**EXPERTS, "pp": 1, "dp": 8}),
    "capacity": (EXPERT_MODEL, {"expert_capacity": 1.25}, EXPERTS),
    "further tokens": ({**DENSE_MODEL, "layers": 9, "mtp_layers": 1}, {}, {"pp": 2, "dp": 8, "zero": 1}),
}


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the wheel's modules."""
    needs("torch", "pyyaml", "omegaconf", "packaging", "numpy", of=CORE)
    return str(wheel(tmp_path_factory.mktemp("megatron-core")))


def cases() -> dict[str, dict[str, Any]]:
    """By name, the plan of README and others of every kind that the exporter writes."""
    tensor = {"overlap": {"data": True, "tensor": True}}
    found = {"README": case(nest.solve(README))}
    found |= {kind: case(nest.evaluate(each)) for kind, each in PROBLEMS.items()}
    for name, training in TRAININGS.items():
        zero = 0 if name in ("sgd", "muon") else 1
        asked = problem(DENSE_MODEL, {**tensor, **training}, {**LAYOUT, "zero": zero})
        found[name] = case(nest.evaluate(asked))
    for name, (model, training, fixed) in DECISIONS.items():
        found[name] = case(nest.evaluate(problem(model, training, fixed)))
    for name in library_models():
        asked = {**problem({}, {}, {"tp": 2, "sp": True, "dp": 8, "zero": 1, "recompute": "full"}), "model": name}
        try:
            found[name] = case(nest.evaluate(asked))
        except InputError:  # The library has encoders and the like, too.
            continue
    return found


def test_the_newest_megatron_core_takes_what_is_exported(newest: str) -> None:
    asked = cases()
    assert len(asked) >= 50
    answers = consume(VALIDATE, {"wheel": newest, "plans": asked}, of=CORE)
    assert {name: why for name, why in answers.items() if why is not None} == {}


def is_export(step: Step) -> bool:
    return step.arguments[:2] == ("nest", "export") and "megatron" in step.arguments


def documented(folder: Path) -> dict[str, dict[str, Any]]:
    """What the documents' own commands export, by document and file; whatever stands before them is done first."""
    found: dict[str, dict[str, Any]] = {}
    for name in documents():
        text = (REPOSITORY / name).read_text()
        last = max((step.start for step in steps(text) if is_export(step)), default=-1)
        here = folder / name.with_suffix("") / "checkout"
        for outcome in run(text, here, lambda step, last=last: step.start <= last) if last >= 0 else ():
            assert outcome.exit == outcome.step.exit, outcome
            if is_export(outcome.step) and not outcome.exit:
                files = sorted(here.rglob(FLAGS))
                assert files, outcome
                texts = {f"{name}: {path.relative_to(here)}": path.read_text() for path in files}
                found |= {key: case_of(each, ranks_of(each)) for key, each in texts.items()}
    return found


def ranks_of(text: str) -> int:
    """Ranks that an exported file is for, as its head says."""
    (ranks,) = re.findall(r"^# (\d+) ranks: ", text, re.MULTILINE)
    return int(ranks)


def test_the_newest_megatron_core_takes_what_documents_export(newest: str, tmp_path: Path) -> None:
    asked = documented(tmp_path)
    exporting = {str(name) for name in documents() if "nest export" in (REPOSITORY / name).read_text()}
    assert {name.partition(": ")[0] for name in asked} <= exporting
    assert len(asked) >= 5
    answers = consume(VALIDATE, {"wheel": newest, "plans": asked}, of=CORE)
    assert {name: why for name, why in answers.items() if why is not None} == {}


def test_the_newest_megatron_core_takes_random_plans(newest: str) -> None:
    asked: dict[str, dict[str, Any]] = {}

    @seed(56)
    @settings(max_examples=100, database=None, deadline=None)
    @given(problems())
    def draw(drawn: dict[str, Any]) -> None:
        asked[str(len(asked))] = case(nest.evaluate(drawn))

    draw()
    answers = consume(VALIDATE, {"wheel": newest, "plans": asked}, of=CORE)
    assert {asked[name]["words"][0]: why for name, why in answers.items() if why is not None} == {}


RECOMPUTED = (
    PRELUDE
    + """
from types import SimpleNamespace as Some
from megatron.core import recompute, tensor_parallel

def again(method, count, size):
    inside, found = [], []

    def layer(index):
        def run(**given):
            found.extend([index] if inside else [])
            return given["hidden_states"]

        return run

    def checkpoint(function, distribute, *given):
        inside.append(True)
        result = function(*given)
        inside.pop()
        return result

    tensor_parallel.checkpoint = checkpoint
    config = Some(recompute_method=method, recompute_num_layers=count, fp8=None, fp4=None,
                  distribute_saved_activations=False)
    block = Some(config=config, layers=[layer(index) for index in range(size)], num_layers_per_pipeline_rank=size)
    recompute.checkpointed_forward(block, 1.0, *[None] * 6, use_inner_quantization_context=False)
    return found

answer([again(*each) for each in given["asked"]])
"""
)


def test_block_recomputes_the_first_layers_of_a_chunk_and_uniform_all(newest: str) -> None:
    """findings/megatron-block-recompute-counts-each-virtual-stage.sh."""
    asked = [["block", 3, 8], ["block", 8, 8], ["block", 99, 8], ["block", 1, 1], ["uniform", 1, 4], ["uniform", 3, 4]]
    found = consume(RECOMPUTED, {"wheel": newest, "asked": asked}, of=CORE)
    assert found == [[0, 1, 2], [*range(8)], [*range(8)], [0], [*range(4)], [*range(4)]]


KEPT = """
import torch
from types import SimpleNamespace as Some
from megatron.core.optimizer import emerging_optimizers as emerging
from megatron.core.optimizer.optimizer_config import OptimizerConfig

def kept(shape, **marks):
    parameter = torch.nn.Parameter(torch.ones(shape))
    parameter.grad = torch.ones(shape)
    for name, value in marks.items():
        setattr(parameter, name, value)
    if emerging._is_nonlinear_or_embedding(parameter):
        optimizer = torch.optim.AdamW([parameter])
    else:
        config = OptimizerConfig(optimizer="muon", lr=1e-3, bf16=True)
        model = Some(num_attention_heads=8, num_query_groups=8, kv_channels=8)
        groups = [{"params": [parameter]}]
        optimizer, _ = emerging._create_emerging_optimizer(config, groups, "muon", [Some(config=model)], None)
        assert (config.muon_num_ns_steps, config.muon_tp_mode, config.muon_scalar_optimizer) == (5, "blockwise", "adam")
        assert (config.muon_split_qkv, config.muon_fp32_matmul_prec) == (True, "medium")
    optimizer.step()
    moments = [each for each in optimizer.state[parameter].values() if getattr(each, "shape", None) == parameter.shape]
    return sum(each.nbytes for each in moments) / parameter.numel()

answer([kept((8, 16)), kept((16,)), kept((8, 16), is_embedding_or_output_parameter=True)])
"""


def test_the_newest_muon_keeps_the_moments_that_are_priced() -> None:
    needs(CORE, "emerging-optimizers", "torch")
    muon = optimizer("muon")
    assert consume(KEPT, of=CORE) == [muon.matrix_moments, muon.moments, muon.moments]


def test_the_newest_megatron_core_refuses_what_is_not_written(newest: str) -> None:
    """Else the two tests above would ask nobody."""
    right = case(nest.evaluate(PROBLEMS["zero3"]))
    te = ["te" if word == "native" else word for word in right["words"]]
    unknown = [*right["words"], "--no-such-flag"]
    wrong = {"te": {**right, "words": te}, "unknown": {**right, "words": unknown}}
    wrong["connections"] = {**right, "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}
    answers = consume(VALIDATE, {"wheel": newest, "plans": wrong}, of=CORE)
    assert all(answers.values()), answers
