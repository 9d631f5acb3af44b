"""Parameters that several modules or calls share, where a pipeline puts those on several stages."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from attrs import define
from torch import nn

from nest.deployment import Deployment
from nest_torch.parallel import layout


@define
class Tied:
    """A parameter of which several stages have copies: their gradients are added up.

    Attributes:
        copies: of this rank.
        group: the ranks that have copies; None: this rank alone.
        repeated: names of copies on this rank beside the first of all.
    """

    copies: list[Any]
    group: Any
    repeated: tuple[str, ...]

    def add_up(self) -> None:
        """Give every copy the sum of all their gradients."""
        for each in self.copies:
            each.grad = torch.zeros_like(each) if each.grad is None else each.grad
        local = [each.grad.to_local() if hasattr(each.grad, "to_local") else each.grad for each in self.copies]
        total = torch.stack(local).sum(0)
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        for each in local:
            each.copy_(total)


def tied_names(model: nn.Module) -> list[list[str]]:
    """Names of each parameter that several modules share."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [row for row in names.values() if len(row) > 1]


def between_stages(
    made: Sequence[nn.Module], tied: Sequence[Sequence[str]], shape: Deployment, meshes: layout.Meshes
) -> list[Tied]:
    """The parameters with copies on several stages: tied ones, and those of a part that several stages call.

    Every rank takes part in making their groups.
    """
    if shape.stages == 1:
        return []
    dense, found = meshes.dense, []
    here: list[tuple[str, Any]] = [
        (name.removeprefix("module."), parameter) for stage in made for name, parameter in stage.named_parameters()
    ]
    every: list[Any] = [None] * shape.stages
    dist.all_gather_object(every, [name for name, _ in here], group=dense["pp"].get_group())
    place = dense["pp"].get_local_rank()
    met = {name for names in tied for name in names}
    counts = Counter(name for held in every for name in held if name not in met)
    for names in (*tied, *([name] for name, count in counts.items() if count > 1)):
        holders = [index for index, held in enumerate(every) if any(name in held for name in names)]
        own = [(name, parameter) for name, parameter in here if name in names]
        repeated = tuple(name for name, _ in own[0 if holders and place != holders[0] else 1 :])
        group = None
        for column in dense.mesh.reshape(shape.stages, -1).T.tolist() if len(holders) > 1 else ():
            made_group = dist.new_group([column[index] for index in holders])
            if dist.get_rank() in column:
                group = made_group
        if own and (len(holders) > 1 or len(own) > 1):
            found.append(Tied([parameter for _, parameter in own], group, repeated))
    return found
