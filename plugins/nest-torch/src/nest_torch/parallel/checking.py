"""Check that a plan trains a module as one process does: a few steps of both, on local processes on CPUs."""

import datetime
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from attrs import frozen
from torch import nn

from nest.errors import InputError
from nest.spec import PlanDocument
from nest_torch.parallel import agreement, layout, stages
from nest_torch.parallel.applying import apply
from nest_torch.parallel.execution import Execution, differences
from nest_torch.parallel.flow import first_tensor
from nest_torch.parallel.samples import drawn, observed
from nest_torch.parallel.scaling import scaled
from nest_torch.parallel.training import Parallel, cross_entropy

STEPS, TOLERANCE, MOST_RANKS, SECONDS = 5, 1e-5, 16, 600.0
"""Of a check: steps, the relative difference it accepts, ranks it starts at most, and seconds it waits for them."""

RATE = 1e-3
"""Learning rate of AdamW, large enough for every step to change the loss by far more than the tolerance."""

Factory = Callable[[], Any]


def check(
    model_factory: Factory,
    plan: Any,
    example_inputs: Any = None,
    *,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
    precision: Any = torch.float64,
    most_ranks: int = MOST_RANKS,
    seconds: float = SECONDS,
) -> Execution:
    """Train a module for a few steps as a plan says, and in one process, and compare losses and gradients.

    Each rank is a process of this machine without an accelerator (gloo). Plans of more than `most_ranks` ranks are run
    with the same strategies on fewer. Numbers are wide, so that what differs is the plan and not the order of sums.

    Args:
        model_factory: makes the module, or the module and its example inputs. Dropout is switched off.
        plan: a plan, as a document, a mapping, or the path of its file.
        example_inputs: one sample or more, by name or in order, on the meta device or with numbers; left out, as many
            token ids as the plan's sequence is long.
        steps: of AdamW.
        tolerance: relative difference of losses and gradient norms that is accepted.
        precision: number format of the weights.
        most_ranks: processes that are started at most.
        seconds: after which a training that has not ended counts as failed.

    Raises:
        InputError: the plan cannot be applied to the module, or a rank failed.
    """
    document = scaled(layout.plan_document(plan), most_ranks)
    shape = layout.deployment_of(document)
    task = _Task(model_factory, document, example_inputs, steps, precision, seconds)
    with TemporaryDirectory(prefix="nest-") as folder:
        results = _run(task, Path(folder), shape.world_size)
    expected, ranks = results[0], results[1:]
    found = differences(expected, ranks, tolerance)
    return Execution(
        document,
        shape.world_size,
        tuple(ranks[0]["losses"]),
        tuple(expected["losses"]),
        tuple(ranks[0]["norms"]),
        tuple(expected["norms"]),
        tuple(found),
        tolerance,
    )


@frozen
class _Task:
    factory: Factory
    plan: PlanDocument
    inputs: Any
    steps: int
    precision: Any
    seconds: float


def _run(task: _Task, folder: Path, ranks: int) -> list[dict[str, Any]]:
    """Reports of one process alone and of each rank; the former first."""
    try:
        pickle.dumps(task)
    except Exception:
        raise InputError(
            "the module is made in another process, which imports what makes it; give check a function at the top of a "
            "module, or its place, such as `models.py:make_model`."
        ) from None
    first = multiprocessing.get_context("spawn").Process(target=_first, args=(task, folder, ranks))
    first.start()
    try:
        first.join(task.seconds)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.pid or 0, signal.SIGKILL)
        first.kill()
        first.join()
    return [_result(folder, rank, task.seconds) for rank in _failed_first(folder, ranks)]


def _first(task: _Task, folder: Path, ranks: int) -> NoReturn:
    """Import what is needed and make the module once; the processes that train are forks.

    PyTorch's threads do not outlive a fork, so nothing is differentiated here.
    """
    os.setsid()
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        model, inputs, precision = _made(task)
        batches = _batches(task, model, inputs, precision)
    except BaseException as error:  # Whatever the module's code raises is the caller's to hear.
        _failed(folder, -1, error)
        os._exit(1)
    children, parent, end = {}, os.getppid(), float("inf")
    for rank in range(-1, ranks):
        child = os.fork()
        if child == 0:
            _child(task, model, inputs, batches, folder, rank, ranks)
        children[child] = rank
    while children and time.monotonic() < end:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            if not _told(folder, children.pop(child), os.waitstatus_to_exitcode(status)):
                end = min(end, time.monotonic() + 1.0)  # What the others have to say of it.
            continue
        if os.getppid() != parent:  # Nobody waits for the answer any more.
            break
        time.sleep(0.05)
    if children:
        os.killpg(0, signal.SIGKILL)  # A rank that waits for one that is gone would be waited for in turn.
    os._exit(0)


