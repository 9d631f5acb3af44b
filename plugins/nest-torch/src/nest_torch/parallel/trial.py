"""A trial before training starts: one or two micro-batches of a copy of the module, split as planned and in one piece.

Each rank runs all pipeline stages of its replica one after the other, so that a stage that fails leaves no other rank
waiting. Where losses, gradients, buffers or saved parameters differ, or nobody can tell, every rank refuses.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from sys import float_info
from typing import Any

import torch
import torch.distributed as dist
from attrs import evolve, frozen
from torch import nn
from torch.distributed.tensor.experimental import implicit_replication

from nest.deployment import Deployment
from nest.errors import InputError
from nest_torch.parallel import agreement, layout, saving, sharding, stages, statistics
from nest_torch.parallel.flow import first_tensor
from nest_torch.parallel.samples import drawn, observed
from nest_torch.parallel.splits import Split
from nest_torch.tracing import quiet

ALIKE = {torch.float64: 1e-5, torch.float32: 1e-3}
"""Relative differences that sums in another order explain, by number format; code may narrow numbers on its way."""

LARGE = 2**26
"""Parameters of a copy above which a trial leaves repeated layers out."""

NOISE = 0.05
"""Added to parameters: what a module sets to 0 or 1 would hide errors."""

UNCHECKED = "Check a small module of the same code with `nest torch check`, then pass check=False"


@frozen
class Subject:
    """A module and what a plan says of it.

    Attributes:
        model: the module.
        shape: the plan in the terms of frameworks.
        blocks: by layer of the plan, the path of its module.
        split: what is split, by path.
        inputs: example inputs by name.
        placed: whether tensor parallelism places tensors for code that does not run on shares.
    """

    model: nn.Module
    shape: Deployment
    blocks: Mapping[str, str]
    split: Mapping[str, Split]
    inputs: Mapping[str, Any]
    placed: bool = False


@frozen
class _Alone:
    """Results of one process alone on the samples of this rank, and its state afterwards."""

    inputs: Mapping[str, Any]
    targets: Any
    loss: Any
    gradients: Mapping[str, Any]
    buffers: Mapping[str, Any]
    tolerance: float


Build = Callable[[Subject], Any]
"""Makes a `Parallel` of all runs of layers on this rank."""


def tried(subject: Subject, build: Build, meshes: layout.Meshes, device: Any) -> None:
    """Refuse a plan under which the module does not train as in one process. Random states stay as they were.

    Raises:
        InputError: it does not, or this cannot be tried; on every rank.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), quiet():
        agreement.together(lambda: _same_weights(subject.model))
        large = sum(p.numel() for p in subject.model.parameters()) > LARGE
        copied, alone = _begun(_shrunk(subject) if large else None, subject, meshes, device)
        agreement.together(
            lambda: _compared(copied, build, meshes, alone), f"the module cannot run under {_under(subject.shape)}"
        )


def _begun(smaller: Subject | None, subject: Subject, meshes: layout.Meshes, device: Any) -> tuple[Subject, "_Alone"]:
    """A copy to be split and what one process makes of it, with fewer layers where the module runs so."""
    if smaller is not None:
        with suppress(InputError):
            return _begun(None, smaller, meshes, device)
    copied, alone = agreement.together(lambda: _alone(subject, meshes, device), remedy=UNCHECKED)
    return evolve(subject, model=copied), alone


def _under(shape: Deployment) -> str:
    degrees = {"pp": shape.stages, "dp": shape.data_parallel, **shape.degrees}
    named = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1 and name != "batch"]
    named += [f"ZeRO {shape.zero[0]}"] if shape.zero[0] else []
    named += ["recompute"] if "full" in shape.recompute else []
    return ", ".join(named) or "this plan"


def _same_weights(model: nn.Module) -> None:
    """Refuse weights that ranks did not make alike."""
    own = [(name, each) for name, each in model.named_parameters() if each.device.type != "meta"]
    if not own:
        return
    sums = torch.stack([agreement.ordered(each) for _, each in own])
    least, most = sums.clone(), sums.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    for (name, _), low, high in zip(own, least.tolist(), most.tolist(), strict=True):
        if low != high:
            raise InputError(f"{name} differs between ranks; make the module from the same seed on every rank.")


