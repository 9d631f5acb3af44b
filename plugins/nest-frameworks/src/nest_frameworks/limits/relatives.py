"""Limits of frameworks that run Megatron Core under other names of its settings, with reasons.

Each has Megatron-LM's limits as far as its files can say; the modules that write them name the sources.
"""

from collections.abc import Iterable, Iterator

from attrs import evolve

from nest.deployment import Limits
from nest.errors import InputError
from nest.spec import Lora, Training
from nest.spec.architecture import LatentAttention
from nest.spec.training import ALL_LINEAR
from nest_frameworks.limits import Asked, even_launch, gradient_format
from nest_frameworks.limits.megatron import (
    biased_sigmoid_router,
    eight_bit_weights,
    feed_forwards,
    megatron,
)

SILENT = "its files, as nest writes them, do not say"

MODULES = {
    "q_proj": "linear_q",
    "k_proj": "linear_k",
    "v_proj": "linear_v",
    "o_proj": "linear_proj",
    "gate_proj": "linear_fc1_gate",
    "up_proj": "linear_fc1_up",
    "down_proj": "linear_fc2",
}
"""`CanonicalLoRA`'s names for `training.trainable.lora.targets` (src/megatron/bridge/peft/canonical_lora.py)."""

FUSED_MODULES = {
    "qkv_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "gate_up_proj": "linear_fc1",
    "down_proj": "linear_fc2",
}
"""`LoRA`'s names for them, with one adapter per module of Megatron Core (src/megatron/bridge/peft/lora.py)."""

FUSED = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"})
"""Targets that are one module of Megatron Core: it runs the adapters of all or of none."""


def bridge(asked: Asked) -> Limits:
    """Limits of Megatron-Bridge for `problem`: Megatron-LM's, but its recipes also build gpt-oss.

    Recipes: src/megatron/bridge/models/gpt_oss/gpt_oss_bridge.py of the version that megatron/bridge.py names.

    Raises:
        InputError: the model or the training is beyond it.
    """
    _refuse("Megatron-Bridge", (*_muon(asked.training), *_wide_gradients(asked.training), *_adapter_obstacles(asked)))
    return evolve(megatron(asked, recipe=True), trainable=True)


def nemo(asked: Asked) -> Limits:
    """Limits of NeMo for `problem`: Megatron-LM's, with the distributed optimizer and even stages.

    Raises:
        InputError: the model or the training is beyond it.
    """
    inner = megatron(asked)
    _refuse("NeMo", _nemo_obstacles(asked))
    constraints = {**inner.constraints, **_in_device_order("NeMo", asked), **even_launch(asked, "NeMo")}
    blocks = len(asked.transformer.blocks)
    constraints[f"chunks == 1 or {blocks} % (pp * chunks) == 0"] = (
        "NeMo divides the transformer blocks evenly among chunks, without counting embedding and head"
    )
    return evolve(inner, constraints=constraints, zero=(0, 1), zero_degrees=False, even_stages=True)


def verl(asked: Asked) -> Limits:
    """Limits of verl's actor for `problem`: Megatron-LM's, with the distributed optimizer.

    Raises:
        InputError: the model or the training is beyond it.
    """
    inner, overlap = megatron(asked), asked.training.overlap
    _refuse("verl", _verl_obstacles(asked.training))
    more = _in_order("verl")
    if overlap.tensor:
        more["tp == 1"] = "verl does not set up what overlaps tensor parallelism; say overlap.tensor: false"
    if overlap.experts:
        more["ep == 1"] = "verl does not set up what overlaps the exchange of experts; say overlap.experts: false"
    constraints = {**inner.constraints, **more, **even_launch(asked, "verl")}
    return evolve(inner, constraints=constraints, zero=(0, 1), zero_degrees=False)


def swift(asked: Asked) -> Limits:
    """Limits of Megatron-SWIFT for `problem`: Megatron-LM's, and those of its own arguments.

    Raises:
        InputError: the model or the training is beyond it.
    """
    inner, more = megatron(asked), _in_order("Megatron-SWIFT")
    _refuse("Megatron-SWIFT", _swift_obstacles(asked.training))
    if asked.training.overlap.experts:
        more["ep == 1"] = "Megatron-SWIFT has no argument that overlaps the exchange of experts (overlap.experts)"
    if asked.training.precision != "fp32" and gradient_format(asked.training) == "fp32":
        # `wrap_model` of swift/megatron/utils/megatron_lm_utils.py (4.6.0) does not name the format: Megatron Core 0.19
        # then takes the weights' format.
        more["zero <= 1"] = "Megatron FSDP in Megatron-SWIFT adds up gradients in bf16; say training.gradients: bf16"
    constraints = {**inner.constraints, **more, **even_launch(asked, "Megatron-SWIFT")}
    return evolve(inner, constraints=constraints, zero_degrees=False)


def _refuse(name: str, obstacles: Iterable[str]) -> None:
    """Refuse a problem for the first of these clauses, which follow "because"."""
    for obstacle in obstacles:
        raise InputError(f"{name} cannot train this, because {obstacle}.")


