"""Scripts that give exported files to the frameworks' own parsers and checks, one for each framework.

Each defines `check(case)`, which raises what the framework says against a case. A case has the exported `files`, in the
working directory too, and the number of ranks, `world`. Every case runs in a process of its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

HARNESS = """
import contextlib, importlib, io, os, subprocess, tempfile, traceback

def compare_batch(case, samples, steps):
    assert [samples, steps] == [case["micro"], case["steps"]], f"micro-batch and accumulation are {samples}, {steps}"

def words_of(file, array):
    told = f'. ./{file}; printf "%s\\\\0" "${{{array}[@]}}"'
    return subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True).stdout.split("\\0")[:-1]

def verdict(case):
    os.chdir(tempfile.mkdtemp())
    for name, text in case["files"].items():
        open(name, "w").write(text)
    sys.path.insert(0, os.getcwd())
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            check(case)
    except BaseException as error:
        heard = told.getvalue().strip()[-300:] if isinstance(error, SystemExit) else ""
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:600]} {heard} ({os.path.basename(where.filename)}:{where.lineno})"

def verdicts():
    found = {}
    for name, case in given["cases"].items():
        readable, writable = os.pipe()
        child = os.fork()
        if not child:
            before = set(sys.modules)
            why = verdict(case)
            with os.fdopen(writable, "w") as pipe:
                json.dump([why, [module for module in sys.modules if module not in before]], pipe)
            os._exit(0)
        os.close(writable)
        with os.fdopen(readable) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        found[name], imported = json.loads(text) if text else ("it ended without a word", [])
        for module in imported:  # Once here, and not again in each of the other cases.
            with contextlib.suppress(BaseException):
                importlib.import_module(module)
    return found
"""

FAKE = """
import torch, torch.distributed.device_mesh, torch.distributed.fsdp, torch.distributed.tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

def fake_ranks(world, rank=0):
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
"""

BUILT = """
from megatron.core import parallel_state
from megatron.core.transformer.transformer_block import get_num_layers_to_build

def compare_layers(case, config, instances, pipeline_inner):
    fake_ranks(case["world"])
    parallel_state.initialize_model_parallel(
        config.tensor_model_parallel_size, config.pipeline_model_parallel_size,
        config.virtual_pipeline_model_parallel_size, context_parallel_size=config.context_parallel_size,
        expert_model_parallel_size=config.expert_model_parallel_size, num_distributed_optimizer_instances=instances,
        expert_tensor_parallel_size=config.expert_tensor_parallel_size, create_gloo_process_groups=False,
        order="tp-cp-ep-pp-dp" if pipeline_inner else "tp-cp-ep-dp-pp")
    chunks = range(config.virtual_pipeline_model_parallel_size or 1)
    layers = []
    for chunk in chunks:
        for stage in range(config.pipeline_model_parallel_size):
            parallel_state.set_pipeline_model_parallel_rank(stage)  # Which layouts ask.
            layers.append(get_num_layers_to_build(config, chunk if len(chunks) > 1 else None, stage))
    assert case["layers"] in (None, layers), f"Megatron Core builds {layers} layers, the plan has {case['layers']}"
"""

MEGATRON = (
    FAKE
    + BUILT
    + """
import torch, warnings
warnings.simplefilter("ignore")
import megatron.training.arguments as arguments
from megatron.training.argument_utils import core_transformer_config_from_args
import megatron.core.transformer.transformer_config as transformer_config
for module in (arguments, transformer_config):  # Transformer Engine of the same days.
    module.is_te_min_version = lambda *version, **more: True
arguments.get_device_arch_version = lambda: case_now.get("capability", 9)
torch.cuda.get_device_capability = lambda *device: (case_now.get("capability", 9), 0)
REST = "--mock-data --tokenizer-type NullTokenizer --lr 1e-4 --train-iters 10".split()  # A user's own.
case_now = {}

def check(case):
    case_now.update(case)
    for name in case["unset"]:
        os.environ.pop(name, None)
    os.environ.update(case["environment"], WORLD_SIZE=str(case["world"]), RANK="0")
    sys.argv = ["pretrain_gpt.py", *case["words"], *REST]
    args = arguments.validate_args(arguments.parse_args())
    args.apply_rope_fusion = False  # Which is a kernel of Transformer Engine.
    config = core_transformer_config_from_args(args)
    compare_layers(case, config, args.num_distributed_optimizer_instances, args.use_tp_pp_dp_mapping)
"""
)

STAND_IN = """
import importlib.metadata
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

