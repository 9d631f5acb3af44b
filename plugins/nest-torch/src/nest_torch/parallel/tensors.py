"""Tensor and sequence parallelism of one module's blocks, as DTensor styles and functions on local shards."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.utils.stateless import _reparametrize_module

from nest.errors import InputError
from nest_torch.parallel.saving import store_rank_by_rank
from nest_torch.parallel.splits import TENSOR, Cut, Split
from nest_torch.parallel.stages import present
from nest_torch.parallel.tying import tied_names

SEQUENCE = 1
"""The dimension of activations along which sequence and context parallelism split them: batch, sequence, ..."""


def moved(source: Any, mesh: DeviceMesh, before: Any, after: Any) -> Any:
    """A local tensor laid out as `before` on a mesh of one dimension, laid out as `after`; gradients go back alike."""
    laid = source if isinstance(source, DTensor) else DTensor.from_local(source, mesh, [before], run_check=False)
    return laid.redistribute(mesh, [after]).to_local()


def entering(source: Any, mesh: DeviceMesh) -> Any:
    """Pass a whole tensor into a split product; the ranks' gradients of it are added up."""
    laid = source if isinstance(source, DTensor) else DTensor.from_local(source, mesh, [Replicate()], run_check=False)
    return laid.to_local(grad_placements=[Partial()])


def replace_forward(module: nn.Module, around: Callable[..., Any]) -> None:
    """Let `around(forward, *arguments)` stand for the forward pass of a module, below its hooks."""
    forward = module.forward

    @functools.wraps(forward)
    def replaced(*arguments: Any, **keywords: Any) -> Any:
        return around(forward, *arguments, **keywords)

    module.forward = replaced


