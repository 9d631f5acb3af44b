"""Built-in exporters and plan readers: modules with the functions named below, imported when they are asked.

Belongs here: exporters, plan readers, limits. Does not: prices and searches.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from attrs import evolve, field, frozen

from nest.deployment import Limits
from nest.hooks.protocols import Exporter, PlanReader
from nest.hooks.spec import hook
from nest.records import Record
from nest.spec import PlanDocument, Problem
from nest_frameworks.reader import Reader


@frozen(eq=False, repr=False)
class Tool(Record):
    """A tool that reads files of any plan.

    Attributes:
        name: what people write to choose it.
        summary: one line for lists.
        module: name of its module in `nest_frameworks`.
        writer: the module's function that writes the files.
        on_pools: whether it takes plans whose stages lie on several kinds of device.
    """

    name: str
    summary: str
    module: str
    writer: str = "export"
    on_pools: bool = field(default=False, kw_only=True)

    @property
    def functions(self) -> ModuleType:
        """The module."""
        return import_module(f"nest_frameworks.{self.module}")

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """File names and their contents."""
        files: Mapping[str, str] = getattr(self.functions, self.writer)(plan)
        return files


@frozen(eq=False, repr=False)
class Framework(Tool):
    """A framework that runs some plans.

    Attributes:
        limited_by: the function in `nest_frameworks.limits` that says what it can run, with its module.
        release: of the framework; None: the newest.
        apart: files with settings that the first lacks, and does not name.
    """

    limited_by: str = field(kw_only=True)
    release: str | None = field(default=None, kw_only=True)
    apart: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def releases(self) -> tuple[str, ...]:
        """Releases of the framework that it writes for, the newest first."""
        from nest_frameworks.releases import releases_of

        return releases_of(self.name).releases

    def for_release(self, release: str) -> Exporter:
        """Return the exporter for a release of the framework.

        Raises:
            InputError: it writes for no such release.
        """
        from nest_frameworks.releases import releases_of

        return evolve(self, release=releases_of(self.name).named(release))

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """File names and their contents."""
        if self.release is None or len(self.releases) == 1:
            return super().export(plan)
        files: Mapping[str, str] = getattr(self.functions, self.writer)(plan, self.release)
        return files

    def spelled(self, content: str, text: str) -> str:
        """Lines of the first file, as the user's file `text` has such settings."""
        from nest_frameworks.spelling import spelled

        return spelled(content, text)

    def keys_of(self, decided: Mapping[str, object], micro_batches: int, text: str) -> str:
        """Lines with the keys of single decisions in the user's file `text`; empty: it has none for some."""
        from nest_frameworks.megatron import decided as flags
        from nest_frameworks.trainers.writing import keys_of

        return keys_of(self.name, decided, micro_batches, text) or flags.keys_of(self.name, decided, text)

    def lacks(self, lines: Sequence[str], text: str) -> bool:
        """Return whether the fork or back end that the user's file `text` launches lacks a setting of `lines`."""
        from nest_frameworks.spelling import lacks

        return lacks(self.name, lines, text)

    def needs(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """Sentences of the files' comments on packages that their flags need."""
        lines = dict.fromkeys(line for text in files.values() for line in text.splitlines())
        return tuple(line.removeprefix("# ") for line in lines if line.startswith("# --") and " needs " in line)

    def limits(self, problem: Problem) -> Limits:
        """Limits of the framework for a problem."""
        module, _, name = self.limited_by.partition(".")
        from nest_frameworks.limits import Asked

        limits: Limits = getattr(import_module(f"nest_frameworks.limits.{module}"), name)(
            Asked.of(problem, self.release)
        )
        return limits


@frozen(eq=False, repr=False)
class MegatronCore(Framework):
    """A framework that counts ranks as Megatron Core does."""

    def rank_order(self, plan: PlanDocument) -> tuple[str, ...]:
        """Order in which the framework counts the ranks of a plan, the fastest coordinate first."""
        from nest_frameworks.megatron.flags import rank_order

        return rank_order(plan)


@frozen(eq=False, repr=False)
class Pipelines(Framework):
    """A framework that runs PyTorch's pipelines, with a file of what every rank does when."""

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """File names and their contents."""
        from nest_frameworks.pipeline_actions import schedule_file

        return {**super().export(plan), **schedule_file(plan)}

    def refuse(self, plan: PlanDocument) -> None:
        """Refuse what `export` does: all schedules within its limits say who does what when."""
        super().export(plan)


@hook
def nest_exporters() -> list[Exporter]:
    """Files of the frameworks people train with, and of the tools that place and look at plans.

    Where a plan has no target, ranks are counted as the framework of the first exporter with `rank_order` does.
    """
    return [
        MegatronCore(
            "megatron",
            "flags of Megatron-LM: megatron_flags.sh to be sourced, megatron_args.yaml (MODEL_ARGS)",
            "megatron.flags",
            limited_by="megatron.megatron",
            on_pools=True,
        ),
        MegatronCore(
            "megatron-bridge",
            "a YAML overlay for a recipe of Megatron-Bridge: megatron_bridge.yaml",
            "megatron.bridge",
            limited_by="relatives.bridge",
            on_pools=True,
        ),
        MegatronCore(
            "nemo",
            "NeMo 1: a Hydra file for its megatron_gpt_pretraining.py: nemo_config.yaml",
            "megatron.relatives.nemo",
            limited_by="relatives.nemo",
        ),
        MegatronCore(
            "verl",
            "verl: the actor's training step as a Hydra file: verl_trainer.yaml",
            "megatron.relatives.verl",
            limited_by="relatives.verl",
        ),
        MegatronCore(
            "ms-swift",
            "Megatron-SWIFT: the YAML that `megatron pt` and `megatron sft` take: megatron_swift.yaml",
            "megatron.relatives.swift",
            limited_by="relatives.swift",
        ),
        Pipelines(
            "torchtitan",
            "torchtitan: TOML for 0.2, Python configuration for 0.3, pipeline schedule as CSV",
            "torchtitan",
            limited_by="sharded.torchtitan",
        ),
        Framework(
            "deepspeed",
            "DeepSpeed: JSON configuration, and PipelineModule with the plan's stages",
            "deepspeed",
            limited_by="sharded.deepspeed",
        ),
        Framework(
            "accelerate",
            "Hugging Face Accelerate: YAML for `accelerate launch` (FSDP2, no pipeline)",
            "accelerate",
            limited_by="sharded.accelerate",
        ),
        Framework(
            "llama-factory",
            "LLaMA-Factory: YAML, and DeepSpeed's JSON that it names (no pipeline, no tensor parallelism)",
            "trainers.writing",
            "export_llama_factory",
            limited_by="sharded.llama_factory",
        ),
        Framework(
            "axolotl",
            "Axolotl: YAML, with FSDP2 (no pipeline)",
            "trainers.writing",
            "export_axolotl",
            limited_by="sharded.axolotl",
        ),
        Framework(
            "transformers",
            "Hugging Face's Trainer: JSON of TrainingArguments, and YAML for `accelerate launch`",
            "trainers.writing",
            "export_transformers",
            limited_by="sharded.transformers",
            apart=("accelerate.yaml",),
        ),
        Framework(
            "lightning",
            "PyTorch Lightning: ModelParallelStrategy and FSDP2 as a Python module",
            "lightning",
            limited_by="sharded.lightning",
        ),
        Framework("nanotron", "nanotron: YAML, of models built like Llama", "nanotron", limited_by="meshes.nanotron"),
        Framework(
            "maxtext", "MaxText: KEY=VALUE settings for its command line", "maxtext", limited_by="meshes.maxtext"
        ),
        Framework(
            "galvatron",
            "Hetu-Galvatron: strategy JSON, layer by layer",
            "galvatron",
            limited_by="meshes.galvatron",
        ),
        Pipelines(
            "pytorch",
            "PyTorch: init_device_mesh, stage map, FSDP2 and checkpointing as a Python module",
            "pytorch",
            limited_by="sharded.pytorch",
        ),
        Tool(
            "ranks",
            "the rank table: rank, node, gpu and coordinates of every process (CSV and JSON)",
            "ranks",
            on_pools=True,
        ),
        Tool(
            "slurm",
            "Slurm: a hostfile with one line for each rank, and a script that runs srun with it",
            "launchers",
            "slurm",
            on_pools=True,
        ),
        Tool(
            "torchrun",
            "torchrun: a script to call on every node, with node ranks and static rendezvous",
            "launchers",
            "torchrun",
            on_pools=True,
        ),
        Tool(
            "sbatch",
            "Slurm: a batch script that runs the framework's command, for sbatch",
            "slurm_job",
            "sbatch",
            on_pools=True,
        ),
        Tool(
            "jobset",
            "Kubernetes: a JobSet that runs the framework's command, for clusters with or without Kueue",
            "kubernetes_jobs",
            "jobset",
        ),
        Tool(
            "pytorchjob",
            "Kubernetes: a PyTorchJob of Kubeflow's training operator, as `jobset`",
            "kubernetes_jobs",
            "pytorchjob",
        ),
        Tool(
            "mpi",
            "Open MPI: a rankfile, a hostfile, and a script that runs mpirun with them",
            "launchers",
            "mpi",
            on_pools=True,
        ),
        Tool(
            "dot", "Graphviz: stages in the groups of the network they lie in, and what crosses their boundaries", "dot"
        ),
        Tool("astra-sim", "ASTRA-sim: the cluster's network for the analytical backend (YAML)", "astra_sim"),
    ]


@hook
def nest_plan_readers() -> list[PlanReader]:
    """Files that frameworks are launched with."""
    return [
        Reader(
            "megatron",
            "Megatron-LM: a launch script, a YAML map of flags, or a log with its arguments",
            "megatron.reading.read",
            "read_megatron",
            ("torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1",),
        ),
        Reader(
            "megatron-bridge",
            "Megatron-Bridge: an overlay, or the configuration it saves, as YAML",
            "megatron.bridge",
            "read",
            ("model: {tensor_model_parallel_size: 2, sequence_parallel: true}\ntrain: {micro_batch_size: 1}\n",),
        ),
        Reader(
            "nemo",
            "NeMo 1: the YAML of its megatron_gpt_pretraining.py and of its launcher",
            "megatron.relatives.nemo",
            "read",
            ("trainer: {devices: 8, num_nodes: 1}\nmodel: {tensor_model_parallel_size: 2, micro_batch_size: 1}\n",),
        ),
        Reader(
            "verl",
            "verl: its YAML, or a script that runs its trainer; the actor's training step is priced",
            "megatron.relatives.verl",
            "read",
            ("actor_rollout_ref: {actor: {strategy: megatron, ppo_micro_batch_size_per_gpu: 1}}\n",),
        ),
        Reader(
            "ms-swift",
            "Megatron-SWIFT: a script that runs `megatron sft` or `megatron pt`, or the YAML it takes",
            "megatron.relatives.swift",
            "read",
            ("NPROC_PER_NODE=8 megatron pt --tensor_model_parallel_size 2 --micro_batch_size 1 --max_length 4096",),
        ),
        Reader(
            "torchtitan",
            "torchtitan 0.2: its TOML file",
            "torchtitan.reading",
            "read",
            ("[training]\nlocal_batch_size = 2\n\n[parallelism]\ndata_parallel_shard_degree = 4\n",),
            only="0.2",
        ),
        Reader(
            "deepspeed",
            "DeepSpeed: its JSON configuration",
            "deepspeed",
            "read",
            ('{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 16, "zero_optimization": {"stage": 2}}',),
        ),
        Reader(
            "accelerate",
            "Hugging Face Accelerate: the YAML of `accelerate launch`",
            "accelerate",
            "read",
            ("distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_reshard_after_forward: true}\n",),
        ),
        Reader(
            "llama-factory",
            "LLaMA-Factory: its YAML file",
            "trainers.reading",
            "read_llama_factory",
            ("finetuning_type: full\nper_device_train_batch_size: 1\ncutoff_len: 4096\nbf16: true\n",),
        ),
        Reader(
            "axolotl",
            "Axolotl: its YAML file",
            "trainers.reading",
            "read_axolotl",
            ("base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nmicro_batch_size: 1\ndp_shard_size: 8\n",),
        ),
        Reader(
            "transformers",
            "Hugging Face's Trainer: its arguments as JSON or YAML",
            "trainers.reading",
            "read_transformers",
            ('{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": true}',),
        ),
        Reader(
            "maxtext",
            "MaxText: its settings as YAML, or a script with KEY=VALUE words",
            "maxtext_reading",
            "read",
            ("model_name: llama2-7b\nper_device_batch_size: 2\nici_fsdp_parallelism: 8\n",),
        ),
        Reader(
            "nanotron",
            "nanotron: its YAML file",
            "nanotron",
            "read",
            ("parallelism: {dp: 2, pp: 1, tp: 4}\ntokens: {micro_batch_size: 1, sequence_length: 256}\n",),
        ),
    ]
