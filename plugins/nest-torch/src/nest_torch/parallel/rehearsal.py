"""A module tried before it is planned, in this process alone: what `apply` would refuse is not searched."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from attrs import evolve
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn.modules.batchnorm import _BatchNorm
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from nest.deployment import Deployment
from nest_torch.parallel import agreement, layout, sharding, shares, stages, trial
from nest_torch.parallel.applying import parallel_of, ways
from nest_torch.parallel.flow import first_tensor
from nest_torch.parallel.splits import Split
from nest_torch.parallel.training import cross_entropy
from nest_torch.tracing import NarrowProducts, quiet

SMALL = 2**22
"""Parameters up to which a module is tried with numbers: on sharded parameters too, and code that reads numbers."""


class Rehearsal:
    """A module and its inputs, tried as `apply` tries them, with numbers only if it is small.

    Args:
        model: on any device.
        inputs: one sample or more, by name.
    """

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any]) -> None:
        self.model = model
        self._numbers = sum(each.numel() for each in model.parameters()) <= SMALL
        self._device = torch.device("cpu" if self._numbers else "meta")
        self.inputs = self._rows(inputs, 2)
        with self._alone():
            self.runs = shares.runs(self._copy(), self.inputs)

    def _rows(self, inputs: Mapping[str, Any], count: int) -> dict[str, Any]:
        return {
            name: torch.zeros((count, *each.shape[1:]) if each.dim() else (), dtype=each.dtype, device=self._device)
            if isinstance(each, torch.Tensor)
            else each
            for name, each in inputs.items()
        }

    def _copy(self) -> nn.Module:
        with torch.random.fork_rng([]):
            return trial.copied(self.model, self._device) if self._numbers else shares.bare(self.model)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with torch.random.fork_rng([]), nullcontext() if self._numbers else NarrowProducts(), quiet():
            yield

    def untrainable(self) -> str | None:
        """Return why no plan trains the module; None: some may, or nobody can tell."""
        if not self.runs:
            return None
        draws, model = _Draws(), self._copy().eval()
        with self._alone(), torch.no_grad(), draws:
            made = first_tensor(model(**self.inputs))
        if draws.met:
            return f"draws random numbers, also after eval() ({draws.met})"
        if not made.is_floating_point():
            return "returns no real numbers in its first tensor"
        if not made.dim() or made.shape[0] != 2:
            return "returns a first tensor without a row for each sample; return logits, and compute the loss in `loss`"
        return None

    def written_buffers(self, norms: bool = False) -> list[str]:
        """Names of buffers that a forward pass changes and a state keeps; `norms`: of batch norms too."""
        if not self.runs:
            return []
        model = self._copy()
        held = {
            f"{path}.{name}".lstrip("."): (module, name, each, each._version)
            for path, module in model.named_modules()
            for name, each in module._buffers.items()
            if each is not None
            and name not in module._non_persistent_buffers_set
            and (norms or not isinstance(module, _BatchNorm))
        }
        with self._alone(), torch.no_grad():
            model(**self.inputs)
        return [
            path
            for path, (module, name, each, version) in held.items()
            if module._buffers[name] is not each or each._version > version
        ]

    def refused(self, split: Mapping[str, Split], shape: Deployment) -> str | None:
        """Try both passes under a plan; None if they run, or cannot in one process either."""
        if dist.is_initialized() or not self.runs:
            return None
        if not self._numbers:  # A block that runs again in the backward pass would leave the modes around it.
            shape = evolve(shape, recompute=("none",) * shape.stages)
        layers = [name for run in shape.runs for name in run.layers]
        blocks = stages.blocks_of(self.model, layers)
        subject = trial.Subject(self._copy(), shape, blocks, split, self.inputs)
        reason = None
        with self._alone():
            for way in ways(subject):
                reason = self._tried(evolve(way, model=self._copy()))
                if reason is None:
                    break
        return reason

    def _tried(self, way: trial.Subject) -> str | None:
        try:
            with _ranks(way.shape, self._numbers) as meshes, implicit_replication():
                parallel = parallel_of(way, way.shape.runs, meshes, cross_entropy, self._device)
                for stage in parallel.stages:
                    sharding.before_backward(stage, way.shape.zero[0], last=True)
                given, _ = parallel.shared(self._rows(self.inputs, parallel.samples), None)
                made = trial.through(parallel.stages, given)
                trial.distance(made, torch.zeros_like(made)).backward()
                sharding.complete_gradients(parallel.parameters(), meshes)
        except Exception as error:  # Whatever the module's code raises is the reason.
            return agreement.reason(error).rstrip(".")
        return None


@contextmanager
def _ranks(shape: Deployment, sharded: bool) -> Iterator[layout.Meshes]:
    """The meshes of a stage, of which only this rank is there; `sharded`: parameters are sharded over them too."""
    alone = evolve(shape, stages=1, replicas=min(shape.replicas, 2), zero_degree=None)
    dist.init_process_group("fake", rank=0, world_size=alone.world_size, store=FakeStore())
    try:
        sizes = layout.mesh_sizes(alone)
        dense = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        made = evolve(layout.meshes(alone, dense), shape=evolve(shape, replicas=alone.replicas))
        yield made if sharded else evolve(made, data=None, expert_data=None)
    finally:
        dist.destroy_process_group()


class _Draws(TorchDispatchMode):  # type: ignore[misc]
    """Notes an operator that draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.met = ""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        if torch.Tag.nondeterministic_seeded in function.tags:
            names = [each.name for each in function._schema.arguments]
            given = dict(zip(names, arguments, strict=False)) | keywords
            if given.get("dropout_p", given.get("p")) != 0.0 and "dropout_p" not in names[len(arguments) :]:
                self.met = self.met or function._schema.name.partition("::")[2]
        return function(*arguments, **keywords)