def _told(folder: Path, rank: int, code: int) -> bool:
    """Return whether an ended process left a result; note how it ended if it could not say why."""
    if (folder / f"{rank}.pickle").exists():
        return True
    if not (folder / f"{rank}.failed").exists():
        how = f"signal {-code} ({signal.strsignal(-code)}) ended it" if code < 0 else f"it left with exit code {code}"
        _failed(folder, rank, InputError(how))
    return False


def _failed_first(folder: Path, ranks: int) -> list[int]:
    """Every process; a rank that failed by itself is told before those that waited for it."""
    failed = [rank for rank in range(-1, ranks) if (folder / f"{rank}.failed").exists()]
    if failed:
        texts = {rank: (folder / f"{rank}.failed").read_text() for rank in failed}
        times = {rank: (folder / f"{rank}.failed").stat().st_mtime_ns for rank in failed}
        return [min(failed, key=lambda rank: ("by peer" in texts[rank], times[rank]))]
    return list(range(-1, ranks))


def _result(folder: Path, rank: int, seconds: float) -> dict[str, Any]:
    who = f"rank {rank}" if rank >= 0 else "one process alone"
    failed = folder / f"{rank}.failed"
    if failed.exists():
        raise InputError(f"{who} failed: {failed.read_text()}")
    path = folder / f"{rank}.pickle"
    if not path.exists():
        raise InputError(f"{who} did not end in {seconds:g} s; allow more `seconds`, or check a smaller module.")
    loaded: dict[str, Any] = pickle.loads(path.read_bytes())
    return loaded


def _child(task: _Task, model: nn.Module, inputs: Any, batches: Any, folder: Path, rank: int, ranks: int) -> NoReturn:
    # The first threads of a fork that compute race for its new pool of threads; PyTorch aborts one that finds none.
    torch.set_num_threads(1)
    try:
        if rank < 0:
            found = _alone(task, model, batches)
        else:
            found = _together(task, model, inputs, batches, folder, rank, ranks)
        part = folder / f"{rank}.part"
        part.write_bytes(pickle.dumps(found))
        part.rename(folder / f"{rank}.pickle")
        # Who leaves closes its connections, which others may still read from.
        while any(not (folder / f"{other}.pickle").exists() for other in range(ranks)):
            time.sleep(0.02)
    except BaseException as error:  # Whatever the module's code raises is the caller's to hear.
        _failed(folder, rank, error)
        os._exit(1)
    os._exit(0)


def _failed(folder: Path, rank: int, error: BaseException) -> None:
    (folder / f"{rank}.failed").write_text(agreement.reason(error))


def _made(task: _Task) -> tuple[nn.Module, dict[str, Any], Any]:
    """The module, its inputs by name, and the number format in which it runs."""
    torch.manual_seed(0)
    made = task.factory()
    torch.set_num_threads(1)  # Of several, forks wait for those that they do not have.
    model, inputs = made if isinstance(made, tuple) else (made, task.inputs)
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    if inputs is None:
        length = task.plan.problem["training"].get("sequence_length") or 1
        inputs = torch.zeros(1, length, dtype=torch.long)
    named = stages.named_inputs(model, inputs)
    for precision in dict.fromkeys((task.precision, torch.float32)):
        model = model.to(precision)
        try:
            observed(model, named, precision)
        except RuntimeError:  # Some kernels have no wide numbers.
            if precision == torch.float32:
                raise
        else:
            floats = {n: e for n, e in named.items() if isinstance(e, torch.Tensor) and e.is_floating_point()}
            return model, named | {name: each.to(precision) for name, each in floats.items()}, precision
    raise AssertionError


def _batches(
    task: _Task, model: nn.Module, inputs: Mapping[str, Any], precision: Any
) -> list[tuple[dict[str, Any], Any]]:
    """Random inputs and targets of every step, the same in every process."""
    count = layout.deployment_of(task.plan).global_batch
    bounds, sizes = observed(model, inputs, precision)
    generator = torch.Generator().manual_seed(1)

    found = []
    for _ in range(task.steps):
        given = drawn(inputs, count, bounds, precision, generator)
        found.append((given, torch.randint(0, sizes[-1], (count, *sizes[1:-1]), generator=generator)))
    return found