def use_shards(module: nn.Module, local: Callable[[str, Any], Any], names: Sequence[str]) -> None:
    """Let the forward pass of a module see `local(name, parameter)` in place of its parameters `names`."""

    def around(forward: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        swapped = {name: local(name, getattr(module, name)) for name in names}
        with _reparametrize_module(module, swapped):
            return forward(*arguments, **keywords)

    replace_forward(module, around)


def resize(module: nn.Module, size: int, ranks: int) -> None:
    """Numbers of a module that count what is split count a rank's share from now on."""
    for name, value in vars(module).items():
        if type(value) is int and value == size:
            setattr(module, name, size // ranks)


@define
class Entrance:
    """The input of split products that one module calls, laid out once, so that their gradients are summed once.

    Attributes:
        mesh: of one dimension.
        before: layout of the input on it.
    """

    mesh: DeviceMesh
    before: Any
    _entered: tuple[Any, ...] = field(default=(), init=False)
    _laid: Any = field(default=None, init=False)

    def whole(self, source: Any) -> Any:
        """The whole of a local tensor on every rank; the same one as long as its numbers are the same."""
        entered = source, source._version, torch.is_grad_enabled()
        if not self._entered or source is not self._entered[0] or entered[1:] != self._entered[1:]:
            laid = DTensor.from_local(source, self.mesh, [self.before], run_check=False)
            self._entered, self._laid = entered, laid.redistribute(self.mesh, [Replicate()])
        return self._laid

    def forget(self, *_: Any) -> None:
        """Keep no tensor once the module is done."""
        self._entered, self._laid = (), None


class TensorParallel:
    """Splits the modules of one pipeline stage over the ranks of tensor parallelism.

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
        self._owners: set[str] = set()
        self._entrances: dict[nn.Module, Entrance] = {}
        self._counted: dict[nn.Module, set[str]] = {}

    def apply(self) -> None:
        """Split every module that is there."""
        tied = tied_names(self.model)
        for path, split in self.found.items():
            module = present(self.model, path)
            if module is None or split.expert:
                continue
            block = self._block(path)
            if split.cuts and self._splittable(split):
                self._split(module, path, split, block)
            elif self.sequence and block is not None and not split.among_split:
                if not self._beside_experts(path):
                    self._partial(module, split.whole)
            elif split.among_split and block is not None:
                self._partial(module, split.whole)
        for names in tied:
            _tie(self.model, names)
        if self.sequence:
            self._enter_and_leave()

    def shrink(self) -> None:
        """Leave of split parameters in blocks a share without numbers, and of what counts them a rank's number."""
        for path, split in self.found.items():
            module, block = present(self.model, path), self._block(path)
            if module is None or split.expert or block is None or not split.cuts:
                continue
            cuts = {name: made[0] for name, made in split.cuts.items()}
            owner = path.rpartition(".")[0]
            self._count_shares(present(self.model, owner if owner.startswith(block) else path), cuts)
            for name, cut in cuts.items():
                parameter = getattr(module, name)
                if not isinstance(module, nn.Linear) and not split.contracted:
                    resize(module, parameter.shape[cut.dim], self.ranks)
                share = parameter.narrow(cut.dim, 0, parameter.shape[cut.dim] // self.ranks)
                setattr(module, name, nn.Parameter(share, parameter.requires_grad))

    def _splittable(self, split: Split) -> bool:
        for cuts in split.cuts.values():
            for cut in cuts:
                if cut.axis in TENSOR and cut.axis != "vocab" and cut.size % self.ranks:
                    raise InputError(
                        f"{split.path}: {cut.size} {cut.axis} are not divisible by tp = {self.ranks}; plan with "
                        f"`constraints: [{cut.size} % tp == 0]`."
                    )
        return True

    def _split(self, module: nn.Module, path: str, split: Split, block: str | None) -> None:
        cuts = {name: made[0] for name, made in split.cuts.items()}
        for name, cut in cuts.items():
            if cut.pieces > 1:
                parameter = getattr(module, name)
                with torch.no_grad():
                    parameter.copy_(store_rank_by_rank(module, name, parameter, cut, self.ranks))
        owner = path.rpartition(".")[0]
        if block is not None:
            self._count_shares(present(self.model, owner if owner.startswith(block) else path), cuts)
            if owner == block or not owner.startswith(block):
                owner = path
        partial = Shard(SEQUENCE) if self.sequence and block is not None else Replicate()
        linear = isinstance(module, nn.Linear)
        if isinstance(module, nn.Embedding):
            style: Any = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
            parallelize_module(module, self.mesh, style, src_data_rank=None)
        elif linear and block is None:
            style = RowwiseParallel() if split.contracted else ColwiseParallel(output_layouts=Replicate())
            parallelize_module(module, self.mesh, style, src_data_rank=None)
        else:  # On shards: each call of PyTorch on DTensors takes a tenth of a millisecond of Python.
            self._local_product(module, split, cuts, partial, gather=block is None)
        if linear and not split.contracted and block is not None and (not self.sequence or owner == path):
            self._share_input(module, present(self.model, path.rpartition(".")[0]))
        elif self.sequence and block is not None and not split.contracted and owner not in self._owners:
            self._owners.add(owner)
            self._gather_input(present(self.model, owner))

    def _count_shares(self, owner: nn.Module | None, cuts: Mapping[str, Cut]) -> None:
        """Numbers of heads and of channels that the code of an attention splits by."""
        if owner is None or getattr(owner, "_counts_shares", False):
            return
        sizes = {cut.size for cut in cuts.values() if cut.axis in ("heads", "kv_heads")}
        fused = [(name, cut) for name, cut in cuts.items() if cut.pieces > 1]
        counted = self._counted.setdefault(owner, set())
        for name, value in list(vars(owner).items()):
            if name.endswith(("heads", "n_head")) and type(value) is int and value in sizes and name not in counted:
                counted.add(name)  # Half of the heads may be as many as the key-value heads.
                setattr(owner, name, value // self.ranks)
        for name, cut in fused:
            for module in owner.modules():
                if name in dict(module.named_parameters(recurse=False)):
                    whole = getattr(module, name).shape[cut.dim]
                    resize(owner, whole // cut.pieces, self.ranks)
                    owner._counts_shares = True
                    return

    def _local_product(
        self, module: nn.Module, split: Split, cuts: Mapping[str, Cut], after: Any, gather: bool
    ) -> None:
        """A product in a module that DTensor has no style for: it runs on shards, its sums are taken here."""
        mesh, ranks = self.mesh, self.ranks
        for name, cut in cuts.items():
            if not split.contracted and not isinstance(module, nn.Linear):  # Others count what comes out.
                resize(module, getattr(module, name).shape[cut.dim], ranks)
            _distribute(module, name, mesh, Shard(cut.dim))
        for name in split.whole:
            _distribute(module, name, mesh, Replicate())

        def local(name: str, parameter: Any) -> Any:
            if name in cuts:
                return parameter.to_local()
            # A bias that every rank adds to its partial sum.
            return parameter.to_local(grad_placements=[Partial()]) / ranks

        use_shards(module, local, [*cuts, *split.whole])

        def around(forward: Callable[..., Any], source: Any, *more: Any, **keywords: Any) -> Any:
            if split.contracted:
                return moved(forward(source, *more, **keywords), mesh, Partial(), after)
            made = forward(entering(source, mesh), *more, **keywords)
            return moved(made, mesh, Shard(made.dim() - 1), Replicate()) if gather else made

        replace_forward(module, around)

    def _partial(self, module: nn.Module, names: Sequence[str]) -> None:
        """Parameters that ranks hold whole and use on their share of the activations: gradients are added up."""
        for name in names:
            _distribute(module, name, self.mesh, Replicate())
        if names:
            use_shards(module, lambda _, parameter: parameter.to_local(grad_placements=[Partial()]), names)

    def _share_input(self, module: nn.Module, owner: nn.Module | None) -> None:
        """Let a product take its input as the other products of its owner do that have the same one."""
        assert owner is not None
        if owner not in self._entrances:
            before = Shard(SEQUENCE) if self.sequence else Replicate()
            self._entrances[owner] = Entrance(self.mesh, before)
            owner.register_forward_hook(self._entrances[owner].forget, always_call=True)
        whole = self._entrances[owner].whole

        def enter(_: nn.Module, arguments: tuple[Any, ...]) -> Any:
            return arguments if isinstance(arguments[0], DTensor) else (whole(arguments[0]), *arguments[1:])

        module.register_forward_pre_hook(enter, prepend=True)

    def _gather_input(self, owner: nn.Module | None) -> None:
        """The whole sequence in place of a rank's share, in front of the first split products."""
        assert owner is not None

        def gathered(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            def whole(source: Any) -> Any:
                laid = DTensor.from_local(source, self.mesh, [Shard(SEQUENCE)], run_check=False)
                return laid.redistribute(self.mesh, [Replicate()])

            return first_replaced(arguments, keywords, whole)

        owner.register_forward_pre_hook(gathered, with_kwargs=True)

    def _beside_experts(self, path: str) -> bool:
        """Return whether a module lies beside routed experts, which see the whole sequence."""
        parents = [split.path.rpartition(".")[0] for split in self.found.values() if split.expert]
        return any(path.startswith(f"{parent}.") for parent in parents)

    def _enter_and_leave(self) -> None:
        """Split the sequence in front of the first block, join it behind the last; and around routed experts."""
        first, last = (present(self.model, self.blocks[index]) for index in (0, -1))
        if first is not None:
            on_first_input(first, lambda source: moved(source, self.mesh, Replicate(), Shard(SEQUENCE)))
        if last is not None:
            on_output(last, lambda made: moved(made, self.mesh, Shard(SEQUENCE), Replicate()))
        for parent in dict.fromkeys(s.path.rpartition(".")[0] for s in self.found.values() if s.expert):
            module = present(self.model, parent)
            if module is not None:
                on_first_input(module, lambda source: moved(source, self.mesh, Shard(SEQUENCE), Replicate()))
                on_output(module, lambda made: moved(made, self.mesh, Replicate(), Shard(SEQUENCE)))

    def _block(self, path: str) -> str | None:
        return next((block for block in self.blocks if path == block or path.startswith(f"{block}.")), None)


def on_first_input(module: nn.Module, change: Callable[[Any], Any]) -> None:
    """Let a module see its first tensor of numbers as `change` makes it."""
    module.register_forward_pre_hook(
        lambda _, arguments, keywords: first_replaced(arguments, keywords, change), with_kwargs=True
    )


def on_output(module: nn.Module, change: Callable[[Any], Any]) -> None:
    """Let a module return its tensor, or the first of several, as `change` makes it."""

    def hook(_: nn.Module, __: Any, made: Any) -> Any:
        if isinstance(made, torch.Tensor):
            return change(made)
        return type(made)((change(made[0]), *made[1:]))

    module.register_forward_hook(hook)


def first_replaced(arguments: tuple[Any, ...], keywords: dict[str, Any], change: Callable[[Any], Any]) -> Any:
    """Arguments of a module with the first tensor of numbers changed: what flows from block to block."""
    given = list(arguments)
    for index, each in enumerate(given):
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            given[index] = change(each)
            return tuple(given), keywords
    for name, each in keywords.items():
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            return arguments, {**keywords, name: change(each)}
    return arguments, keywords


def _distribute(module: nn.Module, name: str, mesh: DeviceMesh, placement: Any) -> None:
    parameter = getattr(module, name)
    if not isinstance(parameter, DTensor):
        laid = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=None)
        setattr(module, name, nn.Parameter(laid, requires_grad=parameter.requires_grad))


def _tie(model: nn.Module, names: Sequence[str]) -> None:
    """Let the modules share a parameter again, of which each that splits it has made its own."""
    own = {name: model.get_parameter(name) for name in names}
    laid = [name for name, parameter in own.items() if isinstance(parameter, DTensor)]
    kept = laid[0] if laid else names[0]
    for name in names:
        if name in laid and own[name].placements != own[kept].placements:
            raise InputError(f"{kept} and {name} are one parameter, but the plan splits them in two ways.")
        path, _, last = name.rpartition(".")
        setattr(model.get_submodule(path), last, own[kept])
