"""The `training` section of a problem, and the software stacks that fill in what it leaves out (FORMATS.md)."""

from typing import Any

from attrs import asdict, field, fields, frozen

from nest.records import Record
from nest.spec.device import HOSTS, DeviceSpec
from nest.spec.validators import above, all_different, at_least, between, each, every, not_empty, one_of
from nest.units import Bytes, Count, Positions

NO_STACK = "none"
"""The stack of the catalogue that fills nothing in."""

ATTENTIONS = ("flash", "unfused")
ATTENTION_KERNELS = ("flash2", "flash3", "cudnn")
GRAPHS = ("none", "layers", "iteration")
EXCHANGES = ("ring", "all_gather")
REACHES = ("domain", "network")
DISPATCHES = ("all-to-all", "per-node")
ACCUMULATIONS = ("sharded", "whole")
GRADIENTS = ("fp32", "bf16", "fp16")
LOSSES = ("unfused", "fused", "eager", "chunked")
KERNELS = ("fused", "eager")
NORMS = ("fused", "eager")
SAVED = ("wide", "narrow")


@frozen(eq=False, repr=False)
class Overlap(Record):
    """What the framework hides under compute; None: what its stack says, and without a stack nothing.

    Attributes:
        data: data-parallel communication.
        tensor: communication inside blocks, but for the exchange of tokens between experts.
        pipeline: communication between stages: with all schedules that the problem allows, with none, or with those
            listed.
        experts: the exchange of tokens between experts.
    """

    data: bool | None = None
    tensor: bool | None = None
    pipeline: bool | tuple[str, ...] | None = None
    experts: bool | None = None


@frozen(eq=False, repr=False)
class StackDefaults(Record):
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
        loss: how the cross-entropy reads the logits.
        saved_inputs: what products in narrow formats keep of their inputs.
        weights_once: whether weights are kept in single precision alone.
        fragmentation: share of the memory held for further micro-batches in flight that the allocator cannot use.
        communicator: bytes of buffers that its communication library keeps for each group of ranks a device is in.
        context: bytes of the driver and of the code of its libraries.
        master_gradients: whether the optimizer keeps gradients in single precision where they are narrower.
        all_ports: whether collectives drive all ports of a device at once.
        kernels: whether what lies between products is fused.
        selective: what `recompute: selective` runs again.
        attention_kernel: which kernel attention is where it is fused.
        graphs: what CUDA graphs launch at once.
        norms: whether a norm is one kernel.
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
    all_ports: bool | None = None
    kernels: str | None = field(default=None, validator=one_of(KERNELS))
    selective: tuple[str, ...] | None = None
    attention_kernel: str | None = field(default=None, validator=one_of(ATTENTION_KERNELS))
    graphs: str | None = field(default=None, validator=one_of(GRAPHS))
    norms: str | None = field(default=None, validator=one_of(NORMS))

    @property
    def filled(self) -> dict[str, Any]:
        """What it fills in, by key, such as `overlap.data`."""
        keys = {key: value for key, value in asdict(self).items() if key != "overlap"}
        keys |= {f"overlap.{key}": value for key, value in asdict(self.overlap).items()}
        return {key: value for key, value in keys.items() if value is not None}


@frozen(eq=False, repr=False)
class StackSpec(Record):
    """What a framework at a version does.

    Attributes:
        name: as `training.stack` names it.
        version: of the framework, or the years it stands for.
        description: one line.
        targets: exporters whose files it runs: their names as `search.target` imply it.
        precisions: training precisions that imply it, in place of a device's usual stack.
        fully_sharded: the stack implied in its place where a problem fixes ZeRO 3, which its framework does not run;
            empty: it runs it.
        training: what it fills in.
        pipeline_overlap: schedules with which it hides communication between stages; they fill in `overlap.pipeline`.
        notes: what else it does, which no key of a problem expresses, by subject.
        sources: where each statement was read, beginning with its key or subject.
    """

    name: str
    version: str = ""
    description: str = ""
    targets: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    fully_sharded: str = ""
    training: StackDefaults = StackDefaults()
    pipeline_overlap: tuple[str, ...] = ()
    notes: dict[str, str] = field(factory=dict)
    sources: tuple[str, ...] = ()


@frozen(eq=False, repr=False)
class Lora(Record):
    """Low-rank adapters (LoRA, arXiv 2106.09685) beside linear layers, whose own weights are frozen.

    Attributes:
        rank: width between an adapter's two products.
        targets: linear layers that have one, by what peft calls them in models of Llama's family (`q_proj`, `k_proj`,
            `v_proj`, `o_proj`, `gate_proj`, `up_proj`, `down_proj`, `lm_head`, with latent attention `q_a_proj`,
            `q_b_proj`, `kv_a_proj_with_mqa`, `kv_b_proj`), which stand for those of routed and of shared experts, too;
            `qkv_proj` and `gate_up_proj`, one adapter beside several of them, as where they are one layer;
            `all-linear`: all but routers and `lm_head`. Left out, queries and values, as in the paper (section 7.1).
    """

    rank: int = field(validator=at_least(1))
    targets: tuple[str, ...] = field(default=("q_proj", "v_proj"), validator=not_empty)


