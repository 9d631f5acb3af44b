"""Expert parallelism: tokens travel to the ranks that hold the experts they chose, and back (GShard, arXiv 2006.16668).

Experts are a module whose parameters have the experts in front, called with tokens, the experts that each chose and
their shares, as transformers' are.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from nest.deployment import Deployment
from nest.errors import InputError
from nest_torch.parallel.layout import Meshes
from nest_torch.parallel.saving import store_rank_by_rank
from nest_torch.parallel.splits import EXPERTS, Cut, Split
from nest_torch.parallel.stages import present
from nest_torch.parallel.tensors import entering, moved, replace_forward, resize, use_shards


def split_experts(model: nn.Module, found: Mapping[str, Split], meshes: Meshes) -> None:
    """Split the routed experts of a module over the ranks of its plan.

    Raises:
        InputError: they do not divide evenly.
    """
    if meshes.experts is None:
        return
    for path, split in found.items():
        module = present(model, path)
        if split.expert and module is not None:
            _split(module, split, meshes)


def _split(module: nn.Module, split: Split, meshes: Meshes) -> None:
    shape = meshes.shape
    assert meshes.experts is not None
    mesh = meshes.experts["ep", "etp"]
    count = next((cut.size for cuts in split.cuts.values() for cut in cuts if cut.axis == EXPERTS), 0)
    if not count:
        raise InputError(f"{split.path} holds routed experts in a form that nest_torch.apply does not split.")
    found = {
        name: _of_experts(split, name, parameter, count) for name, parameter in module.named_parameters(recurse=False)
    }
    for name, cuts in found.items():
        placements: list[Any] = [Replicate(), Replicate()]
        parameter = getattr(module, name)
        laid = parameter.detach()
        if shape.etp > 1 and all(cut.axis == EXPERTS for cut in cuts):
            raise InputError(f"{split.path}: each rank of etp would add {name} once more; plan with etp 1.")
        for cut in cuts:
            over_experts = cut.axis == EXPERTS
            ranks = shape.ep if over_experts else shape.etp
            if cut.size % ranks:
                raise InputError(f"{split.path}: {cut.size} {cut.axis} do not divide evenly over {ranks} ranks.")
            placements[0 if over_experts else 1] = Shard(cut.dim)
            laid = store_rank_by_rank(module, name, laid, cut, ranks)
            resize(module, cut.size, ranks)
        laid = distribute_tensor(laid, mesh, placements, src_data_rank=None)
        setattr(module, name, nn.Parameter(laid, requires_grad=parameter.requires_grad))
    scale = _gradient_scale(shape)
    use_shards(module, lambda _, parameter: _Scaled.apply(parameter.to_local(), scale), list(found))
    replace_forward(module, _dispatched(module, count, meshes))


def _of_experts(split: Split, name: str, parameter: Any, count: int) -> tuple[Cut, ...]:
    """The cuts of a parameter, the first dimension of which counts experts, also where the graph cannot tell."""
    cuts = split.cuts.get(name, ())
    if any(cut.axis == EXPERTS for cut in cuts):
        return cuts
    if parameter.dim() == 0 or parameter.shape[0] != count:
        raise InputError(f"{split.path}: the first dimension of {name} does not count the {count} experts.")
    return (Cut(0, EXPERTS, count, 1), *cuts)


def _gradient_scale(shape: Deployment) -> float:
    """Factor that turns the gradients arriving at the ranks of an expert into the mean over data-parallel ranks.

    Each of `ep` ranks brings tokens of its own; FSDP takes the mean over the ranks that hold the same experts only.
    Where tensor-parallel ranks are more than expert-tensor-parallel ones, each token arrives several times.
    """
    ranks = shape.data_parallel * shape.cp
    copies = shape.world_size // (shape.stages * shape.ep * shape.etp)
    return copies / ranks / (shape.tp // shape.etp)


class _Scaled(torch.autograd.Function):  # type: ignore[misc]
    """A tensor as it is, whose gradient is scaled."""

    @staticmethod
    def forward(context: Any, source: Any, scale: float) -> Any:
        context.scale = scale
        return source.view_as(source)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient * context.scale, None


def _dispatched(module: nn.Module, experts: int, meshes: Meshes) -> Callable[..., Any]:
    """The forward pass of experts over the ranks of `ep`, each expert's own products over those of `etp`."""
    assert meshes.experts is not None
    group, inner = meshes.experts["ep"].get_group(), meshes.experts["etp"]
    ranks = meshes.shape.ep
    own = experts // ranks

    def products(forward: Callable[..., Any], tokens: Any, chosen: Any, shares: Any) -> Any:
        if meshes.shape.etp == 1:
            return forward(tokens, chosen, shares)
        return moved(forward(entering(tokens, inner), chosen, shares), inner, Partial(), Replicate())

    def around(forward: Callable[..., Any], tokens: Any, chosen: Any, shares: Any) -> Any:
        if ranks == 1:
            return products(forward, tokens, chosen, entering(shares, inner) if meshes.shape.etp > 1 else shares)
        flat = chosen.reshape(-1)
        order = torch.argsort(flat // own, stable=True)
        source = order // chosen.shape[-1]
        there, back = _counts(flat // own, ranks, group)
        arrived = all_to_all_single_autograd(tokens[source], there, back, group)
        which = flat.new_empty(sum(there))
        dist.all_to_all_single(which, flat[order].contiguous(), there, back, group=group)
        ones = arrived.new_ones(arrived.shape[0], 1, dtype=shares.dtype)
        made = products(forward, arrived, (which % own).unsqueeze(-1), ones)
        # Every rank takes part in every exchange of the backward pass, whether or not a token came to its experts.
        made = made + arrived * 0 + sum(parameter.reshape(-1)[0] for parameter in _local(module)) * 0
        home = all_to_all_single_autograd(made, back, there, group)
        weighted = home * shares.reshape(-1)[order].unsqueeze(-1).to(home.dtype)
        return torch.zeros_like(tokens).index_add(0, source, weighted)

    return around


def _counts(homes: Any, ranks: int, group: Any) -> tuple[list[int], list[int]]:
    """How many tokens come from each rank, and how many go there; as many everywhere if nobody is there."""
    if dist.get_backend(group) == "fake":
        share = [(homes.numel() + rank) // ranks for rank in range(ranks)]
        return share, share
    sent = torch.bincount(homes, minlength=ranks)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received.tolist(), sent.tolist()


def _local(module: nn.Module) -> list[Any]:
    found = list(module.parameters(recurse=False))
    return [each.to_local() if isinstance(each, DTensor) else each for each in found]
