"""Which layers each pipeline rank runs, as flags of Megatron-LM."""

from nest.deployment import Deployment, Run
from nest.deployment.deployment import ENDS
from nest.errors import InputError
from nest.exporters.megatron.layout import BLOCK, EMBEDDING, FLAG, LOSS, check_layout, write_layout
from nest.exporters.megatron.rendering import Flags

LETTERS = dict(zip(ENDS, (EMBEDDING, LOSS), strict=True))
"""What the layers at the ends of a model are in a layout: Megatron Core's loss is the head with what follows it."""


def stage_flags(shape: Deployment) -> Flags:
    """The stages of a plan: Megatron-LM's own split where that is the plan's, else a layout.

    Raises:
        InputError: the layers are no transformer in order.
    """
    chunks = layout_of(shape)
    flags: Flags = {"--pipeline-model-parallel-size": shape.stages}
    if list(chunks) == usual_layout(shape.blocks, shape.stages, shape.chunks):
        return {**flags, "--num-virtual-stages-per-pipeline-rank": shape.chunks if shape.chunks > 1 else None}
    return {**flags, FLAG: write_layout(chunks)}


def layout_of(shape: Deployment) -> tuple[str, ...]:
    """The letters of each chunk, in the order in which a micro-batch passes them.

    Raises:
        InputError: the layers are no transformer in order.
    """
    if [number for run in shape.runs for number in run.blocks] != list(range(shape.blocks)):
        raise InputError("the plan's stages do not hold the transformer blocks in their order, as Megatron-LM needs.")
    chunks = tuple(_letters(run) for run in shape.runs)
    check_layout(chunks, shape.blocks, shape.stages)
    return chunks


def _letters(run: Run) -> str:
    strange = next((name for name in run.others if name not in LETTERS), None)
    if strange is not None:
        raise InputError(
            f"layer {strange!r} is no transformer block, embedding or head, and Megatron-LM's pipeline ranks hold "
            "nothing else; it cannot run plans of measured layers, operator graphs, or stages cut inside a block."
        )
    return "".join(LETTERS.get(name, BLOCK) for name in run.layers)


def usual_layout(blocks: int, stages: int, chunks: int) -> list[str] | None:
    """How Megatron-LM splits `blocks` by itself: as many in each chunk; None: they do not come out even."""
    size, left = divmod(blocks, stages * chunks)
    if left or not size:
        return None
    letters = [BLOCK * size] * (stages * chunks)
    letters[0] = EMBEDDING + letters[0]
    letters[-1] += LOSS
    return letters
