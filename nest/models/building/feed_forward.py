"""Feed-forward sub-layers: dense networks and mixtures of experts."""

from nest.graph import Routing, Shape, Tensor
from nest.models.building.layer import FP32, LayerBuilder
from nest.spec.architecture import FeedForward, MixtureOfExperts

EXPERT_WIDTH = "expert_ffn"
"""The axis of a routed expert's inner width; experts are split apart from all else."""


def add_feed_forward(layer: LayerBuilder, network: FeedForward | MixtureOfExperts, source: Tensor) -> Tensor:
    """Add a feed-forward sub-layer reading `source`, `(batch, sequence, hidden)`, the shape of its result."""
    if isinstance(network, MixtureOfExperts):
        return _add_mixture(layer, network, source)
    return _add_network(layer, "mlp", source, network)


def _add_network(layer: LayerBuilder, prefix: str, source: Tensor, network: FeedForward) -> Tensor:
    up = layer.project(f"{prefix}_up", source, _inner("ffn", network.width, network.gated), bias=network.bias)
    activated = _activate(layer, f"{prefix}_activated", up, ("ffn", network.width), ())
    return layer.project(f"{prefix}_down", activated, source.shape[-1:], ("ffn",), bias=network.bias)


def _add_mixture(layer: LayerBuilder, mixture: MixtureOfExperts, source: Tensor) -> Tensor:
    """Routed experts, all on this rank: every token visits `top_k` of them.

    Scores and routing weights are fp32, as in DeepSeek-V3's code in Hugging Face transformers. The weights
    scale the activations inside the experts, as in Megatron Core's `TEGroupedMLP`, so that the backward pass
    need not keep the experts' results; the sum over experts is then linear. What goes through the experts is
    padded to their capacity (arXiv 2101.03961, section 2.2): a tensor holds that many bytes more per token.
    """
    hidden, top_k = source.shape[-1], ("top_k", mixture.top_k)
    logits = layer.tensor("router_logits", ("experts", mixture.experts), itemsize=FP32)
    layer.matmul("router", source, (("experts", mixture.experts),), ("hidden",), (logits,), kind="router")
    weights = layer.tensor("routing_weights", top_k, itemsize=FP32)
    # The probabilities the backward pass needs overwrite the logits.
    layer.add("routing", "softmax", (logits,), (weights,), space=logits.shape, saves=(logits,))
    dispatched = layer.tensor("dispatched", top_k, hidden, itemsize=layer.itemsize * layer.capacity)
    routing = Routing(mixture.top_k, mixture.groups, mixture.visited_groups)
    layer.add("dispatch", "elementwise", (source, weights), (dispatched,), routing=routing)
    inner = _inner(EXPERT_WIDTH, mixture.width, mixture.gated)
    up = layer.project("expert_up", dispatched, inner, experts=mixture.experts)
    activated = _activate(layer, "expert_activated", up, (EXPERT_WIDTH, mixture.width), (weights,))
    down = layer.project("expert_down", activated, (hidden,), (EXPERT_WIDTH,), experts=mixture.experts)
    parts: tuple[Tensor, ...] = (down,)
    if mixture.shared_width:
        parts = (down, _add_shared_expert(layer, mixture, source))
    combined = layer.tensor("mlp_output", hidden)
    layer.add("combine", "elementwise", parts, (combined,), space=down.shape, contracted=("top_k",))
    return combined


def _add_shared_expert(layer: LayerBuilder, mixture: MixtureOfExperts, source: Tensor) -> Tensor:
    """The expert every token visits; Qwen's is scaled by a sigmoid of one more projection."""
    result = _add_network(layer, "shared_expert", source, FeedForward(mixture.shared_width, mixture.gated))
    if not mixture.shared_gate:
        return result
    gate = layer.project("shared_expert_gate", source, ())
    scaled = layer.tensor("shared_expert_scaled", *result.shape[2:])
    layer.add("shared_expert_scale", "elementwise", (result, gate), (scaled,), saves=(result, gate))
    return scaled


def _inner(axis: str, width: int, gated: bool) -> Shape:
    """Columns of the first projection: both branches of a gated network in one product."""
    return (("branch", 2), (axis, width)) if gated else ((axis, width),)


def _activate(layer: LayerBuilder, name: str, up: Tensor, inner: tuple[str, int], scales: tuple[Tensor, ...]) -> Tensor:
    """The activation, with the gating product where there are two branches; it needs its inputs again."""
    rows = tuple(axis for axis in up.shape if axis[0] not in ("branch", inner[0]))
    activated = Tensor(f"{layer.name}/{name}", (*rows, inner), up.itemsize)
    layer.add(name, "activation", (up, *scales), (activated,), saves=(up, *scales))
    return activated