@frozen(eq=False, repr=False)
class Trainable(Record):
    """What is trained where that is not all.

    Attributes:
        lora: adapters that are trained.
        layers: layers and operators that are trained as they are, by name, such as `head` or `layers.31/mlp_up`; `*`
            stands for any text.
    """

    lora: Lora | None = None
    layers: tuple[str, ...] = ()

    def __str__(self) -> str:
        adapters = () if self.lora is None else (f"LoRA of rank {self.lora.rank} on {', '.join(self.lora.targets)}",)
        return "; ".join((*adapters, *((", ".join(self.layers),) if self.layers else ())))


ALL_LINEAR = "all-linear"
"""The target of adapters that stands for every linear layer but routers and the vocabulary projection, as peft's does.
"""

EVERYTHING = ("all",)
"""How `training.trainable` says what it is when it is left out."""

MOST_SAMPLES = 10**9
"""Samples per optimizer step at most: far above any batch, and few enough for CP-SAT to count micro-batches in 64 bits
(`nest.solve.cpsat.scaling.LARGEST_COEFFICIENT`)."""

MOST_TOKENS = 10**18
"""Of a training at most: far above any, and steps and seconds stay exact enough."""

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
)
"""What a training says of plans and not of layers: sizes of micro-batches follow from some of it."""


