"""The `training` section of a problem, and software stacks with its defaults (FORMATS.md)."""

from typing import Any

from attrs import asdict, evolve, field, fields, frozen

from nest.errors import FieldErrors, InputError
from nest.records import Record
from nest.spec.device import HOSTS, DeviceSpec
from nest.spec.trainable import ALL_LINEAR as ALL_LINEAR
from nest.spec.trainable import STORED as STORED
from nest.spec.trainable import Lora as Lora
from nest.spec.trainable import Trainable as Trainable
from nest.spec.validators import above, all_different, at_least, between, each, every, not_empty, one_of
from nest.units import Bytes, Count, Positions

NO_STACK = "none"
"""Stack of the catalogue without defaults."""

ATTENTIONS = ("flash", "unfused")
ATTENTION_KERNELS = ("flash2", "flash3", "cudnn")
GRAPHS = ("none", "layers", "iteration")
EXCHANGES = ("ring", "all_gather")
REACHES = ("domain", "network")
DISPATCHES = ("all-to-all", "per-node")
ACCUMULATIONS = ("sharded", "whole")
SPLITS = ("blocks", "products")
REDUCTIONS = ("layers", "buckets")
GRADIENTS = ("fp32", "bf16", "fp16")
LOSSES = ("unfused", "fused", "eager", "chunked")
KERNELS = ("fused", "eager")
NORMS = ("fused", "eager")
EXPERT_PRODUCTS = ("grouped", "sequential")
SAVED = ("wide", "narrow")


@frozen(eq=False, repr=False)
class Overlap(Record):
    """Communication that the framework hides under compute; None: the stack's, and without a stack none.

    Attributes:
        data: data-parallel communication.
        tensor: communication inside blocks, except the exchange of tokens between experts.
        pipeline: communication between stages: with all allowed schedules, with none, or with those listed.
        experts: the exchange of tokens between experts.
    """

    data: bool | None = None
    tensor: bool | None = None
    pipeline: bool | tuple[str, ...] | None = None
    experts: bool | None = None


