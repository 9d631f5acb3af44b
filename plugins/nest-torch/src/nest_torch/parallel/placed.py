"""Tensor and sequence parallelism of unchanged code: DTensors with a placement, which each operator propagates.

Code sees the sizes of the whole, so views, splits and norms over all heads are right. What an operator sums over, it
adds up over ranks. Tensors of the code's own, such as masks, are the same on every rank. The host spends time on
placements, and an operator that needs a whole axis gathers it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from nest_torch.parallel.placements import Dense, placed, placed_as, whole
from nest_torch.parallel.splits import TENSOR, Cut, Split
from nest_torch.parallel.stages import present
from nest_torch.parallel.tensors import SEQUENCE, on_first_input, on_output, replace_forward, use_shards

WHOLE = (nn.modules.conv._ConvNd, nn.RNNBase, nn.modules.batchnorm._NormBase)
"""Kinds of modules that run whole on every rank."""


class Placed:
    """Places the parameters of one pipeline stage over the ranks of tensor parallelism.

    Args:
        model: holds them.
        mesh: of one dimension.
        found: what is split of each module, by path (`nest_torch.parallel.splits`).
        blocks: paths of the repeated layers, in order.
        sequence: whether the ranks also split the sequence within blocks.
    """

    def __init__(
        self, model: nn.Module, mesh: DeviceMesh, found: Mapping[str, Split], blocks: Sequence[str], sequence: bool
    ) -> None:
        self.model, self.mesh, self.found, self.blocks, self.sequence = model, mesh, found, blocks, sequence
        self.ranks = mesh.size()
        self._made: dict[int, Any] = {}
        self._replaced: list[Any] = []  # So that no other parameter takes an address.

    def apply(self) -> None:
        """Place every parameter, and what flows in and out of the modules that are split."""
        islands = tuple(path for path, module in self.model.named_modules() if self._is_island(path, module))
        for path, module in list(self.model.named_modules()):
            if path in islands:
                self._keep_whole(module)
            if path.startswith(tuple(f"{island}." for island in islands)) or path in islands:
                continue
            split = self.found.get(path)
            cuts = dict(self._cuts(split)) if split else {}
            for name, parameter in list(module.named_parameters(recurse=False)):
                self._place(module, name, parameter, cuts.get(name))
            if cuts and split:
                self._meet(module, path, split, cuts)
        for block in (self.model, *(present(self.model, path) for path in self.blocks)):
            if block is not None:
                replace_forward(block, self._with_attention)
        if self.sequence:
            self._enter_and_leave()
        self.model.register_forward_hook(lambda _, __, made: tree_map(whole, made))

    def _is_island(self, path: str, module: nn.Module) -> bool:
        """Return whether a module runs whole on every rank: routed experts, and kernels without a rule of DTensor."""
        return isinstance(module, WHOLE) or (path in self.found and self.found[path].expert)

    def _cuts(self, split: Split) -> Iterator[tuple[str, Cut]]:
        for name, cuts in split.cuts.items():
            cut = cuts[0]
            if cut.axis in TENSOR and cut.size % self.ranks == 0:
                yield name, cut

    def _place(self, module: nn.Module, name: str, parameter: Any, cut: Cut | None) -> None:
        """Distribute a parameter; one that modules share stays shared."""
        if isinstance(parameter, DTensor):
            return
        if id(parameter) not in self._made:
            laid = distribute_tensor(
                parameter.detach(), self.mesh, [Shard(cut.dim) if cut else Replicate()], src_data_rank=None
            )
            self._made[id(parameter)] = nn.Parameter(laid, requires_grad=parameter.requires_grad)
            self._replaced.append(parameter)
        setattr(module, name, self._made[id(parameter)])

    def _meet(self, module: nn.Module, path: str, split: Split, cuts: Mapping[str, Cut]) -> None:
        """Give a split product the placement of its input, and its output the planned one."""
        inside = any(path == block or path.startswith(f"{block}.") for block in self.blocks)
        joined: Placement = Shard(SEQUENCE) if self.sequence and inside else Replicate()
        if isinstance(module, nn.Embedding):
            on_output(module, lambda made: Dense.apply(placed_as(made, Replicate())))
        elif split.contracted:
            on_output(module, lambda made: placed_as(made, joined))
        else:
            on_first_input(module, lambda source: placed_as(placed(source, self.mesh), Replicate()))
            if any(cut.pieces > 1 for cut in cuts.values()) or not inside:
                on_output(module, lambda made: placed_as(made, Replicate()))

    def _keep_whole(self, module: nn.Module) -> None:
        names = [name for name, _ in module.named_parameters(recurse=False)] if isinstance(module, WHOLE) else []
        for name in names:  # Other code may use them too, on placed tensors.
            self._place(module, name, getattr(module, name), None)
        if names:
            use_shards(module, lambda _, parameter: parameter.to_local(), names)
        module.register_forward_pre_hook(
            lambda _, arguments, keywords: (tree_map(whole, arguments), tree_map(whole, keywords)), with_kwargs=True
        )
        module.register_forward_hook(lambda _, __, made: tree_map(lambda each: placed(each, self.mesh), made))

    def _with_attention(self, forward: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        with _Attention(self.mesh):
            return forward(*arguments, **keywords)

    def _enter_and_leave(self) -> None:
        """Split the sequence in front of the first block, join it behind the last."""
        for block in self.blocks:
            module = present(self.model, block)
            if module is not None:
                on_first_input(module, lambda source: placed_as(placed(source, self.mesh), Shard(SEQUENCE)))
        last = present(self.model, self.blocks[-1])
        if last is not None:
            on_output(last, lambda made: placed_as(made, Replicate()))


class _Attention(TorchFunctionMode):  # type: ignore[misc]
    """Attention kernels on the heads of each rank."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self._mesh = mesh

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        if function is torch.nn.functional.scaled_dot_product_attention:
            return self._attention(function, *arguments, **keywords)
        return function(*arguments, **keywords)

    def _attention(
        self, function: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, *more: Any, **keywords: Any
    ) -> Any:
        if not any(isinstance(each, DTensor) for each in (query, key, value)):
            return function(query, key, value, attn_mask, *more, **keywords)
        dim, three = query.dim() - 3, (query, key, value)
        split = dim > 0 and all(each.shape[dim] % self._mesh.size() == 0 for each in three)
        placement: Placement = Shard(dim) if split else Replicate()
        # The strides of a gradient must be those that its placed tensor tells.
        laid = (placed_as(Dense.apply(placed(each, self._mesh)).contiguous(), placement).contiguous() for each in three)
        local = [Dense.apply(each.to_local()) for each in laid]
        if attn_mask is not None:
            attn_mask = self._share(attn_mask, placement)
        made = function(*local, attn_mask, *more, **keywords)
        return DTensor.from_local(made.contiguous(), self._mesh, [placement], run_check=False)

    def _share(self, mask: Any, placement: Placement) -> Any:
        """A rank's part of a mask that has a row for each head; else all of it, whose gradients ranks add up."""
        if not isinstance(mask, DTensor):
            mask = DTensor.from_local(mask, self._mesh, [Replicate()], run_check=False)
        if placement.is_shard() and mask.dim() >= 3 and mask.shape[-3] > 1:
            return placed_as(mask, Shard(mask.dim() - 3)).to_local()
        grads: Any = [Partial()] if placement.is_shard() and mask.requires_grad else None
        return placed_as(mask, Replicate()).to_local(grad_placements=grads)
