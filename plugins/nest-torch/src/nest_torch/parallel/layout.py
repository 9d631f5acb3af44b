"""The ranks of a plan as device meshes of PyTorch, in the order of the plan's rank table."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from attrs import frozen
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from nest.deployment import Deployment
from nest.errors import InputError
from nest.hooks.pipelines import deployed
from nest.io import read, structure
from nest.spec import PlanDocument

KNOWN = ("tp", "sp", "cp", "ep", "etp", "batch")
"""Strategies that `apply` has."""


def plan_document(plan: Any) -> PlanDocument:
    """A plan from its document, a mapping, or the path of a file."""
    if isinstance(plan, PlanDocument):
        return plan
    return structure(plan, PlanDocument) if isinstance(plan, Mapping) else read(plan, PlanDocument)


def deployment_of(plan: PlanDocument) -> Deployment:
    """The plan in the terms of frameworks.

    Raises:
        InputError: it asks for what `apply` does not have.
    """
    shape = deployed(plan)
    strange = [name for name, degree in shape.degrees.items() if degree > 1 and name not in KNOWN]
    if strange:
        raise InputError(f"the plan splits by {', '.join(strange)}, which nest_torch.apply has no part for.")
    if shape.mixed:
        raise InputError("the stages of the plan differ in their candidates; nest_torch.apply splits all alike.")
    if len(set(shape.zero)) > 1:
        raise InputError("the stages of the plan differ in their ZeRO stage, but one mesh serves all of them.")
    strange = [mode for mode in (*shape.recompute, *shape.recompute_rest) if mode not in ("none", "full", None)]
    if strange:
        raise InputError(f"recompute mode {strange[0]!r}: nest_torch.apply recomputes whole layers, or nothing.")
    if shape.etp > shape.tp:
        raise InputError(
            f"etp is {shape.etp} and tp {shape.tp}: experts are split over ranks with the same tokens only."
        )
    return shape


def mesh_sizes(shape: Deployment) -> dict[str, int]:
    """Ranks along each dimension of the mesh, the last one the fastest, as `nest export --to pytorch` writes them.

    Raises:
        InputError: ZeRO shards over a part of a context-parallel group.
    """
    ranks = shape.data_parallel * shape.cp
    within = min(shape.zero_degree or ranks, ranks) if shape.zero[0] else shape.cp
    if within % shape.cp or ranks % within:
        raise InputError(f"ZeRO shards over {within} ranks, which are no whole groups of context parallelism.")
    shards = within // shape.cp
    data = {"dp_replicate": shape.data_parallel // shards, "dp_shard": shards}
    return {"pp": shape.stages, **data, "cp": shape.cp, "tp": shape.tp}


def expert_sizes(shape: Deployment) -> dict[str, int]:
    """The same ranks as routed experts see them."""
    copies = shape.world_size // (shape.stages * shape.ep * shape.etp)
    shards = copies if shape.zero[0] else 1
    return {
        "pp": shape.stages,
        "edp_replicate": copies // shards,
        "edp_shard": shards,
        "ep": shape.ep,
        "etp": shape.etp,
    }


@frozen
class Meshes:
    """The meshes of a plan.

    Attributes:
        shape: the plan in the terms of frameworks.
        dense: of everything but routed experts.
        data: where parameters are the same: replicas first, shards last; None: on one rank.
        experts: of routed experts; None: they are not split.
        expert_data: where the same experts are; None: on one rank.
    """

    shape: Deployment
    dense: DeviceMesh
    data: DeviceMesh | None
    experts: DeviceMesh | None
    expert_data: DeviceMesh | None


def mesh(plan: Any, device_type: str = "cuda") -> DeviceMesh:
    """The mesh that a plan is applied on: dimensions `pp`, `dp_replicate`, `dp_shard`, `cp`, `tp`.

    Args:
        plan: a plan, as a document, a mapping, or the path of its file.
        device_type: `cuda` or `cpu`.

    Raises:
        InputError: the plan has more or fewer ranks than were started.
    """
    shape = deployment_of(plan_document(plan))
    _check_started(shape)
    sizes = mesh_sizes(shape)
    return init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def _check_started(shape: Deployment) -> None:
    started = dist.get_world_size() if dist.is_initialized() else shape.world_size
    if started != shape.world_size:
        raise InputError(
            f"the plan has {shape.world_size} ranks, but {started} were started; start {shape.world_size}."
        )


def meshes(shape: Deployment, dense: DeviceMesh) -> Meshes:
    """Every mesh that `shape` needs, over the ranks of `dense`.

    Raises:
        InputError: `dense` is of another shape, or other ranks were started than the plan has.
    """
    _check_started(shape)
    sizes = mesh_sizes(shape)
    if dict(zip(dense.mesh_dim_names or (), dense.mesh.shape, strict=True)) != sizes:
        raise InputError(f"the mesh must have the dimensions {sizes}; nest_torch.mesh(plan) makes it.")
    experts = None
    if shape.ep * shape.etp > 1:
        own = expert_sizes(shape)
        experts = init_device_mesh(dense.device_type, tuple(own.values()), mesh_dim_names=tuple(own))
    return Meshes(shape, dense, _data(shape, dense), experts, _expert_data(shape, experts))


def _data(shape: Deployment, dense: DeviceMesh) -> DeviceMesh | None:
    """The ranks of context parallelism hold the same parameters: with ZeRO they shard, without they replicate."""
    if shape.data_parallel * shape.cp == 1:
        return None
    replicas, shards = "dp_replicate", "dp_shard"
    if shape.cp > 1 and shape.zero[0]:
        shards = "dp_shard_cp"
        dense["dp_shard", "cp"]._flatten(shards)
    elif shape.cp > 1:  # Only neighbouring dimensions are flattened; the one between them is 1 long.
        replicas = "dp_replicate_cp"
        dense["dp_replicate", "dp_shard", "cp"]._flatten(replicas)
    return dense[shards] if dense[replicas].size() == 1 else dense[replicas, shards]


def _expert_data(shape: Deployment, experts: DeviceMesh | None) -> DeviceMesh | None:
    if experts is None or shape.world_size == shape.stages * shape.ep * shape.etp:
        return None
    return experts["edp_shard"] if shape.zero[0] else experts["edp_replicate", "edp_shard"]