@frozen(eq=False, repr=False)
class Training(Record):
    """How the model is trained.

    Attributes:
        global_batch: samples per optimizer step, at most `MOST_SAMPLES`; `8k` is 8000.
        sequence_length: tokens per sample; `8k` is 8192; needed with `model`, unless that is a graph, which says it
            itself, or has no tokens, as of images; unused with `profile`.
        micro_batch: samples per micro-batch the search may use; unused with `profile`.
        precision: number format of matrix products.
        optimizer: name of the optimizer.
        schedule: pipeline schedules the search may use.
        uneven_batch: round the number of micro-batches up instead of refusing a remainder (PROBLEM.md section 3).
        exposed: share of data-parallel communication that is not hidden (`e` of PROBLEM.md section 4), 0 to 1;
            None: 0 when `overlap.data`, else 1.
        hiding: whether data-parallel communication hides only as far as there is compute to hide under, `exposed` being
            the least share that is exposed; None: where a `model` is planned with `overlap.data` and without `exposed`.
        synchronisation: seconds that gradients and weights take once per batch over those of the collective model:
            ranks out of step, many small buckets, several groups on one link; None: what the device's calibration says
            where a `model` is planned without `overlap.data`, else 1.
        sharded_synchronisation: what it is multiplied by where the optimizer's state is sharded (ZeRO 1 and up); None:
            what the device's calibration says where that also gives `synchronisation`, else 1.
        overlap: what the framework hides under compute.
        attention: `flash` (scores are never stored) or `unfused`; None: as the stack says, else `flash`, but with
            `precision: fp16` `unfused`, as the frameworks that published runs in fp16 had no fused attention
            (Megatron-LM, arXiv 2104.04473 and 2205.05198; BLOOM, arXiv 2211.05100).
        attention_kernel: the kernel of fused attention: `flash2` (FlashAttention-2, arXiv 2307.08691), `flash3`
            (FlashAttention-3, arXiv 2407.08608) or `cudnn`; None: as the stack says, else the device's `attention`.
        graphs: what CUDA graphs launch at once, so that the host need not: `none`, the `layers`, or the whole
            `iteration`; None: as the stack says, else `none`.
        host: the processor that launches kernels, `x86` or `grace`; None: the device's.
        selective: what `recompute: selective` runs again: kinds of operator, or names of operators within their layer;
            None: as the stack says, else `attention`.
        primary_weights: where products run in 8 bits, the format the weights are kept in: `fp8`, or `bf16` with 8-bit
            copies beside them; None: as the precision's entry in the catalogue says.
        gradients: number format gradients are accumulated and reduced in; None: as the stack says, else the
            precision's.
        master_weights: whether the optimizer keeps a single-precision copy of the weights; None: where they are
            narrower.
        master_gradients: whether it keeps one of the gradients; None: where they are narrower.
        offload: what may be kept in the host's memory: `optimizer` (its state, and its step is taken there),
            `activations` (stages may choose the recompute mode `offload`); unused with `profile`.
        context_exchange: how context parallelism passes keys and values on: `ring` (from neighbour to neighbour, under
            the attention of those at hand) or `all_gather`; None: as the stack says, else `ring`.
        memory_risk: share of launches that the search accepts to run out of memory, from which follows what stages must
            stay under; None: 0.2, and 0.5 where no plan is that likely to fit. Not with `profile`, whose candidates
            state their bytes.
        memory_margin: share of a stage's memory, the reserve apart, that is added to the estimate before it is compared
            with a device's, whatever `memory_risk`, 0 to 1: what the search admits, and what fits; None: with `model`
            what the risk asks for, with `profile` 0.
        stack: what the framework does by itself, by its name (`nest stacks`), a file, or in place: fills in what is
            left out here; None: that of `search.target`, else the device's usual one. Not with `profile`.
        overlap_reach: how far communication inside blocks hides with `overlap.tensor`: `domain`, over links of the
            scale-up network only, or `network`, anywhere; None: as the stack says, else `network`.
        all_ports: whether collectives drive all ports of a device at once, where the network has dimensions (torus,
            mesh); None: as the stack says, else not.
        dispatch: how tokens reach their experts: `all-to-all`, a copy for each expert chosen, or `per-node`, a copy for
            each node that has some of them, which forwards it; None: as the stack says, else `all-to-all`.
        expert_imbalance: tokens of the rank with the busiest experts over those of the average rank; None: as the stack
            says, else 1.
        accumulation: what ZeRO 2 does with the gradients of several micro-batches: `sharded`, reduce each of them, or
            `whole`, add them up and reduce once per batch, as ZeRO 1 does; None: as the stack says, else `sharded`.
        loss: how the cross-entropy reads the logits: `unfused`, from a copy of them in single precision, whose place
            its softmax takes; `fused`, as they are; `chunked`, those of some tokens at a time; or `eager`, from such a
            copy, in operators of which each has a result of its own, as PyTorch runs it uncompiled; None: as the stack
            says, else `unfused`.
        kernels: whether the operators between products are `fused`, as by a compiler, or `eager`: run one by one, so
            that more is saved for the backward pass; None: as the stack says, else `fused`.
        norms: whether a norm is one kernel (`fused`) or several (`eager`); None: as the stack says, else as `kernels`.
        saved_inputs: what products in narrow formats keep of their inputs for the backward pass: `wide`, the inputs, or
            `narrow`, the copies they were converted to; None: as the stack says, else `wide`.
        weights_once: whether weights are kept in single precision alone, and what products read is made of them when
            ranks gather it (FSDP); None: as the stack says, else not.
        fragmentation: share of the memory held for the activations of micro-batches in flight, beyond the first, in
            which no tensor lies; None: as the stack says, else as `cluster.device.memory_overheads` does.
        communicator: bytes of buffers that the communication library keeps for each group of ranks a device is in;
            None: the same.
        context: bytes of the driver and of the code of libraries; None: the same.
        price: what a plan's step takes: `replay`, the larger of its schedule's closed form and the makespan of its
            passes (PROBLEM.md section 4, "Price and replay"), or `closed-form`, which leaves 1F1B, GPipe and the bound
            of the NEST paper at that; None: `replay` with a `model`, `closed-form` with a `profile`.
        tokens: of the whole training, from which follow its time, its device hours and, with `cluster.price`, its cost.
        expert_capacity: tokens each routed expert is given room for, over those it would get if all got the same; what
            is left over is padding. 1: no padding, perfectly balanced.
        trainable: what is trained: `all`; names of layers, such as `head`, and the rest is frozen; or a mapping with
            `lora` (low-rank adapters), `layers` (further ones that are trained as they are), or both. Not with
            `profile`, whose candidates state their bytes and seconds.
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
    overlap_reach: str | None = field(default=None, validator=one_of(REACHES))
    dispatch: str | None = field(default=None, validator=one_of(DISPATCHES))
    expert_imbalance: float | None = field(default=None, validator=at_least(1))
    accumulation: str | None = field(default=None, validator=one_of(ACCUMULATIONS))
    loss: str | None = field(default=None, validator=one_of(LOSSES))
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
    trainable: tuple[str, ...] | Trainable | None = None

    @property
    def trained(self) -> Trainable | None:
        """What is trained; None: everything."""
        if isinstance(self.trainable, Trainable):
            return self.trainable
        return None if self.trainable in (None, EVERYTHING) else Trainable(layers=self.trainable)

    @property
    def of_layers(self) -> dict[str, Any]:
        """What it says of layers: its attributes by name, but for those `OF_PLANS`."""
        return {each.name: getattr(self, each.name) for each in fields(Training) if each.name not in OF_PLANS}

    @property
    def exposed_share(self) -> float:
        """`e` of PROBLEM.md section 4."""
        if self.exposed is not None:
            return self.exposed
        return 0.0 if self.overlap.data else 1.0

    def host_launch(self, device: DeviceSpec) -> float:
        """Seconds that the host of `device` takes to launch an operator's kernels: none where a graph launches them."""
        if self.graphs in ("layers", "iteration"):
            return 0.0
        slower = device.calibration.grace_launch if (self.host or device.host) == "grace" else 1.0
        return device.calibration.host_launch * slower

    @property
    def key_exchange(self) -> str:
        """How context parallelism passes keys and values on, where nobody says: `ring`."""
        return self.context_exchange or "ring"

    @property
    def selected(self) -> tuple[str, ...]:
        """Kinds and names of the operators that `recompute: selective` runs again."""
        return ("attention",) if self.selective is None else self.selective

    @property
    def eager_norms(self) -> bool:
        """Whether a norm is several kernels."""
        return (self.norms or self.kernels) == "eager"

    @property
    def stores_scores(self) -> bool:
        """Whether attention runs without a fused kernel, so that its scores are stored."""
        if self.attention is not None:
            return self.attention == "unfused"
        return self.precision == "fp16"