@frozen(eq=False, repr=False)
class StackDefaults(Record):
    """Defaults of a stack for keys of `training` (`nest.spec.Training`); None: no default.

    Attributes:
        overlap: communication hidden under compute.
        overlap_reach: network levels on which communication inside blocks hides.
        dispatch: path of tokens to their experts.
        expert_imbalance: tokens of the rank with the busiest experts over those of the average rank.
        accumulation: ZeRO 2's handling of the gradients of several micro-batches.
        attention: whether it is fused.
        context_exchange: exchange of keys and values with context parallelism.
        gradients: number format of accumulated and reduced gradients.
        loss: how the cross-entropy reads the logits.
        loss_parallel: whether tensor-parallel ranks share the loss of a token.
        saved_inputs: saved inputs of products in narrow formats.
        weights_once: whether weights are kept in single precision only.
        fragmentation: unusable share of the memory for further micro-batches in flight.
        communicator: bytes of buffers that its communication library keeps for each group of ranks a device is in.
        context: bytes of the driver and of its libraries' code.
        master_gradients: whether the optimizer keeps gradients in single precision if they are narrower.
        all_ports: whether collectives drive all ports of a device at once.
        kernels: whether operators between products are fused.
        selective: operators that `recompute: selective` reruns.
        attention_kernel: kernel of fused attention.
        graphs: extent of CUDA graphs.
        norms: whether a norm is one kernel.
        expert_products: whether one kernel multiplies all experts of a device.
        reductions: units of overlapped data-parallel communication once per batch.
        stage_split: what the framework divides evenly among stages.
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
    loss_parallel: bool | None = None
    saved_inputs: str | None = field(default=None, validator=one_of(SAVED))
    weights_once: bool | None = None
    fragmentation: float | None = field(default=None, validator=between(0, 0.9))
    communicator: Bytes | None = field(default=None, validator=at_least(0))
    context: Bytes | None = field(default=None, validator=at_least(0))
    master_gradients: bool | None = None
    all_ports: bool | None = None
    kernels: str | None = field(default=None, validator=one_of(KERNELS))
    selective: tuple[str, ...] | None = None
    attention_kernel: str | None = field(default=None, validator=one_of(ATTENTION_KERNELS))
    graphs: str | None = field(default=None, validator=one_of(GRAPHS))
    norms: str | None = field(default=None, validator=one_of(NORMS))
    expert_products: str | None = field(default=None, validator=one_of(EXPERT_PRODUCTS))
    reductions: str | None = field(default=None, validator=one_of(REDUCTIONS))
    stage_split: str | None = field(default=None, validator=one_of(SPLITS))

    @property
    def filled(self) -> dict[str, Any]:
        """Defaults by key, such as `overlap.data`."""
        keys = {key: value for key, value in asdict(self).items() if key != "overlap"}
        keys |= {f"overlap.{key}": value for key, value in asdict(self.overlap).items()}
        return {key: value for key, value in keys.items() if value is not None}


def with_value(training: "Training", key: str, value: Any) -> "Training":
    """`training` with another value of a key that stacks fill in, such as `overlap.data`.

    Raises:
        InputError: stacks fill in no such key, or it has no such value.
    """
    section, _, name = key.rpartition(".")
    part: Any = training.overlap if section == "overlap" else training
    known = {each.name for each in fields(Overlap if section else StackDefaults)} - {"overlap"}
    if section not in ("", "overlap") or name not in known:
        raise InputError(f"training.unknown: stacks fill in no key {key!r}; `nest stacks` lists theirs.")
    try:
        changed = evolve(part, **{name: tuple(value) if isinstance(value, list) else value})
    except FieldErrors as error:
        raise InputError(f"training.unknown: {error}.") from None
    return evolve(training, overlap=changed) if section else changed


@frozen(eq=False, repr=False)
class StackSpec(Record):
    """Defaults of a framework at a version.

    Attributes:
        name: for `training.stack`.
        version: of the framework, or the years it stands for.
        description: one line.
        targets: exporters whose files the stack runs; a `search.target` among them selects the stack.
        precisions: training precisions that imply it, instead of a device's usual stack.
        fully_sharded: stack implied instead if a problem fixes ZeRO 3, which its framework does not run; empty: it runs
            it.
        training: the defaults.
        unknown: other common values of keys, for `training.unknown` of problems that name no software.
        pipeline_overlap: schedules with hidden communication between stages, for `overlap.pipeline`.
        notes: other behaviour without a key in problems, by subject.
        sources: of each statement, beginning with its key or subject.
    """

    name: str
    version: str = ""
    description: str = ""
    targets: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    fully_sharded: str = ""
    training: StackDefaults = StackDefaults()
    unknown: dict[str, Any] = field(factory=dict)
    pipeline_overlap: tuple[str, ...] = ()
    notes: dict[str, str] = field(factory=dict)
    sources: tuple[str, ...] = ()


EVERYTHING = ("all",)
"""Default of `training.trainable`."""

MOST_SAMPLES = 10**9
"""Most samples per optimizer step: far above any batch, and few enough for CP-SAT to count micro-batches in 64 bits
(`nest_cpsat.scaling.LARGEST_COEFFICIENT`)."""

MOST_TOKENS = 10**18
"""Most tokens of a training: far above any, and steps and seconds stay exact enough."""

OFFLOADABLE = ("optimizer", "activations")
PRICES = ("replay", "closed-form")
PRECISIONS = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")

OF_PLANS = (
    "global_batch",
    "micro_batch",
    "memory_margin",
    "memory_risk",
    "price",
    "schedule",
    "tokens",
    "uneven_batch",
    "unknown",
)
"""Keys of a training that concern plans and not layers: some determine the sizes of micro-batches."""


@frozen(eq=False, repr=False)
class Training(Record):
    """Settings of the training of the model.

    Attributes:
        global_batch: samples per optimizer step, at most `MOST_SAMPLES`; `8k` is 8000.
        sequence_length: tokens per sample; `8k` is 8192; needed with `model`, except for a graph, which has it, or has
            no tokens, such as images; unused with `profile`.
        micro_batch: samples per micro-batch the search may use; unused with `profile`.
        precision: number format of matrix products.
        optimizer: name of the optimizer.
        schedule: pipeline schedules the search may use.
        uneven_batch: round the number of micro-batches up instead of refusing a remainder (PROBLEM.md section 3).
        exposed: share of data-parallel communication that is not hidden (`e` of PROBLEM.md section 4), 0 to 1; None: 0
            when `overlap.data`, else 1.
        hiding: whether data-parallel communication hides only as far as compute lasts, with `exposed` as the least
            exposed share; None: if a `model` is planned with `overlap.data` and without `exposed`.
        synchronisation: seconds of gradients and weights once per batch over those of the collective model: ranks out
            of step, many small buckets, several groups on one link; None: the device's calibration if a `model` is
            planned without `overlap.data`, else 1.
        sharded_synchronisation: further factor with a sharded optimizer state (ZeRO 1 and up); None: the device's
            calibration if it also gives `synchronisation`, else 1.
        overlap: communication that the framework hides under compute.
        attention: `flash` (scores are never stored) or `unfused`; None: the stack's, else `flash`, but with `precision:
            fp16` `unfused`, as the frameworks of published fp16 runs had no fused attention (Megatron-LM, arXiv
            2104.04473 and 2205.05198; BLOOM, arXiv 2211.05100).
        attention_kernel: the kernel of fused attention: `flash2` (FlashAttention-2, arXiv 2307.08691), `flash3`
            (FlashAttention-3, arXiv 2407.08608) or `cudnn`; None: the stack's, else the device's `attention`.
        graphs: extent of CUDA graphs, which save launches of the host: `none`, the `layers`, or the whole `iteration`;
            None: the stack's, else `none`.
        host: the processor that launches kernels, `x86` or `grace`; None: the device's.
        selective: operators that `recompute: selective` reruns: kinds of operator, or names of operators within their
            layer; None: the stack's, else `attention`.
        primary_weights: with products in 8 bits, the format of the weights: `fp8`, or `bf16` with additional 8-bit
            copies; None: as the precision's entry in the catalogue.
        gradients: number format of accumulated and reduced gradients; None: the stack's, else the precision's.
        master_weights: whether the optimizer keeps a single-precision copy of the weights; None: if they are narrower.
        master_gradients: whether it keeps one of the gradients; None: if they are narrower.
        offload: kept in the host's memory, not with `profile`: `optimizer` (state and step), `activations` (stages may
            choose the recompute mode `offload`).
        context_exchange: exchange of keys and values with context parallelism: `ring` (between neighbours, under the
            attention of those at hand) or `all_gather`; None: the stack's, else `ring`.
        memory_risk: accepted share of launches that run out of memory, which sets the memory limit of stages; None:
            0.2, and 0.5 if no plan is that likely to fit. Not with `profile`, whose candidates state their bytes.
        memory_margin: share added to the estimate of a stage's memory, without the reserve, before it is compared with
            a device's, at any `memory_risk`, 0 to 1: for the search, and for fitting; None: with `model` that of the
            risk, with `profile` 0.
        stack: software stack with defaults for omitted keys: a name (`nest stacks`), a file, or in place; None: that of
            `search.target`, else the device's usual one. Not with `profile`.
        unknown: other possible values of keys that nobody is sure of, such as `overlap.data: false`; None: those of a
            stack that is implied by the device or the precision, for keys that are left out.
        overlap_reach: links on which communication inside blocks hides with `overlap.tensor`: `domain`, the scale-up
            network only, or `network`, anywhere; None: the stack's, else `network`.
        all_ports: whether collectives drive all ports of a device at once, if the network has dimensions (torus, mesh);
            None: the stack's, else not.
        dispatch: path of tokens to their experts: `all-to-all`, a copy for each expert chosen, or `per-node`, a copy
            for each node with some of them, which forwards it; None: the stack's, else `all-to-all`.
        expert_imbalance: tokens of the rank with the busiest experts over those of the average rank; None: the stack's,
            else 1.
        expert_products: whether one kernel multiplies all experts of a device (`grouped`), or one each (`sequential`:
            Megatron Core without `--moe-grouped-gemm`); None: the stack's, else `grouped`.
        accumulation: ZeRO 2's handling of the gradients of several micro-batches: `sharded`, reduce each of them, or
            `whole`, add them up and reduce once per batch, as ZeRO 1 does; None: the stack's, else `sharded`.
        reductions: units of data-parallel communication once per batch that overlaps: `layers`, one behind the other in
            a stream of its own, as ZeRO 3's in every micro-batch (FSDP, arXiv 2304.11277, section 3.3), or `buckets` of
            many parameters (Megatron Core); None: the stack's, else `buckets`.
        stage_split: how `nest evaluate` divides layers that a problem leaves open: equal numbers of `blocks`, or equal
            `products` (parameters of matmuls, the head's too: nanotron); None: the stack's, else `blocks`.
        loss: how the cross-entropy reads the logits: `unfused`, from a copy in single precision that its softmax
            replaces; `fused`, directly; `chunked`, those of some tokens at a time; or `eager`, from such a copy, in
            operators with separate results, as PyTorch runs it uncompiled; None: the stack's, else `unfused`.
        loss_parallel: whether a tensor-parallel rank reads its logits only, not all; None: the stack's, else true.
        kernels: whether the operators between products are `fused`, as by a compiler, or `eager`: run one by one, which
            saves more for the backward pass; None: the stack's, else `fused`, except clamps and biases of experts.
        norms: whether a norm is one kernel (`fused`) or several (`eager`); None: the stack's, else as `kernels`.
        saved_inputs: saved inputs of products in narrow formats for the backward pass: `wide`, the inputs, or `narrow`,
            their converted copies; None: the stack's, else `wide`.
        weights_once: whether weights are kept in single precision only, and converted for products when ranks gather
            them (FSDP); None: the stack's, else not.
        fragmentation: unusable share of the memory for activations of micro-batches in flight, beyond the first; None:
            the stack's, else `cluster.device.memory_overheads`.
        communicator: bytes of the communication library's buffers for each group of ranks of a device; None: the same.
        context: bytes of the driver and of libraries' code; None: the same.
        price: time of a plan's step: `replay`, the larger of its schedule's closed form and the makespan of its passes
            (PROBLEM.md section 4, "Price and replay"), or `closed-form`, which keeps the closed form for 1F1B, GPipe
            and the bound of the NEST paper; None: `replay` with a `model`, `closed-form` with a `profile`.
        tokens: of the whole training, for its time, its device hours and, with `cluster.price`, its cost.
        expert_capacity: tokens each routed expert has room for, over an even share; the rest is padding. 1: no padding,
            perfectly balanced.
        mtp: train the layers of a `config.json` that predict further tokens (DeepSeek-V3, arXiv 2412.19437, section
            2.2); without it they are left out.
        trainable: trained part: `all`; names of layers, such as `head`, with the rest frozen; or a mapping with `lora`
            (low-rank adapters), `layers` (further fully trained ones), or both. Not with `profile`, whose candidates
            state their bytes and seconds.
    """

    global_batch: Count = field(validator=between(1, MOST_SAMPLES))
    sequence_length: Positions | None = field(default=None, validator=at_least(1))
    micro_batch: tuple[int, ...] | None = field(default=None, validator=every(not_empty, each(at_least(1))))
    precision: str = field(default="bf16", validator=one_of(PRECISIONS))
    optimizer: str = "adam"
    schedule: tuple[str, ...] = field(default=("1f1b",), validator=not_empty)
    uneven_batch: bool = False
    exposed: float | None = field(default=None, validator=between(0, 1))
    hiding: bool | None = None
    synchronisation: float | None = field(default=None, validator=above(0))
    sharded_synchronisation: float | None = field(default=None, validator=above(0))
    overlap: Overlap = field(factory=Overlap)
    attention: str | None = field(default=None, validator=one_of(ATTENTIONS))
    attention_kernel: str | None = field(default=None, validator=one_of(ATTENTION_KERNELS))
    graphs: str | None = field(default=None, validator=one_of(GRAPHS))
    selective: tuple[str, ...] | None = None
    host: str | None = field(default=None, validator=one_of(HOSTS))
    context_exchange: str | None = field(default=None, validator=one_of(EXCHANGES))
    stack: str | StackSpec | None = None
    unknown: dict[str, Any] | None = None
    overlap_reach: str | None = field(default=None, validator=one_of(REACHES))
    dispatch: str | None = field(default=None, validator=one_of(DISPATCHES))
    expert_imbalance: float | None = field(default=None, validator=at_least(1))
    expert_products: str | None = field(default=None, validator=one_of(EXPERT_PRODUCTS))
    accumulation: str | None = field(default=None, validator=one_of(ACCUMULATIONS))
    reductions: str | None = field(default=None, validator=one_of(REDUCTIONS))
    stage_split: str | None = field(default=None, validator=one_of(SPLITS))
    loss: str | None = field(default=None, validator=one_of(LOSSES))
    loss_parallel: bool | None = None
    kernels: str | None = field(default=None, validator=one_of(KERNELS))
    norms: str | None = field(default=None, validator=one_of(NORMS))
    saved_inputs: str | None = field(default=None, validator=one_of(SAVED))
    weights_once: bool | None = None
    fragmentation: float | None = field(default=None, validator=between(0, 0.9))
    communicator: Bytes | None = field(default=None, validator=at_least(0))
    context: Bytes | None = field(default=None, validator=at_least(0))
    price: str | None = field(default=None, validator=one_of(PRICES))
    tokens: Count | None = field(default=None, validator=between(1, MOST_TOKENS))
    expert_capacity: float = field(default=1.0, validator=at_least(1))
    memory_risk: float | None = field(default=None, validator=between(0.001, 0.999))
    memory_margin: float | None = field(default=None, validator=between(0, 1))
    primary_weights: str | None = field(default=None, validator=one_of(("bf16", "fp8")))
    gradients: str | None = field(default=None, validator=one_of(GRADIENTS))
    master_weights: bool | None = None
    master_gradients: bool | None = None
    offload: tuple[str, ...] = field(default=(), validator=every(each(one_of(OFFLOADABLE)), all_different))
    all_ports: bool | None = None
    mtp: bool = False
    trainable: tuple[str, ...] | Trainable | None = None

    @property
    def trained(self) -> Trainable | None:
        """Trained part; None: everything."""
        if isinstance(self.trainable, Trainable):
            return self.trainable
        return None if self.trainable in (None, EVERYTHING) else Trainable(layers=self.trainable)

    @property
    def stored(self) -> str | None:
        """Narrow format of frozen weights; None: the training precision."""
        return self.trainable.stored if isinstance(self.trainable, Trainable) else None

    @property
    def of_layers(self) -> dict[str, Any]:
        """Keys that concern layers: all attributes except `OF_PLANS`, by name."""
        return {each.name: getattr(self, each.name) for each in fields(Training) if each.name not in OF_PLANS}

    @property
    def exposed_share(self) -> float:
        """`e` of PROBLEM.md section 4."""
        if self.exposed is not None:
            return self.exposed
        return 0.0 if self.overlap.data else 1.0

    def host_launch(self, device: DeviceSpec) -> float:
        """Seconds of the host of `device` to launch an operator's kernels: 0 if a graph launches them."""
        if self.graphs in ("layers", "iteration"):
            return 0.0
        slower = device.calibration.grace_launch if (self.host or device.host) == "grace" else 1.0
        return device.calibration.host_launch * slower

    @property
    def key_exchange(self) -> str:
        """Exchange of keys and values with context parallelism; default `ring`."""
        return self.context_exchange or "ring"

    @property
    def selected(self) -> tuple[str, ...]:
        """Kinds and names of the operators that `recompute: selective` reruns."""
        return ("attention",) if self.selective is None else self.selective

    @property
    def eager_norms(self) -> bool:
        """True if a norm is several kernels."""
        return (self.norms or self.kernels) == "eager"

    @property
    def sequential_experts(self) -> bool:
        """True if each expert's products are kernels of their own."""
        return self.expert_products == "sequential"

    @property
    def stores_scores(self) -> bool:
        """True if attention runs without a fused kernel, so that its scores are stored."""
        if self.attention is not None:
            return self.attention == "unfused"
        return self.precision == "fp16"