Refused = Callable[[Deployment], str | None]
"""Why a plan is refused; None: it is not."""


def fewest(shape: Deployment, refused: Refused) -> tuple[str, ...]:
    """Conditions, in the language of constraints, that together are enough for a plan to be refused."""
    left = [name for name, on in _parts(shape).items() if on]
    for name in list(left):
        fewer = [each for each in left if each != name]
        try:
            without = _only(shape, fewer)
        except ValueError:
            continue
        if refused(without) is not None:
            left = fewer
    return tuple(_parts(shape)[name] for name in left)


def _parts(shape: Deployment) -> dict[str, str]:
    """Conditions that hold of a plan by what they are about, the least costly to do without first; empty: off."""
    modes = [mode for mode in shape.recompute if mode != "none"]
    degrees = {name: f"{name} == {shape.degree(name)}" if shape.degree(name) > 1 else "" for name in layout.KNOWN}
    return {
        "recompute": f"recompute == '{modes[0]}'" if modes else "",
        "zero": f"zero == {shape.zero[0]}" if shape.zero[0] else "",
        "dp": "replicas > 1" if shape.replicas > 1 else "",
        **{name: degrees[name] for name in ("batch", "sp", "etp", "ep", "cp")},
        "pp": "pp > 1" if shape.stages > 1 else "",
        "tp": degrees["tp"],
    }


def _only(shape: Deployment, names: list[str]) -> Deployment:
    """The plan with these parts of it alone.

    Raises:
        ValueError: one of them needs one that is left out.
    """
    degrees = {name: shape.degree(name) if name in names else 1 for name in layout.KNOWN}
    if degrees["etp"] > degrees["tp"] or degrees["sp"] > degrees["tp"]:
        raise ValueError
    width = max(degrees["tp"] * degrees["cp"] * degrees["batch"], degrees["ep"] * degrees["etp"])
    runs, count = shape.runs, shape.stages
    if "pp" not in names:
        layers = tuple(name for run in runs for name in run.layers)
        runs, count = (evolve(runs[0], stage=0, chunk=0, layers=layers),), 1
    return evolve(
        shape,
        degrees=degrees,
        width=width,
        stages=count,
        runs=runs,
        replicas=shape.replicas if "dp" in names else 1,
        zero=(shape.zero if "zero" in names else (0,) * shape.stages)[:count],
        recompute=(shape.recompute if "recompute" in names else ("none",) * shape.stages)[:count],
    )
