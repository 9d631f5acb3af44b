"""torchtitan: a TOML file for 0.2, and a Python configuration for 0.3.

Each of the two versions gets its file where it can run the plan.
"""

from collections.abc import Iterator, Mapping

from nest.deployment import Deployment
from nest.errors import InputError
from nest.hooks.architectures import architecture
from nest.spec import Architecture, PlanDocument
from nest_frameworks.common import checked, problem_of
from nest_frameworks.limits import Asked, sharded
from nest_frameworks.torchtitan.models import NEW, OLD, QWEN, family, registration, unknown_llama

NAME = "torchtitan"
TOML_FILE = "torchtitan.toml"
PYTHON_FILE = "torchtitan_plan.py"


def export(plan: PlanDocument, release: str | None = None) -> Mapping[str, str]:
    """`torchtitan.toml` for 0.2 and `torchtitan_plan.py` for 0.3; `release`: the only one to write for.

    Raises:
        InputError: torchtitan cannot run the plan, and why.
    """
    from nest_frameworks.torchtitan.files import IMPORTED, parallelism, python_text, toml_file

    asked = Asked.of(problem_of(plan))
    shape = checked(plan, sharded.torchtitan(asked), NAME)
    model = architecture(plan)
    beyond = {OLD: list(beyond_old(shape, model)), NEW: list(beyond_new(shape))}
    sharded_by = parallelism(shape, head="output")["data_parallel_shard_degree"] * shape.cp
    if asked.training.precision != "fp32" and sharded_by == 1 < shape.tp * shape.stages:
        # torchtitan/distributed/utils.py of 0.2.2, `maybe_enable_amp`.
        beyond[OLD].append("it trains in single precision where TP or PP splits the model and FSDP shards nothing")
    for version, reasons in beyond.items():
        if release is not None and not version.startswith(f"{release}.") and not reasons:
            reasons.append(f"--for {release} leaves it out")
    if all(beyond.values()):
        obstacles = " and ".join(f"torchtitan {version} cannot: {reasons[0]}" for version, reasons in beyond.items())
        raise InputError(f"no version of torchtitan can run this plan: {obstacles}.")
    files: dict[str, str] = {}
    if not beyond[OLD]:
        files[TOML_FILE] = toml_file(shape, asked, model, beyond[NEW])
        if model is not None and unknown_llama(model):
            files[f"{IMPORTED}.py"] = registration(model, asked.written)
    if not beyond[NEW]:
        files[PYTHON_FILE] = python_text(shape, asked, model, beyond[OLD])
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


def beyond_new(shape: Deployment) -> Iterator[str]:
    """Why torchtitan 0.3.0 cannot run a plan that is within the limits; nothing: it can."""
    if shape.ep > 1 and shape.etp > 1:
        yield "it does not split experts by width beside expert parallelism"
