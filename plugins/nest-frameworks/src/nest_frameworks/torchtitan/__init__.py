"""torchtitan: a Python configuration for 0.3, and a TOML file for 0.2 where it can run the plan too."""

from collections.abc import Iterator, Mapping

from nest.deployment import Deployment
from nest.errors import InputError
from nest.hooks.architectures import architecture
from nest.spec import Architecture, PlanDocument
from nest_frameworks.common import checked, problem_of
from nest_frameworks.limits import Asked, sharded
from nest_frameworks.torchtitan.models import OLD, QWEN, family, registration, unknown_llama

NAME = "torchtitan"
TOML_FILE = "torchtitan.toml"
PYTHON_FILE = "torchtitan_plan.py"


def export(plan: PlanDocument, release: str | None = None) -> Mapping[str, str]:
    """`torchtitan_plan.py` for 0.3 and `torchtitan.toml` for 0.2; `release`: the only one to write for.

    Raises:
        InputError: torchtitan cannot run the plan, and why.
    """
    from nest_frameworks.torchtitan.files import IMPORTED, parallelism, python_text, toml_file

    asked = Asked.of(problem_of(plan), release)
    shape = checked(plan, sharded.torchtitan(asked), NAME)
    model = architecture(plan)
    beyond = list(beyond_old(shape, model))
    sharded_by = parallelism(shape, head="output")["data_parallel_shard_degree"] * shape.cp
    if asked.training.precision != "fp32" and sharded_by == 1 < shape.tp * shape.stages:
        # torchtitan/distributed/utils.py of 0.2.2, `maybe_enable_amp`.
        beyond.append("it trains in single precision where TP or PP splits the model and FSDP shards nothing")
    if release == "0.2" and beyond:
        raise InputError(f"torchtitan {OLD} cannot run this plan: {beyond[0]}; change it, or leave out `--for 0.2`.")
    files: dict[str, str] = {}
    if not beyond and release != "0.3":
        files[TOML_FILE] = toml_file(shape, asked, model)
        if model is not None and unknown_llama(model):
            files[f"{IMPORTED}.py"] = registration(model, asked.written)
    if release != "0.2":
        files[PYTHON_FILE] = python_text(shape, asked, model, beyond)
    return files


def beyond_old(shape: Deployment, architecture: Architecture | None) -> Iterator[str]:
    """Why torchtitan 0.2.2 cannot run a plan that is within the limits; nothing: it can."""
    if shape.tp > 1 and not shape.sequence_parallel:
        yield "its tensor parallelism always comes with sequence parallelism"
    length = shape.sequence_length
    if length is not None and length % (2 * shape.tp * shape.cp):
        yield "it divides the sequence by twice the degrees of tensor and context parallelism"
    replicated = shape.zero[0] == 0 and shape.data_parallel > 1
    if replicated and shape.data_parallel < shape.world_size:
        yield "it has data parallelism without sharding beside no other parallelism"
    if family(architecture) == QWEN and shape.stages > 1:
        yield "it has no pipeline for qwen3"
