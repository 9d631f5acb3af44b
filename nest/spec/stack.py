"""Software stacks: what a framework does by itself where a problem leaves it open (docs/reference/stacks.md)."""

from typing import Any

from attrs import asdict, field, frozen

from nest.spec.validators import at_least, between, one_of
from nest.units import Bytes

NO_STACK = "none"
"""The stack of the catalogue that fills nothing in."""

ATTENTIONS = ("flash", "unfused")
EXCHANGES = ("ring", "all_gather")
REACHES = ("domain", "network")
DISPATCHES = ("all-to-all", "per-node")
ACCUMULATIONS = ("sharded", "whole")
GRADIENTS = ("fp32", "bf16", "fp16")
LOSSES = ("unfused", "fused")
SAVED = ("wide", "narrow")


@frozen
class Overlap:
    """What the framework hides under compute; None: what its stack says, and without a stack nothing.

    Attributes:
        data: data-parallel communication.
        tensor: communication inside blocks, but for the exchange of tokens between experts.
        pipeline: communication between stages.
        experts: the exchange of tokens between experts.
    """

    data: bool | None = None
    tensor: bool | None = None
    pipeline: bool | None = None
    experts: bool | None = None


@frozen
class StackDefaults:
    """Keys of `training` that a stack fills in where a problem leaves them out (`nest.spec.Training`); None: not it.

    Attributes:
        overlap: what it hides under compute.
        overlap_reach: how far communication inside blocks hides.
        dispatch: how tokens reach their experts.
        expert_imbalance: tokens of the rank with the busiest experts over those of the average rank.
        accumulation: what ZeRO 2 does with the gradients of several micro-batches.
        attention: whether it is fused.
        context_exchange: how context parallelism passes keys and values on.
        gradients: number format gradients are accumulated and reduced in.
        loss: whether the cross-entropy reads the logits as they are.
        saved_inputs: what products in narrow formats keep of their inputs.
        weights_once: whether weights are kept in single precision alone.
        fragmentation: share of the memory held for further micro-batches in flight that the allocator cannot use.
        communicator: bytes of buffers that its communication library keeps for each group of ranks a device is in.
        context: bytes of the driver and of the code of its libraries.
        master_gradients: whether the optimizer keeps gradients in single precision where they are narrower.
    """

    overlap: Overlap = Overlap()
    overlap_reach: str | None = field(default=None, validator=one_of(REACHES))
    dispatch: str | None = field(default=None, validator=one_of(DISPATCHES))
    expert_imbalance: float | None = field(default=None, validator=at_least(1))
    accumulation: str | None = field(default=None, validator=one_of(ACCUMULATIONS))
    attention: str | None = field(default=None, validator=one_of(ATTENTIONS))
    context_exchange: str | None = field(default=None, validator=one_of(EXCHANGES))
    gradients: str | None = field(default=None, validator=one_of(GRADIENTS))
    loss: str | None = field(default=None, validator=one_of(LOSSES))
    saved_inputs: str | None = field(default=None, validator=one_of(SAVED))
    weights_once: bool | None = None
    fragmentation: float | None = field(default=None, validator=between(0, 0.9))
    communicator: Bytes | None = field(default=None, validator=at_least(0))
    context: Bytes | None = field(default=None, validator=at_least(0))
    master_gradients: bool | None = None

    @property
    def filled(self) -> dict[str, Any]:
        """What it fills in, by key, such as `overlap.data`."""
        keys = {key: value for key, value in asdict(self).items() if key != "overlap"}
        keys |= {f"overlap.{key}": value for key, value in asdict(self.overlap).items()}
        return {key: value for key, value in keys.items() if value is not None}


@frozen
class StackSpec:
    """What a framework at a version does.

    Attributes:
        name: as `training.stack` names it.
        version: of the framework, or the years it stands for.
        description: one line.
        targets: exporters whose files it runs: their names as `search.target` imply it.
        precisions: training precisions that imply it, in place of a device's usual stack.
        training: what it fills in.
        pipeline_overlap: schedules with which it hides communication between stages; `overlap.pipeline` is filled in by
            them, true where they are all that the problem allows.
        notes: what else it does, which no key of a problem expresses, by subject.
        sources: where each statement was read, beginning with its key or subject.
    """

    name: str
    version: str = ""
    description: str = ""
    targets: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    training: StackDefaults = StackDefaults()
    pipeline_overlap: tuple[str, ...] = ()
    notes: dict[str, str] = field(factory=dict)
    sources: tuple[str, ...] = ()