class StandIn:  # For packages that do not import without a GPU.
    def __init__(self, *names):
        self.names = names
        sys.meta_path.insert(0, self)
    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self) if any(f"{name}.".startswith(f"{each}.") for each in self.names) else None
    def create_module(self, spec):
        return MagicMock(name=spec.name, __path__=[], __spec__=spec, __version__="2.9.0")
    def exec_module(self, module):
        pass
"""

BRIDGE = (
    STAND_IN
    + """
version = importlib.metadata.version
importlib.metadata.version = lambda name: "2.9.0" if name == "transformer-engine" else version(name)
"""
    + FAKE
    + BUILT
    + """
import dataclasses, torch, types, warnings
warnings.simplefilter("ignore")
import megatron.core.models.gpt.gpt_layer_specs  # Without Transformer Engine, unlike the adapters of the recipes.
StandIn("transformer_engine", "megatron.energon", "modelopt")
import megatron.bridge
recipes = types.ModuleType("megatron.bridge.recipes")  # Its own module imports the recipes of all models, images too.
recipes.__path__ = [os.path.join(megatron.bridge.__path__[0], "recipes")]
sys.modules[recipes.__name__] = recipes
from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.models.mla_provider import MLAModelProvider
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.config import runtime_config_update
from megatron.bridge.training.utils import omegaconf_utils
H100 = types.SimpleNamespace(name="NVIDIA H100 80GB HBM3", major=9, minor=0)
torch.cuda.get_device_properties = lambda *device: H100

def refuse(told):  # Keys that it does not know, and objects that it cannot make, are only warnings.
    raise ValueError(told)
omegaconf_utils.logger.warning = refuse

def provider(flags):  # A recipe's own.
    kind = MLAModelProvider if "--multi-latent-attention" in flags else GPTModelProvider
    names = {f"--{field.name.replace('_', '-')}": field.name for field in dataclasses.fields(kind)}
    names["--num-experts"] = "num_moe_experts"
    said = {names[flag]: value for flag, value in flags.items() if flag in names}
    if isinstance(said.get("moe_layer_freq"), str):
        said["moe_layer_freq"] = eval(said["moe_layer_freq"])
    swiglu = "--swiglu" in flags
    return kind(**said, gated_linear_unit=swiglu,
                activation_func=torch.nn.functional.silu if swiglu else torch.nn.functional.gelu,
                add_bias_linear="--disable-bias-linear" not in flags)

def check(case):
    os.environ.update(WORLD_SIZE=str(case["world"]), RANK="0")
    config = _pretrain_common()
    config.model = provider(case["model"])
    config.tokenizer.tokenizer_type = "NullTokenizer"
    omegaconf_utils.process_config_with_overrides(config, config_filepath="megatron_bridge.yaml")
    runtime_config_update(config)
    words = [f"{field}: {value}" for section in (config.ddp, config.optimizer) for field, value in vars(section).items()
             if field.endswith("_dtype") and isinstance(value, str)]
    assert not words, f"types are text: {words}"
    samples = config.train.micro_batch_size
    compare_batch(case, samples, config.train.global_batch_size / config.data_parallel_size / samples)
    compare_layers(case, config.model, config.ddp.num_distributed_optimizer_instances,
                   config.dist.use_tp_pp_dp_mapping)
"""
)

DEEPSPEED = (
    FAKE
    + """
import torch
import deepspeed.comm as comm
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology, PipelineParallelGrid

