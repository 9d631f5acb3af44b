"""What every framework's exporter asks of a plan before it writes anything."""

from collections.abc import Sequence

from nest.deployment import Deployment, Limits, deployment, violations
from nest.deployment.deployment import BLOCK, ENDS
from nest.errors import InputError, InputErrors
from nest.files import structure
from nest.hooks.architectures import architecture_of
from nest.spec import Architecture, PlanDocument, Problem, ProfileSpec
from nest.spec.architecture import MixtureOfExperts
from nest.spec.problem import ALL_RANKS


def checked(plan: PlanDocument, limits: Limits, framework: str, sequence: str | None = None) -> Deployment:
    """`plan` in the terms of frameworks, once it is sure that `framework` can run it.

    Args:
        plan: any.
        limits: of the framework.
        framework: its name.
        sequence: a strategy beside `cp` whose ranks share the samples of one data-parallel rank.

    Raises:
        InputError: the plan is infeasible, is of something that is no transformer, or of more or fewer blocks than its
            model has.
        InputErrors: it is beyond the limits; a sentence for each.
    """
    shape = deployment(plan)
    beyond = violations(plan, limits, framework)
    if beyond:
        raise InputErrors(f"{sentence}." for sentence in beyond)
    _check_blocks(plan, shape, framework)
    ranks = data_ranks(shape, sequence)
    if shape.global_batch != samples(shape) * shape.micro_batches * ranks:
        raise InputError(
            f"the global batch of {shape.global_batch} samples does not fill {shape.micro_batches} micro-batches of "
            f"{ranks} data-parallel ranks, but {framework} takes whole micro-batches only."
        )
    return shape


def data_ranks(shape: Deployment, sequence: str | None = None) -> int:
    """Data-parallel ranks: ranks of the strategy `sequence`, which `Deployment` does not know, share samples."""
    return shape.data_parallel // (1 if sequence is None else shape.degree(sequence))


def shard_ranks(shape: Deployment, framework: str) -> int:
    """Data-parallel ranks over which ZeRO shards, times the ranks of context parallelism each of them has.

    Raises:
        InputError: they are no whole context-parallel groups, or do not divide all.
    """
    ranks = shape.data_parallel * shape.cp
    within = min(shape.zero_degree or ranks, ranks)
    if within % shape.cp or ranks % within:
        raise InputError(
            f"ZeRO shards over {within} of the {ranks} ranks that hold the same parameters, but {framework} shards "
            f"over whole groups of context parallelism (cp = {shape.cp}), as many everywhere."
        )
    return within // shape.cp


def shard_groups(problem: Problem, framework: str) -> dict[str, str]:
    """Constraints of frameworks that shard over the innermost data-parallel ranks and all of context parallelism.

    Nothing where the problem leaves ZeRO all ranks: constraints cannot tell a degree of `dp` from that.
    """
    degrees = {*problem.search.zero_degree, problem.decided.get("zero_degree", ALL_RANKS)}
    if degrees == {ALL_RANKS}:
        return {}
    found = {
        "zero == 0 or (zero_degree % cp == 0 and dp * cp % zero_degree == 0)": (
            f"{framework} shards over whole groups of context parallelism, and over as many of them everywhere"
        )
    }
    if mixture(model_of(problem)) is not None:
        found["zero == 0 or ep * etp == 1 or (zero_degree == dp and cp == 1)"] = (
            f"{framework} shards experts over what ranks it has left of all, not over as many as all else"
        )
    return found


def samples(shape: Deployment) -> int:
    """Samples per micro-batch of one data-parallel rank, those of `batch` ranks counted as their own."""
    return shape.micro_batch // shape.degree("batch")


def _check_blocks(plan: PlanDocument, shape: Deployment, framework: str) -> None:
    names = [name for run in shape.runs for name in run.layers]
    strange = next((name for name in names if name not in ENDS and not BLOCK.fullmatch(name)), None)
    if strange is not None:
        raise InputError(
            f"the plan splits the model into layers such as {strange!r}, but {framework} places whole transformer "
            "blocks (layers.0, layers.1, ...); plan a `model`, and not with `search.granularity: operator`."
        )
    numbers = [number for run in shape.runs for number in run.blocks]
    described = architecture_of(plan.problem.get("model"))
    if numbers != list(range(len(numbers))) or (described is not None and len(numbers) != len(described.blocks)):
        wanted = "as many as there are" if described is None else str(len(described.blocks))
        raise InputError(
            f"the plan has {len(numbers)} transformer blocks in its stages, where the model has {wanted}, each once "
            f"and in order: {framework} would train another model."
        )
    for name, run in zip(ENDS, (shape.runs[0], shape.runs[-1]), strict=True):
        if name in names and name not in run.layers:
            end = "first" if name == ENDS[0] else "last"
            raise InputError(f"layer {name!r} is not on the {end} stage, where {framework} keeps it.")


def refuse_layers(problem: Problem, framework: str) -> None:
    """Refuse layers that are no transformer blocks, as far as a problem tells.

    Raises:
        InputError: layers are measured ones of other names, or operators are planned one by one.
    """
    measured = problem.profile.layers if isinstance(problem.profile, ProfileSpec) else ()
    strange = next((name for name in measured if name not in ENDS and not BLOCK.fullmatch(name)), None)
    if strange is not None or problem.search.granularity == "operator":
        told = "operators, one by one" if strange is None else f"layers such as {strange!r}"
        raise InputError(
            f"the problem asks to place {told}, but {framework} places whole transformer blocks (layers.0, layers.1, "
            "...); plan a `model`, and not with `search.granularity: operator`."
        )


def mixture(architecture: Architecture | None) -> MixtureOfExperts | None:
    """The routed experts of a model, if it has any."""
    blocks: Sequence[object] = () if architecture is None else [block.feed_forward for block in architecture.blocks]
    return next((block for block in blocks if isinstance(block, MixtureOfExperts)), None)


def model_of(problem: Problem) -> Architecture | None:
    """The transformer that a problem describes; None: it has measured layers or an operator graph."""
    return architecture_of(problem.model)


def refuse_precision(precision: str, known: Sequence[str], framework: str) -> None:
    """Refuse a number format that files of `framework` do not say.

    Raises:
        InputError: it is none of `known`.
    """
    if precision not in known:
        raise InputError(
            f"training.precision is {precision!r}, which this exporter of {framework} does not write; it has "
            f"{', '.join(known)}."
        )


def refuse_optimizer(optimizer: str, known: Sequence[str], framework: str) -> None:
    """Refuse an optimizer that files of `framework` do not name.

    Raises:
        InputError: it is none of `known`.
    """
    if optimizer not in known:
        raise InputError(
            f"training.optimizer is {optimizer!r}, which this exporter of {framework} does not write; it has "
            f"{', '.join(known)}."
        )


def problem_of(plan: PlanDocument) -> Problem:
    """The problem that a plan carries, as a record."""
    return structure(plan.problem, Problem)


def hosts(plan: PlanDocument, shape: Deployment) -> int:
    """Machines that run the plan: `cluster.devices_per_host` devices each, or an innermost level's."""
    cluster = plan.problem.get("cluster", {})
    levels = cluster.get("levels")
    per_host = cluster.get("devices_per_host") or (levels[0]["fanout"] if levels else shape.world_size)
    return max(1, -(-shape.world_size // per_host))