def _adapter_obstacles(asked: Asked) -> Iterator[str]:
    trained, model = asked.training.trained, asked.transformer
    if trained is None:
        return
    if trained.lora is None or trained.layers:
        yield "it freezes all but adapters (training.trainable)"
        return
    if feed_forwards(model)[1] or any(isinstance(each.attention, LatentAttention) for each in model.blocks):
        yield "its adapters of experts and of latent attention are not those that nest prices"
        return
    targets = targets_of(trained.lora)
    for fused in FUSED:
        if 0 < len(fused & targets) < len(fused):
            yield f"its adapters beside {', '.join(sorted(fused))} come together (training.trainable.lora.targets)"
    unknown = sorted(targets - set(MODULES))
    if unknown and not targets <= set(FUSED_MODULES):
        yield f"it has no adapter beside {unknown[0]} (training.trainable.lora.targets)"
    if targets & {"gate_proj", "up_proj"} and not feed_forwards(model)[0][0].gated:
        yield "its adapters beside gate_proj and up_proj take a gated network"


def targets_of(lora: Lora) -> set[str]:
    """The projections beside which there are adapters, all of them by name."""
    return {*MODULES} if ALL_LINEAR in lora.targets else {*lora.targets}


def _nemo_obstacles(asked: Asked) -> Iterator[str]:
    training, model = asked.training, asked.transformer
    if training.precision in ("fp8", "mxfp8", "nvfp4"):
        yield f"{SILENT} products in 8 or 4 bits (training.precision)"
    if "optimizer" in training.offload:
        yield f"{SILENT} that the optimizer's state is on the host (training.offload)"
    yield from _narrow_state(training)
    yield from _wide_gradients(training)
    yield from _bare_gradients(training)
    if any(isinstance(block.attention, LatentAttention) for block in model.blocks):
        yield f"{SILENT} latent attention"
    if model.predicting:
        yield f"{SILENT} layers that predict further tokens (mtp_layers)"
    if biased_sigmoid_router(asked.written):
        yield f"{SILENT} the bias by which its router chooses experts"
    if any(mixture.groups > 1 for mixture in feed_forwards(model)[1]):
        yield f"{SILENT} the groups in which its router chooses experts"


def _verl_obstacles(training: Training) -> Iterator[str]:
    if training.precision in ("fp32", "nvfp4"):
        yield f"{SILENT} products in {training.precision} (training.precision)"
    if eight_bit_weights(training):
        yield f"{SILENT} weights in 8 bits; say training.primary_weights: bf16"
    yield from _narrow_state(training)
    yield from _wide_gradients(training)
    yield from _bare_gradients(training)


def _swift_obstacles(training: Training) -> Iterator[str]:
    yield from _muon(training)
    yield from _wide_gradients(training)
    if training.gradients == "bf16" and training.master_gradients is not False:
        yield f"{SILENT} that gradients in bf16 have a copy in single precision (training.master_gradients)"


def _narrow_state(training: Training) -> Iterator[str]:
    yield from _muon(training)
    if training.optimizer in ("adam-bf16", "adam-8bit"):
        yield f"{SILENT} optimizer {training.optimizer}, whose state is narrower than single precision"


def _muon(training: Training) -> Iterator[str]:
    if training.optimizer == "muon":
        yield f"{SILENT} optimizer muon"


def _wide_gradients(training: Training) -> Iterator[str]:
    if training.precision == "fp16" and training.gradients == "fp32":
        yield f"{SILENT} that gradients of fp16 are in single precision (training.gradients)"


def _bare_gradients(training: Training) -> Iterator[str]:
    if training.gradients == "bf16" and training.master_gradients is False:
        yield f"{SILENT} that gradients in bf16 have no copy in single precision (training.master_gradients)"


def _in_order(name: str) -> dict[str, str]:
    """The constraint of frameworks that count ranks with the pipeline outside data parallelism."""
    return {
        'rank_order == "dp-inner" or pp == 1 or replicas == 1': (
            f"{name} counts ranks with the pipeline outside data parallelism"
        )
    }


def _in_device_order(name: str, asked: Asked) -> dict[str, str]:
    """The constraint of frameworks that count ranks either way, and start them machine by machine.

    With the pipeline inside data parallelism ranks lie in the order of devices where `order_of` says so. Else machines
    have ranks in a row where there is one machine, or a stage fills some.

    Raises:
        InputError: nothing is known of the model.
    """
    sparse = bool(feed_forwards(asked.transformer)[1])
    alike = "ep * etp == tp * cp" if sparse else "cp == 1"
    each = asked.devices_per_machine
    whole = "" if each is None else f" or devices <= {each} or width % {each} == 0"
    return {
        f"rank_order == 'dp-inner' or pp == 1 or replicas == 1{whole} or (width == tp * cp and {alike})": (
            f"{name} counts ranks with the pipeline inside data parallelism only where experts, which it counts of "
            "dense models too, lie over the ranks of all else"
        )
    }