def _parts(task: _Task, model: nn.Module) -> list[str]:
    layers = [name for run in layout.deployment_of(task.plan).runs for name in run.layers]
    return list(stages.blocks_of(model, layers).values())


def _alone(task: _Task, model: nn.Module, batches: Any) -> dict[str, Any]:
    """The same steps in one process, a micro-batch of the plan after the other."""
    shape = layout.deployment_of(task.plan)
    size = shape.micro_batch // shape.degree("batch")
    count = shape.global_batch // size
    outputs: list[dict[str, Any]] = []
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    losses: list[float] = []
    norms: list[float] = []
    gradients: dict[str, float] = {}
    parts = _parts(task, model)
    for step, (given, targets) in enumerate(batches):
        total = 0.0
        for index in range(count):
            rows = slice(index * size, (index + 1) * size)
            if step == 0:
                outputs.append({})
                handles = _noted(model, parts, outputs[-1])
            part = {n: e[rows] if isinstance(e, torch.Tensor) else e for n, e in given.items()}
            loss = cross_entropy(first_tensor(model(**part)), targets[rows]) / count
            loss.backward()
            total += float(loss.detach())
            for handle in handles if step == 0 else ():
                handle.remove()
        squares = {
            name: float(p.grad.double().pow(2).sum()) if p.grad is not None else 0.0
            for name, p in model.named_parameters()
        }
        losses.append(total)
        norms.append(sum(squares.values()) ** 0.5)
        gradients = gradients or squares
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "norms": norms, "gradients": gradients, "outputs": outputs, "parts": parts}


def _noted(model: nn.Module, names: Sequence[str], found: dict[str, Any], ignored: int = 0) -> list[Any]:
    """Note the first output, behind some that are ignored, of each part that this process has; the hooks that do."""
    calls: dict[str, int] = {}

    def hook(name: str) -> Any:
        def note(_: Any, __: Any, made: Any) -> None:
            calls[name] = calls.get(name, 0) + 1
            if calls[name] > ignored:
                found.setdefault(name, first_tensor(made).detach().clone())

        return note

    own = [(name, stages.present(model, name)) for name in names]
    return [module.register_forward_hook(hook(name)) for name, module in own if module is not None]


def _together(
    task: _Task, model: nn.Module, inputs: Any, batches: Any, folder: Path, rank: int, ranks: int
) -> dict[str, Any]:
    """The steps of one rank of the plan."""
    parts = _parts(task, model)
    dist.init_process_group(
        "gloo",
        init_method=(folder / "meeting").as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=task.seconds),
    )
    parallel = apply(model, task.plan, example_inputs=inputs, check=False)
    optimizer = torch.optim.AdamW(parallel.parameters(), RATE)
    losses: list[float] = []
    norms: list[float] = []
    gradients: dict[str, float] = {}
    outputs: dict[str, Any] = {}
    handles = [
        handle
        for stage in parallel.stages
        for handle in _noted(
            getattr(stage, "module", stage),
            parts,
            outputs,
            int(parallel.meshes.shape.stages > 1),  # PyTorch's stages run once to see sizes.
        )
    ]
    for given, targets in batches:
        rows = slice(parallel.data_rank * parallel.batch, (parallel.data_rank + 1) * parallel.batch)
        mine = {n: e[rows] if isinstance(e, torch.Tensor) else e for n, e in given.items()}
        losses.append(float(parallel.step(mine, targets[rows])))
        squares = {name: float(value) for name, value in parallel.squared_gradient_norms().items()}
        norms.append(sum(squares.values()) ** 0.5)
        gradients = gradients or squares
        for handle in handles:
            handle.remove()
        handles = []
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    return {"losses": losses, "norms": norms, "gradients": gradients, "outputs": outputs, "place": _place(parallel)}


def _place(parallel: Parallel) -> dict[str, int]:
    """Indices of a rank's activations among those of one process."""
    shape, dense = parallel.meshes.shape, parallel.meshes.dense
    return {
        "micro_batch": parallel.data_rank * shape.micro_batches,
        "cp": shape.cp,
        "cp_rank": dense.get_local_rank("cp"),
        "tp": shape.tp if shape.sequence_parallel else 1,
        "tp_rank": dense.get_local_rank("tp"),
    }
