"""What a training loop needs of a module that a plan is applied to: steps, evaluation, clipping, state."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from attrs import define, field
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication

from nest.errors import InputError
from nest_torch.parallel import agreement, checkpoints, contexts, layout, saving, sharding, stages, statistics
from nest_torch.parallel.flow import Flow, first_tensor
from nest_torch.parallel.tying import Tied

Loss = Callable[[Any, Any], Any]


def cross_entropy(made: Any, targets: Any) -> Any:
    """The mean cross-entropy along the last dimension, for every position before it."""
    return nn.functional.cross_entropy(made.flatten(0, -2), targets.flatten())


Pipeline = Callable[[Mapping[str, Any], int, bool], tuple[Any, Flow]]
"""Makes the schedule of a number of micro-batches, and the flow of tensors of one given its inputs; in training or not.
"""


@define
class Parallel:
    """A module as a plan trains it, on one rank.

    Attributes:
        stages: the runs of layers of this rank: the module itself where there is no pipeline.
        meshes: of the plan.
        loss: mean loss of the first tensor that the module returns, and targets.
        data_rank: which of `data_ranks` this rank is: those of one number are given the same samples.
        data_ranks: ranks that are given different samples.
        batch: samples that each of them is given for a whole step.
        samples: of a micro-batch.
    """

    stages: list[nn.Module]
    meshes: layout.Meshes
    loss: Loss
    data_rank: int
    data_ranks: int
    batch: int
    samples: int
    _positions: bool
    _pipeline: Pipeline | None = field(default=None, init=False)
    _pipelines: dict[Any, tuple[Any, Flow]] = field(factory=dict, init=False)
    _tied: list[Tied] = field(factory=list, init=False)
    _agreed: bool = field(default=False, init=False)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Parameters of this rank, named as in the module."""
        for stage in self.stages:
            for name, parameter in stage.named_parameters():
                yield (name.removeprefix("module.") if isinstance(stage, stages.Stage) else name), parameter

    def parameters(self) -> list[Any]:
        """Parameters of this rank, for an optimizer."""
        return [parameter for _, parameter in self.named_parameters()]

    def step(self, inputs: Any, targets: Any) -> Any:
        """Forward and backward pass of a batch; gradients are complete afterwards.

        Args:
            inputs: of the module, by name or in order: `batch` samples of this data-parallel rank, or fewer whole
                micro-batches of `samples`, as many on every rank; whole sequences, of any length.
            targets: what `loss` compares with, a row for each sample.

        Returns:
            The mean loss over all samples of the step, on every rank.

        Raises:
            InputError: ranks were given samples that do not fit together; on every rank.
        """
        named, count = self._begun(inputs, targets)
        agreement.same_random_state(self.meshes)
        with statistics.merged(self.stages, self.meshes), implicit_replication():
            loss = self._passes(*self.shared(named, targets), count, True)
        sharding.complete_gradients(self.parameters(), self.meshes)
        for tied in self._tied:
            tied.add_up()
        return self.mean(loss)

    def eval_step(self, inputs: Any, targets: Any) -> Any:
        """The mean loss over a batch as `step` takes it, in evaluation mode and without gradients."""
        named, count = self._begun(inputs, targets)
        modes = [(module, module.training) for stage in self.stages for module in stage.modules()]
        for stage in self.stages:
            stage.eval()
        try:
            with torch.no_grad(), implicit_replication():
                return self.mean(self._passes(*self.shared(named, targets), count, False))
        finally:
            for module, training in modes:
                module.training = training

    def clip_grad_norm_(self, max_norm: float) -> Any:
        """Scale all gradients so that the norm of those of the whole module is at most `max_norm`; their norm before.

        As `torch.nn.utils.clip_grad_norm_` does in one process; every rank must call it.
        """
        norm = self.gradient_norm()
        factor = min(1.0, max_norm / (float(norm) + 1e-6))
        for parameter in self.parameters() if factor < 1 else ():
            gradient = parameter.grad
            if gradient is not None:
                (gradient.to_local() if isinstance(gradient, DTensor) else gradient).mul_(factor)
        return norm

    def _begun(self, inputs: Any, targets: Any) -> tuple[dict[str, Any], int]:
        """Inputs by name, and the number of micro-batches."""
        first = self.stages[0]
        named = stages.named_inputs(first.module if isinstance(first, stages.Stage) else first, inputs)
        agreement.same_samples(named, targets, self)
        return named, targets.shape[0] // self.samples

    def _passes(self, given: dict[str, Any], targets: Any, count: int, training: bool) -> Any:
        """The mean loss of the micro-batches of this rank's replica, in one format on all stages."""
        if self._pipeline is None:
            return self._accumulated(given, targets, count, training)
        sizes = tuple((n, tuple(e.shape[1:])) for n, e in given.items() if isinstance(e, torch.Tensor))
        key = (count, sizes, training)
        if key not in self._pipelines:
            rows = targets.shape[0]
            part = {name: _chunks(each, rows, count)[0] for name, each in given.items()}
            self._pipelines[key] = self._pipeline(part, count, training)
        schedule, flow = self._pipelines[key]
        for stage in self.stages:
            stage.follow(flow)
        losses: list[Any] = []
        more = {"target": targets, "losses": losses} if self._holds(len(self.meshes.shape.runs) - 1) else {}
        (schedule.step if training else schedule.eval)(**given, **more, return_outputs=False)
        mine = torch.stack([each.detach() for each in losses]).mean() if losses else targets.new_zeros(())
        loss = mine.double()
        dist.all_reduce(loss, group=self.meshes.dense["pp"].get_group())
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name in the module, whole and in its order, on the first rank; empty on others.

        Every rank must call it.
        """
        return self._of_all_stages(
            {name: each.to("cpu", copy=True) for name, each in saving.saved(self.stages).items()}
        )

    def optimizer_state_dict(self, optimizer: Any) -> dict[str, Any]:
        """State of an optimizer of `parameters()`, by name in the module and whole, on the first rank; empty on others.

        `groups` are the settings of its groups, such as the learning rate. Every rank must call it.
        """
        state = self._of_all_stages(saving.saved_moments(self.stages, optimizer))
        groups = [{key: each for key, each in group.items() if key != "params"} for group in optimizer.param_groups]
        return {"state": state, "groups": groups} if dist.get_rank() == 0 else {}

    def load_optimizer_state_dict(self, optimizer: Any, state: Mapping[str, Any]) -> None:
        """Give an optimizer of `parameters()` what `optimizer_state_dict` returned under any plan.

        Every rank must be given all of it.

        Raises:
            InputError: a parameter is missing, or the optimizer has other groups.
        """
        if len(state["groups"]) != len(optimizer.param_groups):
            raise InputError(f"the saved optimizer has {len(state['groups'])} groups of parameters; make as many.")
        saving.load_moments(self.stages, optimizer, state["state"])
        for group, settings in zip(optimizer.param_groups, state["groups"], strict=True):
            group.update(settings)

    def _of_all_stages(self, found: dict[str, Any]) -> dict[str, Any]:
        if self.meshes.shape.stages > 1:
            first = dist.get_rank() in self.meshes.dense.mesh[0].flatten().tolist()
            every: list[Any] = [None] * self.meshes.shape.stages
            group = self.meshes.dense["pp"].get_group()
            dist.gather_object(found, every if first else None, dist.get_global_rank(group, 0), group)
            found = {name: each for part in reversed(every) if part for name, each in part.items()}
        return found if dist.get_rank() == 0 else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; every rank must be given all of it.

        Raises:
            InputError: a tensor is missing, or has other sizes.
        """
        saving.load(self.stages, state)

    def save(self, folder: str, optimizer: Any = None) -> None:
        """Write a checkpoint of `torch.distributed.checkpoint`, each rank its share; every rank must call it.

        Any plan reads it (`load`). One process does with PyTorch's own `load`, into the module's `state_dict()` as
        `model`, and the result of `get_optimizer_state_dict` with `flatten_optimizer_state_dict` as `optimizer`.
        """
        checkpoints.save(self.stages, folder, optimizer)

    def load(self, folder: str, optimizer: Any = None) -> None:
        """Read a checkpoint of `save` under any plan; every rank must call it.

        Raises:
            InputError: a tensor is missing, or has other sizes; on every rank.
        """
        checkpoints.load(self.stages, folder, optimizer)

    def gradient_norm(self) -> Any:
        """The norm of all gradients of the module, on every rank."""
        return sum(self.squared_gradient_norms().values(), torch.zeros((), dtype=torch.float64)).sqrt()

    def squared_gradient_norms(self) -> dict[str, Any]:
        """By name of the parameter the squared norm of its gradient, of the whole module and on every rank."""
        repeated = {name for tied in self._tied for name in tied.repeated}
        own = [(name, each) for name, each in self.named_parameters() if name not in repeated]
        found = {name: float(value) for name, value in sharding.squared_norms(own).items()}
        if self.meshes.shape.stages > 1:
            every: list[Any] = [None] * self.meshes.shape.stages
            dist.all_gather_object(every, found, group=self.meshes.dense["pp"].get_group())
            found = {name: value for part in every for name, value in part.items()}
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}

    def shared(self, given: dict[str, Any], targets: Any) -> tuple[dict[str, Any], Any]:
        """This rank's run of every sequence."""
        if self.meshes.shape.cp == 1:
            return given, targets
        mesh = self.meshes.dense["cp"]
        length = contexts.length_of(given)
        given = contexts.with_positions(given, length, self._positions)
        return (
            {name: contexts.share_of_sequence(each, mesh, length) for name, each in given.items()},
            contexts.share_of_sequence(targets, mesh, length),
        )

    def _accumulated(self, given: Mapping[str, Any], targets: Any, count: int, training: bool) -> Any:
        shape, model = self.meshes.shape, self.stages[0]
        rows = targets.shape[0]
        parts = {name: _chunks(each, rows, count) for name, each in given.items()}
        total: Any = 0.0
        for index, target in enumerate(targets.chunk(count)):
            if training:
                sharding.before_backward(model, shape.zero[0], index == count - 1)
            made = model(**{name: part[index] for name, part in parts.items()})
            loss = self.loss(first_tensor(made), target) / count
            if training:
                loss.backward()
            total = total + loss.detach()
        return total

    def mean(self, loss: Any) -> Any:
        """The mean of a loss over the ranks with different samples."""
        shape, dense = self.meshes.shape, self.meshes.dense
        for name in ("dp_replicate", "dp_shard", "cp"):
            if dense[name].size() > 1:
                dist.all_reduce(loss, group=dense[name].get_group())
        return loss / (shape.data_parallel * shape.cp)

    def _holds(self, run: int) -> bool:
        return bool(self.meshes.shape.runs[run].stage == self.meshes.dense["pp"].get_local_rank())


def _chunks(each: Any, rows: int, count: int) -> Any:
    if isinstance(each, torch.Tensor) and each.dim() and each.shape[0] == rows:
        return each.chunk(count)
    return [each] * count