def check(case):
    fake_ranks(case["world"])
    comm.init_distributed(dist_backend="fake", dist_init_required=False)
    written = json.loads(case["files"]["deepspeed.json"])
    stages = case["stages"]
    if stages > 1:
        topology = PipeModelDataParallelTopology(num_pp=stages, num_mp=case["tp"],
                                                   num_dp=case["world"] // stages // case["tp"])
        found = DeepSpeedConfig(written, mpu=PipelineParallelGrid(topology=topology))
    else:
        found = DeepSpeedConfig(written)
    read = {"micro": found.train_micro_batch_size_per_gpu, "steps": found.gradient_accumulation_steps,
            "ep": getattr(found.expert_parallel_config, "autoep_size", 1),
            "blocks": found.activation_checkpointing_config.number_checkpoints or case["blocks"]}
    assert read == {key: case[key] for key in read}, read
    stage = found.zero_optimization_stage  # ZeRO 1 also takes gradients wider than weights on one data-parallel rank.
    assert stage == case["zero"] or (stage, case["zero"]) == (1, 0), f"ZeRO is {stage}"
"""
)

TORCHTITAN = (
    FAKE
    + """
import dataclasses, importlib, torch
import torchtitan.distributed.parallel_dims as dims
from torchtitan.models.llama3.config_registry import llama3_debugmodel

def check(case):
    module = importlib.import_module("torchtitan_plan")
    config = module.plan() if hasattr(module, "plan") and case.get("known") else module.apply(llama3_debugmodel())
    config.__post_init__()
    parallel = config.parallelism
    fake_ranks(case["world"])
    dims.device_type = "cpu"
    known = {field.name for field in dataclasses.fields(dims.ParallelDims)}
    sizes = {"dp_replicate": parallel.data_parallel_replicate_degree, "dp_shard": parallel.data_parallel_shard_degree,
             "cp": parallel.context_parallel_degree, "tp": parallel.tensor_parallel_degree,
             "pp": parallel.pipeline_parallel_degree, "ep": parallel.expert_parallel_degree,
             "world_size": case["world"]}
    built = dims.ParallelDims(**{key: value for key, value in sizes.items() if key in known})
    built.build_mesh()
"""
)

LAUNCH = (
    FAKE
    + """
import torch
os.environ["ACCELERATE_USE_CPU"] = "true"
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin

def check_launch(case):
    config = load_config_from_file("accelerate.yaml")
    assert config.num_processes == case["world"], "the number of processes is not the plan's"
    fake_ranks(case["world"])
    said = getattr(config, "parallelism_config", None) or {}
    sizes = {key.removeprefix("parallelism_config_"): value for key, value in said.items() if key.endswith("_size")}
    assert int(sizes.get("tp_size", 1)) == case["tp"], sizes
    if sizes:
        ParallelismConfig(**sizes).build_device_mesh("cpu")
    if config.fsdp_config:
        assert config.fsdp_config["fsdp_reshard_after_forward"] == (case["zero"] == 3), config.fsdp_config
        FullyShardedDataParallelPlugin(
            fsdp_version=config.fsdp_config["fsdp_version"],
            reshard_after_forward=config.fsdp_config["fsdp_reshard_after_forward"],
            activation_checkpointing=config.fsdp_config["fsdp_activation_checkpointing"])
"""
)

ACCELERATE = (
    LAUNCH
    + """
def check(case):
    plan = importlib.import_module("accelerate_plan")
    compare_batch(case, plan.PER_DEVICE_BATCH_SIZE, plan.accelerator().gradient_accumulation_steps)
    check_launch(case)
"""
)

TRANSFORMERS = (
    LAUNCH
    + """
from transformers import HfArgumentParser, TrainingArguments

def check(case):
    said = json.loads(case["files"]["training_args.json"])
    # Half precision asks for a GPU.
    (found,) = HfArgumentParser(TrainingArguments).parse_dict({**said, "use_cpu": True, "bf16": False, "fp16": False})
    compare_batch(case, found.per_device_train_batch_size, found.gradient_accumulation_steps)
    check_launch(case)
"""
)

LLAMA_FACTORY = """
os.environ["DISABLE_VERSION_CHECK"] = "1"  # Of what it trains with; only arguments are read.
from omegaconf import OmegaConf
from llamafactory.hparams.parser import _parse_train_args

def check(case):
    said = OmegaConf.to_container(OmegaConf.load("llama_factory.yaml"))
    _, _, found, *_ = _parse_train_args({**said, "bf16": False, "fp16": False, "use_cpu": True})
    compare_batch(case, found.per_device_train_batch_size, found.gradient_accumulation_steps)
"""

AXOLOTL = """
import yaml
from axolotl.utils.schemas.config import AxolotlInputConfig

def check(case):
    said = yaml.safe_load(case["files"]["axolotl.yaml"])
    known = set(AxolotlInputConfig.model_fields)
    unknown = sorted(set(said) - known)
    assert not unknown, f"it has no keys {unknown}"
    found = AxolotlInputConfig(**{"datasets": [{"path": "DATA", "type": "completion"}], "learning_rate": 1e-4, **said})
    compare_batch(case, found.micro_batch_size, found.gradient_accumulation_steps)
"""

LIGHTNING = (
    FAKE
    + """
import importlib, torch, lightning
from lightning.fabric.strategies.model_parallel import _setup_device_mesh

def check(case):
    module = importlib.import_module("lightning_plan")
    world = module.TRAINER["num_nodes"] * module.TRAINER["devices"]
    assert world == case["world"], "the number of processes is not the plan's"
    fake_ranks(world)
    lightning.Trainer(accelerator="cpu", strategy=module.strategy(), logger=False, enable_checkpointing=False,
                      **{**module.TRAINER, "precision": "32-true", "num_nodes": 1, "devices": 1})
    _setup_device_mesh(module.DATA_PARALLEL, module.TENSOR_PARALLEL, world, torch.device("cpu"))
"""
)

MAXTEXT = """
from math import prod
from pathlib import Path
import maxtext.configs.pyconfig as pyconfig

def check(case):
    words = words_of("maxtext.sh", "MAXTEXT_SETTINGS")
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={case['world']}"
    base = str(Path(pyconfig.__file__).parent / "base.yml")
    between = [word.partition("=")[2] for word in words if word.startswith("dcn_")]
    slices = prod(map(int, between))  # Which MaxText counts from its devices, and a CPU is one slice.
    pyconfig.initialize(["train.py", base, "run_name=nest", "hardware=cpu", "base_output_directory=/tmp/nest",
                         "skip_jax_distributed_system=true", f"num_slices={slices}",
                         f"base_num_decoder_layers={case['blocks']}", *words])  # A user's own, where words have none.
"""

SWIFT = (
    STAND_IN
    + """
import yaml
from dataclasses import dataclass
StandIn("mcore_bridge")  # It builds models.
from swift.cli.main import parse_yaml_args
from swift.megatron.arguments import MegatronPretrainArguments
from transformers import HfArgumentParser

@dataclass
class Arguments(MegatronPretrainArguments):
    def __post_init__(self):  # Its own checks, as far as they ask for no model and no devices.
        assert self.recompute_granularity != "selective" or self.recompute_method is None
        self._init_vpp_size()
        assert not self.tp_comm_overlap or self.sequence_parallel
        self._check_megatron_fsdp()

def check(case):
    words = ["megatron_swift.yaml"]
    parse_yaml_args(words)
    given = yaml.safe_load(case["files"]["megatron_swift.yaml"])["ENV"]
    assert {name: str(value) for name, value in given.items()}.items() <= os.environ.items(), "ENV is not set"
    HfArgumentParser(Arguments).parse_args_into_dataclasses([str(word) for word in words])
"""
)

VERL = """
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from pathlib import Path
import verl
from verl.utils.config import omega_conf_to_dataclass

def check(case):
    file = Path("verl_trainer.yaml")
    place = "file://" + str(Path(verl.__file__).parent / "trainer/config")
    file.write_text(file.read_text().replace("pkg://verl.trainer.config", place))
    with initialize_config_dir(config_dir=os.getcwd(), version_base=None):
        found = compose(config_name="verl_trainer")
    OmegaConf.resolve(found.actor_rollout_ref.actor.megatron)
    omega_conf_to_dataclass(found.actor_rollout_ref.actor.megatron)
"""

PYTORCH = (
    FAKE
    + """
import importlib, torch
from collections import OrderedDict
from torch.distributed.pipelining import PipelineStage

def check(case):
    plan = importlib.import_module("pytorch_plan")
    fake_ranks(case["world"])
    mesh = plan.build_mesh("cpu")
    getattr(plan, "build_expert_mesh", lambda device: None)("cpu")
    compare_batch(case, plan.MICRO_BATCH, plan.MICRO_BATCHES)
    stages = []
    for number, (rank, layers) in enumerate(plan.RUNS):
        blocks = {name.replace(".", "_"): torch.nn.Linear(8, 8, device="meta") for name in layers if "." in name}
        assert len(blocks) == case["layers"][number], f"stage {number} has {len(blocks)} blocks"
        part = plan.wrap(blocks, torch.nn.Sequential(OrderedDict(blocks)), mesh, rank)
        for index in range(plan.MICRO_BATCHES):
            plan.before_backward(part, index, rank)
        if not rank:
            stages.append(PipelineStage(part, number, len(plan.RUNS), torch.device("cpu"), group=mesh.get_group("pp")))
    if mesh["pp"].size() > 1:
        plan.schedule(stages, loss_fn=lambda output, target: output.sum())
"""
)

NANOTRON = (
    STAND_IN
    + FAKE
    + """
StandIn("flash_attn", "grouped_gemm")
from nanotron.config import get_config_from_file
from nanotron.models.base import build_model
import nanotron.models.llama as llama
from nanotron.parallel import ParallelContext
ParallelContext.set_device = lambda self: None  # This, messages and positions ask for a GPU.
llama.P2P, arange = lambda ranks, device: MagicMock(pg=ranks), torch.arange
torch.arange = lambda *numbers, device, **more: arange(*numbers, **more)

def check(case):
    config = get_config_from_file("nanotron.yaml")
    compare_batch(case, config.tokens.micro_batch_size, config.tokens.batch_accumulation_per_replica)
    os.environ.update(WORLD_SIZE=str(case["world"]), RANK="0", LOCAL_RANK="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
    fake_ranks(case["world"])
    degrees = config.parallelism
    ranks = ParallelContext(degrees.tp, degrees.pp, degrees.dp)
    model = lambda: llama.LlamaForTraining(config.model.model_config, ranks, degrees)
    built = build_model(model, ranks, torch.bfloat16, device=torch.device("meta"))
    places = [block.rank for block in built.model.decoder]
    layers = [places.count(stage) for stage in range(degrees.pp)]
    assert layers == case["layers"], f"nanotron builds {layers} layers, the plan has {case['layers']}"
"""
)

GALVATRON = (
    STAND_IN
    + FAKE
    + """
StandIn("flash_attn")
import galvatron
from galvatron.core.arguments import load_with_hydra
from galvatron.core.runtime.comm_groups import gen_comm_groups
from galvatron.core.runtime.parallel_state import set_args
from galvatron.core.runtime.hybrid_parallel_config import (
    check_hp_config, get_hybrid_parallel_configs_api, hp_config_whole_model)

def check(case):
    fake_ranks(case["world"])
    family = "moe" if case["ep"] > 1 else "gpt"
    base = os.path.join(galvatron.__path__[0], "models", family, "scripts/train_dist.yaml")
    args = load_with_hydra(base, overrides=words_of("galvatron_overrides.sh", "GALVATRON_OVERRIDES"), mode="train_dist")
    found = get_hybrid_parallel_configs_api(args)
    check_hp_config(found, [args.model.num_layers])
    assert found["pp_division"] == case["layers"], f"Galvatron has stages of {found['pp_division']}"
    assert args.train.chunks == case["steps"], f"accumulation is {args.train.chunks}"
    set_args(args)
    whole = hp_config_whole_model(["gpt_dec"] * args.model.num_layers, found)
    sizes = [whole[f"{name}_sizes_whole"] for name in ("tp", "sp", "cp", "ep", "tp_of_ep")]
    gen_comm_groups(*sizes, whole["pp_deg"], whole["is_moe_model"])
"""
)


@frozen
class Asker:
    """How a framework is asked for its verdict.

    Attributes:
        distributions: what it needs, the framework first.
        script: defines `check`.
        environment: variables of its process.
    """

    distributions: tuple[str, ...]
    script: str
    environment: Mapping[str, str] = MappingProxyType({})


DEEPSPEED_CPU = {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"}
ASKERS: dict[str, Asker] = {
    "megatron": Asker(("megatron-core", "torch"), MEGATRON),
    "megatron-bridge": Asker(("megatron-bridge", "megatron-core", "torch"), BRIDGE),
    "deepspeed": Asker(("deepspeed", "torch"), DEEPSPEED, DEEPSPEED_CPU),
    "torchtitan": Asker(("torchtitan", "torch"), TORCHTITAN),
    "accelerate": Asker(("accelerate", "torch"), ACCELERATE),
    "transformers": Asker(("transformers", "accelerate", "torch"), TRANSFORMERS),
    "llama-factory": Asker(("llamafactory", "torch"), LLAMA_FACTORY),
    "axolotl": Asker(("axolotl",), AXOLOTL),
    "lightning": Asker(("lightning", "torch"), LIGHTNING),
    "maxtext": Asker(("maxtext", "jax"), MAXTEXT),
    "ms-swift": Asker(("ms-swift", "megatron-core"), SWIFT),
    "verl": Asker(("verl", "hydra-core"), VERL),
    "pytorch": Asker(("torch",), PYTORCH),
    "nanotron": Asker(("nanotron", "torch"), NANOTRON),
    "galvatron": Asker(("hetu-galvatron", "torch"), GALVATRON),
}
"""By exporter."""


def script_of(asker: Asker) -> str:
    """Return the script that answers with a refusal, or None, by case."""
    return HARNESS + asker.script + "\nanswer(verdicts())\n"


def bare(files: dict[str, str], world: int, **more: Any) -> dict[str, Any]:
    """Return a case."""
    return {"files": files, "world": world, **more}
