"""Limits of frameworks with their reasons: a function for each, by the name of its exporter.

`sharded`: those that shard with FSDP or ZeRO. `meshes`: MaxText, Galvatron, nanotron. `megatron`: Megatron-LM.
`relatives`: frameworks that run Megatron Core under other names of its settings. Here are their common refusals and
constraints.
"""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

from attrs import evolve, frozen

from nest.deployment.deployment import BLOCK, ENDS
from nest.errors import InputError
from nest.hooks.architectures import architecture_of, hybrid_of, network_of
from nest.instance import Cluster
from nest.spec import Architecture, ClusterSpec, Problem, ProfileSpec, Training
from nest.spec.architecture import (
    CompressedAttention,
    DeltaNet,
    GroupedQueryAttention,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    Parallel,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
    TransformerSpec,
)
from nest.spec.problem import ALL_RANKS

ULYSSES, PLUGIN = "ulysses", "the plug-in nest-ulysses."
"""Sequence parallelism over attention heads (arXiv 2309.14509), DeepSpeed's `sequence_parallel_size` and Galvatron's
`use_sp`: the name of the strategy that a plug-in brings."""


@frozen(eq=False, repr=False, slots=False)
class Asked:
    """A problem's demands on a framework, as far as limits depend on them.

    Attributes:
        training: how the model is trained.
        written: the model as the problem describes it; None: it has measured layers.
        cluster: the machines.
        layers: names of measured layers.
        by_operator: whether operators are planned one by one.
        zero_degrees: the ranks over which ZeRO may shard at most, as `search` and `fixed` write them.
        stages: how many stages are fixed.
        release: of the framework; None: the newest.
    """

    training: Training
    written: str | TransformerSpec | dict[str, Any] | None
    cluster: ClusterSpec
    layers: tuple[str, ...]
    by_operator: bool
    zero_degrees: frozenset[Any]
    stages: object
    release: str | None = None

    @classmethod
    def of(cls, problem: Problem, release: str | None = None) -> "Asked":
        """Demands of `problem`."""
        return cls(
            problem.training,
            problem.model,
            problem.cluster,
            problem.profile.layers if isinstance(problem.profile, ProfileSpec) else (),
            problem.search.granularity == "operator",
            frozenset({*problem.search.zero_degree, problem.decided.get("zero_degree", ALL_RANKS)}),
            problem.decided.get("pp", 1),
            release,
        )

    @cached_property
    def model(self) -> Architecture | None:
        """The transformer; None: there are measured layers, or an operator graph."""
        return architecture_of(self.written)

    @cached_property
    def hybrid(self) -> Architecture | None:
        """The hybrid, whose blocks mix tokens in several ways; None: it is something else."""
        return hybrid_of(self.written)

    @property
    def transformer(self) -> Architecture:
        """The transformer, which Megatron-LM needs.

        Raises:
            InputError: it is something else.
        """
        if self.hybrid is not None:
            raise InputError(
                f"This exporter for Megatron-LM writes models of attention, and {self.hybrid.family} has "
                f"{unwritten_parts(self.hybrid)}; export for pytorch, accelerate or deepspeed."
            )
        if self.model is None:
            raise InputError(
                "Megatron-LM cannot run measured layers or a custom operator graph; give a transformer as `model`."
            )
        return self.model

    @cached_property
    def fanouts(self) -> tuple[int, ...]:
        """Children of a group of each level of the cluster, innermost first; of a network by links, none."""
        try:
            network = network_of(self.cluster)
        except InputError:  # A problem that is not formulated yet says by what it is wrong when it is.
            return ()
        if not isinstance(network, (Cluster, tuple)):
            return ()
        return tuple(level.fanout for level in (network if isinstance(network, tuple) else network.levels))

    @property
    def devices_per_machine(self) -> int | None:
        """Devices of a machine of the cluster; None: it has no levels."""
        sizes, hosts = self.fanouts, self.cluster.hosts
        if not sizes:
            return None
        return self.cluster.devices_per_host or (prod(sizes) // len(hosts) if hosts else sizes[0])


OWN_MODELS = ("torchtitan", "maxtext", "galvatron")
"""Frameworks whose files name one of their models; others wrap the user's."""


def whole_states(asked: Asked, framework: str, *further: str) -> dict[str, str]:
    """Constraints of frameworks that split attention alone, and run layers with a state whole on every rank.

    Args:
        further: names of strategies that the framework has beside `tp` and `cp` and that split a sample.
    """
    if asked.hybrid is None:
        return {}
    reason = f"{framework} splits attention only, and {asked.hybrid.family} has {unwritten_parts(asked.hybrid)}"
    return dict.fromkeys((f"{axis} == 1" for axis in ("tp", "cp", *further)), reason)


def refuse_layers(asked: Asked, framework: str) -> None:
    """Refuse layers that are no transformer blocks, as far as a problem tells.

    Raises:
        InputError: layers are measured ones of other names, operators are planned one by one, layers predict
            further tokens, or the framework lacks what mixes tokens.
    """
    model, hybrid = asked.model or asked.hybrid, asked.hybrid
    if hybrid is not None and framework in OWN_MODELS:
        raise InputError(
            f"the exporter for {framework} writes models that it has itself, and {hybrid.family} has "
            f"{unwritten_parts(hybrid)}; export for pytorch, accelerate or deepspeed."
        )
    if model is not None and model.predicting:
        raise InputError(
            f"the model has layers that predict further tokens (mtp_layers), which the exporter for {framework} does "
            "not write; leave them out, or export for megatron."
        )
    strange = next((name for name in asked.layers if name not in ENDS and not BLOCK.fullmatch(name)), None)
    if strange is not None or asked.by_operator:
        what = "operators, one by one" if strange is None else f"layers such as {strange!r}"
        raise InputError(
            f"the problem asks to place {what}, but {framework} places whole transformer blocks (layers.0, layers.1, "
            "...); plan a `model`, and not with `search.granularity: operator`."
        )


def refuse_training(
    training: Training,
    exporter: str,
    framework: str,
    *,
    precisions: Sequence[str],
    gradients: Sequence[str],
    optimizers: Sequence[str] = (),
) -> None:
    """Refuse number formats and optimizers that files of a framework do not say, or that it does not have.

    Args:
        training: what the problem asks for.
        exporter: name of the exporter.
        framework: its name; beside narrower weights it keeps single-precision ones.
        precisions: values of `training.precision` that it writes.
        gradients: formats in which it reduces gradients, as it is told.
        optimizers: those it names; empty: any.

    Raises:
        InputError: the problem asks for others.
    """
    chosen = (("precision", training.precision, precisions), ("optimizer", training.optimizer, optimizers))
    for key, value, known in chosen:
        if known and value not in known:
            raise InputError(
                f"training.{key} is {value!r}, which this exporter of {exporter} does not write; it has "
                f"{', '.join(known)}."
            )
    if training.gradients is not None and training.gradients not in gradients:
        raise InputError(
            f"training.gradients is {training.gradients}, but as told here {framework} reduces gradients in "
            f"{' or '.join(gradients)}; leave it out, or plan for another framework."
        )
    if training.master_weights is not None and training.master_weights != (training.precision != "fp32"):
        raise InputError(
            f"training.master_weights is {str(training.master_weights).lower()}, but as told here {framework} keeps "
            "single-precision weights wherever products are narrower, and only there; leave it out."
        )


def gradient_format(training: Training) -> str:
    """The format that gradients are priced in where `training.gradients` is left out (`nest/library/precisions`)."""
    return training.gradients or ("fp16" if training.precision == "fp16" else "fp32")


def shard_groups(asked: Asked, framework: str) -> dict[str, str]:
    """Constraints of frameworks that shard over the innermost data-parallel ranks and all of context parallelism.

    Nothing where the problem leaves ZeRO all ranks. To constraints these are `dp * batch`, which another degree that is
    named may be, too: then that counts.
    """
    if asked.zero_degrees == {ALL_RANKS}:
        return {}
    numbers = sorted(each for each in asked.zero_degrees if isinstance(each, int))
    every = f"zero_degree == dp * batch and (cp == 1 or dp * batch not in {numbers})"
    groups = {
        f"zero == 0 or ({every}) or (zero_degree % cp == 0 and dp * batch * cp % zero_degree == 0)": (
            f"{framework} shards over whole groups of context parallelism, and over as many of them everywhere"
        )
    }
    if mixture(asked.model or asked.hybrid) is not None:
        groups[f"zero == 0 or ep * etp == 1 or ({every})"] = (
            f"{framework} shards experts over what ranks it has left of all, not over as many as all else"
        )
    return groups


def whole_batches(asked: Asked, framework: str) -> dict[str, str]:
    """Constraint of frameworks whose every rank runs whole micro-batches; nothing where all batches come out even."""
    if not asked.training.uneven_batch:
        return {}
    return {
        f"dp * micro_batch * micro_batches == {asked.training.global_batch}": (
            f"{framework} takes whole micro-batches only, as many on every data-parallel rank"
        )
    }


def looks_ahead(model: Architecture) -> bool:
    """Return whether tokens attend to later ones, as in encoders such as BERT."""
    return any(not getattr(block.attention, "causal", True) for block in model.blocks)


def like_llama(architecture: Architecture) -> bool:
    """Return whether a model is a Llama but for widths, experts, latent attention, and norms of heads as in Qwen 3.

    Llama's blocks normalise by RMSNorm what each sub-layer reads, rotate queries and keys, attend to all earlier
    tokens, have gated networks, and no biases.
    """
    usual = Architecture(
        architecture.family,
        architecture.hidden,
        architecture.vocab,
        architecture.blocks,
        tied=architecture.tied,
        predicting=architecture.predicting,
    )
    return architecture == usual and all(
        block.attention == _plain_attention(block.attention)
        and block.feed_forward == evolve(block.feed_forward, gated=True, bias=False)
        for block in architecture.blocks
    )


def _plain_attention(attention: GroupedQueryAttention | LatentAttention) -> GroupedQueryAttention | LatentAttention:
    """Attention of the same widths and nothing particular."""
    if isinstance(attention, LatentAttention):
        return evolve(attention, bias=False, indexer=None)
    return GroupedQueryAttention(attention.heads, attention.kv_heads, attention.head, normalised=attention.normalised)


def unwritten_parts(hybrid: Architecture) -> str:
    """Words for the blocks of a hybrid that no exporter for transformers writes."""
    mixers = {type(block.attention) for block in hybrid.hybrid}
    words = [name for kind, name in MIXERS.items() if kind in mixers]
    if any(block.feed_forward is None for block in hybrid.hybrid):
        words.append("blocks without a feed-forward network")
    return ", ".join(words[:-1]) + (" and " if words[1:] else "") + words[-1]


MIXERS = {
    DeltaNet: "gated delta nets",
    StateSpace: "Mamba-2 layers",
    SelectiveScan: "Mamba layers",
    LinearAttention: "linear attention",
    ShortConvolution: "short convolutions",
    CompressedAttention: "compressed attention",
    Parallel: "attention beside Mamba-2",
}
"""Names of what mixes tokens in place of attention."""


def mixture(architecture: Architecture | None) -> MixtureOfExperts | None:
    """The routed experts of a model, if it has any."""
    if architecture is None:
        return None
    blocks = architecture.blocks or architecture.hybrid
    return next((block.feed_forward for block in blocks if isinstance(block.feed_forward, MixtureOfExperts)), None)


def even_launch(asked: Asked, framework: str) -> dict[str, str]:
    """Constraints on the placement of plans so that a launcher that knows only numbers can start them."""
    devices, each = prod(asked.fanouts), asked.devices_per_machine
    if each is None:
        return {}
    return {
        f"devices <= {each} or devices % {each} == 0": f"{framework} starts as many processes on every machine",
        # Replicas lie side by side if each has as many blocks as there is room for (PROBLEM.md section 3).
        f"rank_order == 'dp-inner' or replicas == 1 or {devices} // (replicas * width) == pp": (
            f"{framework} numbers processes machine by machine, and leaves out none in between"
        ),
    }
