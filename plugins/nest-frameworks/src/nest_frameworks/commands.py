"""The command that every process of a plan runs: the framework's own, with the flags or the files that it is given.

What people write themselves has a name in capitals, `YOUR_...`, that no file has.
"""

import shlex
from collections.abc import Callable, Mapping

from attrs import field, frozen

from nest.errors import InputError
from nest.hooks.pipelines import deployed
from nest.hooks.registry import registry
from nest.spec import PlanDocument
from nest.spec.problem import NO_TARGET
from nest_frameworks.megatron.flags import flag_groups
from nest_frameworks.megatron.notation import given_words
from nest_frameworks.megatron.parallel_flags import environment

SCRIPT = "YOUR_TRAINING_SCRIPT.py"
RECIPE = "YOUR_RECIPE.py"


@frozen
class Command:
    """The command of one process.

    Attributes:
        words: the program and its arguments.
        environment: variables it needs.
        unset: variables that it must not have.
        files: those of the framework that it reads or imports, by name.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(factory=dict)
    unset: tuple[str, ...] = ()
    files: Mapping[str, str] = field(factory=dict)

    @property
    def imported(self) -> bool:
        """True if Python must find modules among the files."""
        return any(name.endswith(".py") for name in self.files)

    @property
    def yours(self) -> tuple[str, ...]:
        """Words that stand for what nobody but the user knows."""
        return tuple(word for word in self.words if word in (SCRIPT, RECIPE))


Words = Callable[[Mapping[str, str], str], tuple[str, ...]]
"""Words from the files of an exporter and the folder they lie in."""


def _titan(files: Mapping[str, str], folder: str) -> tuple[str, ...]:
    """torchtitan/config/manager.py of 0.2.2 and 0.3.0."""
    said = f"--job.config_file {folder}/torchtitan.toml"
    if "torchtitan.toml" not in files:
        said = "--module torchtitan_plan --config plan"
    return ("python", "-m", "torchtitan.train", *said.split())


def _galvatron(files: Mapping[str, str], folder: str) -> tuple[str, ...]:
    """The array of `galvatron_overrides.sh`, with the place of the strategy file."""
    _, *overrides, _ = shlex.split(files["galvatron_overrides.sh"], comments=True)
    placed = (word.replace("$(dirname ${BASH_SOURCE[0]})", folder) for word in overrides)
    return ("python", "train_dist.py", "scripts/train_dist.yaml", *placed)


WORDS: Mapping[str, Words] = {
    "torchtitan": _titan,
    "galvatron": _galvatron,
    "deepspeed": lambda _, folder: (
        "python", SCRIPT, "--deepspeed", "--deepspeed_config", f"{folder}/deepspeed.json"
    ),
    "megatron-bridge": lambda _, folder: ("python", RECIPE, "--config-file", f"{folder}/megatron_bridge.yaml"),
    "axolotl": lambda _, folder: ("python", "-m", "axolotl.cli.train", f"{folder}/axolotl.yaml"),
    "nanotron": lambda _, folder: ("python", "run_train.py", "--config-file", f"{folder}/nanotron.yaml"),
    "nemo": lambda _, folder: (
        "python", "megatron_gpt_pretraining.py", "--config-dir", folder, "--config-name", "nemo_config"
    ),
    **dict.fromkeys(("pytorch", "lightning"), lambda _, folder: ("python", SCRIPT)),
}  # fmt: skip
"""By exporter. DeepSpeed: `add_config_arguments` (deepspeed/__init__.py); Megatron-Bridge: its recipes' own scripts
(tutorials/recipes/llama/02_pretrain_with_yaml.py); Axolotl: docs/multi-node.qmd;
nanotron: run_train.py; Galvatron: scripts of models/*/scripts; NeMo 1: Hydra's `--config-dir`, beside the
folder of its own files (nemo/core/config/hydra_runner.py)."""

VARIABLES: Mapping[str, Mapping[str, str]] = {"nanotron": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}
"""Without it nanotron refuses tensor parallelism (src/nanotron/parallel/tensor_parallel/nn.py)."""


def command(plan: PlanDocument, folder: str) -> Command:
    """Command of every rank of a plan.

    Args:
        plan: its target is the framework; without one `SCRIPT` stands for all there is to run.
        folder: where the framework's files lie, as a word of the command.

    Raises:
        InputError: the framework cannot run the plan, or starts its processes in another way than one for each rank.
    """
    target = plan.problem.get("search", {}).get("target", NO_TARGET)
    if target == NO_TARGET:
        return Command(("python", SCRIPT))
    if target == "megatron":
        exported, unset = environment(deployed(plan))
        return Command(("python", "pretrain_gpt.py", *given_words(flag_groups(plan))), exported, unset)
    exporter = registry().exporters().get(target)
    if exporter is None or target not in WORDS:
        raise InputError(
            f"nest does not know with what command {target} is run as one process for each rank; `--to torchrun`, "
            "`--to slurm` and `--to mpi` write scripts that run any command."
        )
    files = exporter.export(plan)
    return Command(WORDS[target](files, folder), VARIABLES.get(target, {}), files=files)