def _alone(subject: Subject, meshes: layout.Meshes, device: Any) -> tuple[nn.Module, _Alone]:
    """A copy of the module to be split, and what one process makes of it."""
    torch.manual_seed(0)  # The same noise on every rank.
    model = copied(subject.model, device)
    error: Exception | None = None
    for precision in ALIKE:
        model = model.to(precision)
        try:
            bounds, sizes = observed(model, subject.inputs, precision, device)
            break
        except RuntimeError as raised:  # Some kernels have no wide numbers.
            error = raised
    else:
        assert error is not None
        raise error
    if not sizes or sizes[0] != 2:
        raise InputError(
            "apply cannot try this module: the first tensor that it returns has no row for each sample. Return logits, "
            f"and compute the loss in `loss`. {UNCHECKED}."
        )
    count = _count(subject.shape)
    rows = count * (subject.shape.micro_batch // subject.shape.degree("batch"))

    def samples(data_rank: int) -> tuple[dict[str, Any], Any]:
        generator = torch.Generator().manual_seed(1 + data_rank)
        given = drawn(subject.inputs, rows, bounds, precision, generator)
        targets = torch.randn((rows, *sizes[1:]), generator=generator, dtype=precision).to(device)
        return {n: e.to(device) if isinstance(e, torch.Tensor) else e for n, e in given.items()}, targets

    dense = meshes.dense
    given, targets = samples(agreement.data_rank(meshes))
    _settle(model, given)
    reference = copy.deepcopy(model)
    loss = torch.zeros((), dtype=precision, device=device)
    for part, target in _micro_batches(given, targets, count):
        made = distance(first_tensor(reference(**part)), target) / count
        made.backward()
        loss += made.detach()
    gradients = {
        name: torch.zeros_like(each) if each.grad is None else each.grad
        for name, each in reference.named_parameters()
        if each.requires_grad
    }
    for each in (loss, *gradients.values()):
        for group in ("dp_replicate", "dp_shard"):
            dist.all_reduce(each, group=dense[group].get_group())
        each /= subject.shape.data_parallel
    if not all(bool(torch.isfinite(each).all()) for each in (loss, *gradients.values())):
        raise InputError(f"apply cannot try this module: numbers overflow on random samples. {UNCHECKED}.")
    changed = any(not torch.equal(one, other) for one, other in zip(model.buffers(), reference.buffers(), strict=True))
    if changed:  # What one process has seen after the samples of all ranks.
        reference = copy.deepcopy(model)
        with torch.no_grad():
            for data_rank in range(subject.shape.data_parallel):
                for part, _ in _micro_batches(*samples(data_rank), count):
                    reference(**part)
    buffers = {name: each.detach() for name, each in reference.named_buffers()}
    return model, _Alone(given, targets, loss, gradients, buffers, ALIKE[precision])


def _count(shape: Deployment) -> int:
    """Micro-batches of a trial: two show how gradients are added up."""
    return min(2, shape.micro_batches)


def _settle(model: nn.Module, given: Mapping[str, Any]) -> None:
    """Leave a module in a mode in which it draws no random numbers."""

    def made(seed: int) -> Any:
        torch.manual_seed(seed)
        with torch.no_grad():
            return first_tensor(copy.deepcopy(model)(**given))

    if torch.equal(made(1), made(2)):
        return
    model.eval()
    if not torch.equal(made(1), made(2)):
        raise InputError(f"apply cannot try this module: it draws random numbers, also after eval(). {UNCHECKED}.")


def distance(made: Any, targets: Any) -> Any:
    """The loss of a trial, whatever the module's own: half the mean squared distance."""
    if not made.is_floating_point():
        raise InputError("apply cannot train this module: the first tensor that it returns holds no real numbers.")
    return (made - targets).pow(2).mean() / 2


def _micro_batches(given: Mapping[str, Any], targets: Any, count: int) -> Iterator[tuple[dict[str, Any], Any]]:
    parts = {n: e.chunk(count) if isinstance(e, torch.Tensor) else [e] * count for n, e in given.items()}
    for index, target in enumerate(targets.chunk(count)):
        yield {name: part[index] for name, part in parts.items()}, target


def copied(model: nn.Module, device: Any) -> nn.Module:
    """A copy with noise on its parameters, and without dropout; on the meta device it gets numbers."""
    bare = copy.deepcopy(model)
    meta = any(each.device.type == "meta" for each in bare.parameters())
    if meta:
        bare = bare.to_empty(device=device)
    with torch.no_grad():
        for each in (*bare.buffers(), *bare.parameters()) if meta else ():
            each.zero_()
        for each in bare.parameters():
            each.grad = None
            if each.is_floating_point():
                each.add_((torch.randn(each.shape) * NOISE).to(each))
    for module in bare.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return bare


def _compared(subject: Subject, build: Build, meshes: layout.Meshes, alone: _Alone) -> None:
    """Refuse what differs when the copy is split as planned."""
    shape, model = subject.shape, subject.model
    state = {name: each.clone() for name, each in model.state_dict().items() if isinstance(each, torch.Tensor)}
    named = list(model.named_parameters(remove_duplicate=False))
    first = {id(each): name for name, each in reversed(named)}
    names = {name: first[id(each)] for name, each in named}
    parallel = build(subject)
    count = _count(shape)
    given, targets = parallel.shared(dict(alone.inputs), alone.targets)
    total: Any = 0.0
    with statistics.merged(parallel.stages, meshes), implicit_replication():
        for index, (part, target) in enumerate(_micro_batches(given, targets, count)):
            for stage in parallel.stages:
                sharding.before_backward(stage, shape.zero[0], index == count - 1)
            loss = distance(through(parallel.stages, part), target) / count
            loss.backward()
            total = total + loss.detach()
    sharding.complete_gradients(parallel.parameters(), meshes)
    found = [
        *_gradients_apart(parallel.stages, alone, names),
        *_loss_apart(float(parallel.mean(total)), alone),
        *_state_apart(parallel.stages, alone, state),
    ]
    if found:
        more = f" ({len(found) - 1} more differ)" if len(found) > 1 else ""
        raise InputError(
            f"under {_under(shape)} the module does not train as in one process: {found[0]}{more}. "
            f"{agreement.CHANGE}; `nest torch check` names the first module that differs."
        )


def through(parts: Sequence[nn.Module], given: Mapping[str, Any]) -> Any:
    """The first tensor that comes out of all stages in a row."""
    received: Any = ()
    for stage in parts:
        made = stage(*received, **given)
        received = made if isinstance(made, tuple) and isinstance(stage, stages.Stage) else (made,)
    return first_tensor(received[0])


def _gradients_apart(parts: Sequence[nn.Module], alone: _Alone, names: Mapping[str, str]) -> list[str]:
    """Parameters whose gradients differ, the most different first."""
    seen: dict[str, Any] = {}
    for stage in parts:
        met: set[int] = set()
        for path, owner, name, each in saving.owners(stage):
            if id(each) in met or not isinstance(each, nn.Parameter) or each.grad is None:
                continue
            met.add(id(each))
            gradient = saving.whole(owner, name, each.grad)
            seen[names[path]] = gradient + seen.get(names[path], 0)
    scale = sum(float(each.pow(2).sum()) for each in alone.gradients.values()) ** 0.5
    rows = []
    for name, expected in alone.gradients.items():
        apart = float((seen.get(name, torch.zeros_like(expected)) - expected).norm())
        relative = apart / max(float(expected.norm()), 1e-3 * scale, float_info.min)
        if not relative <= alone.tolerance:
            rows.append((-relative, name))
    return [f"the gradient of {name} is {-relative:.3g} of its norm off" for relative, name in sorted(rows)]


def _loss_apart(loss: float, alone: _Alone) -> list[str]:
    expected = float(alone.loss)
    same = abs(loss - expected) <= alone.tolerance * abs(expected)
    return [] if same else [f"the loss is {loss:.6g} where one process has {expected:.6g}"]


def _state_apart(parts: Sequence[nn.Module], alone: _Alone, before: Mapping[str, Any]) -> list[str]:
    """Parameters that would be saved with other numbers, and buffers that hold others."""
    saved = saving.saved(parts)
    found = []
    for name, expected in ({**before, **{n: e for n, e in alone.buffers.items() if n in before}}).items():
        each = saved.get(name)
        if each is None:
            found.append(f"{name} would not be saved")
        elif each.shape != expected.shape or not torch.allclose(
            each.double(), expected.double(), alone.tolerance, alone.tolerance, equal_nan=True
        ):
            found.append(f"{name} would be saved with other numbers")
    return found


def _shrunk(subject: Subject) -> Subject | None:
    """The module with two layers of each kind in each run of layers; None: nothing can be left out.

    The dropped layers are never copied.
    """
    model, blocks = subject.model, subject.blocks
    kept: dict[str, str] = {}
    runs = []
    for run in subject.shape.runs:
        kinds: dict[Any, list[str]] = {}
        for name in run.layers:
            if name in blocks:
                block = model.get_submodule(blocks[name])
                kind = (type(block), tuple((n, p.shape) for n, p in block.named_parameters()))
                kinds.setdefault(kind, []).append(name)
        chosen = {name for names in kinds.values() for name in names[:2]}
        kept |= {name: blocks[name] for name in run.layers if name in chosen}
        runs.append(evolve(run, layers=tuple(name for name in run.layers if name in chosen or name not in blocks)))
    parents = dict.fromkeys(path.rpartition(".")[0] for path in blocks.values())
    lists = (nn.ModuleList, nn.Sequential)
    if len(kept) == len(blocks) or not all(isinstance(model.get_submodule(path), lists) for path in parents):
        return None
    dropped = {id(model.get_submodule(path)): None for path in blocks.values() if path not in kept.values()}
    smaller = copy.deepcopy(model, dict(dropped))
    renamed: dict[str, str] = {}
    for parent in parents:
        held = smaller.get_submodule(parent)._modules
        left = [(key, each) for key, each in held.items() if each is not None]
        renamed |= {
            f"{parent}.{key}".lstrip("."): f"{parent}.{index}".lstrip(".") for index, (key, _) in enumerate(left)
        }
        held.clear()
        held.update({str(index): each for index, (_, each) in enumerate(left)})

    def moved(path: str) -> str | None:
        block = next((b for b in blocks.values() if path == b or path.startswith(f"{b}.")), None)
        if block is None:
            return path
        return renamed[block] + path.removeprefix(block) if block in kept.values() else None

    split = {new: evolve(each, path=new) for path, each in subject.split.items() if (new := moved(path)) is not None}
    return evolve(
        subject,
        model=smaller,
        shape=evolve(subject.shape, runs=tuple(runs)),
        blocks={name: renamed[path] for name, path in kept.items()},
        split=split,
    )
