"""What every framework's exporter asks of a plan before it writes anything."""

from collections.abc import Sequence

from nest.deployment import Deployment, Limits, deployment, violations
from nest.deployment.deployment import BLOCK, ENDS
from nest.errors import InputError, InputErrors
from nest.files import structure
from nest.hooks.architectures import architecture_of
from nest.spec import Architecture, PlanDocument, Problem
from nest.spec.architecture import MixtureOfExperts


def checked(plan: PlanDocument, limits: Limits, framework: str) -> Deployment:
    """`plan` in the terms of frameworks, once it is sure that `framework` can run it.

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
    if shape.global_batch != samples(shape) * shape.micro_batches * shape.data_parallel:
        raise InputError(
            f"the global batch of {shape.global_batch} samples does not fill {shape.micro_batches} micro-batches of "
            f"{shape.data_parallel} data-parallel ranks, but {framework} takes whole micro-batches only."
        )
    return shape


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
            f"the plan has {len(numbers)} transformer blocks in its stages, where the model has {wanted}, each once and "
            f"in order: {framework} would train another model."
        )
    for name, run in zip(ENDS, (shape.runs[0], shape.runs[-1]), strict=True):
        if name in names and name not in run.layers:
            raise InputError(
                f"layer {name!r} is not on the {'first' if name == ENDS[0] else 'last'} stage, where {framework} keeps it."
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
