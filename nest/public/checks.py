"""For the conformance kit: what nest checks of plug-ins, schedules and plans."""

from nest.graph.sharded_graph import COPIES, region
from nest.hooks.bundled import DISTRIBUTION
from nest.hooks.calls import LONGEST, TimedOut, Worker, message
from nest.hooks.graph_results import instance_of, sound_graph, sound_network, sound_ranks
from nest.hooks.kinds import KINDS, MEMBERS, InvalidResult, Kind, called_with, reserved_names, takes
from nest.hooks.loader import PluginState, normal_name
from nest.hooks.process_state import process_state_restored
from nest.hooks.results import (
    CHECKS,
    amount,
    files_by_name,
    operator_cost,
    plain_weights,
    require_rising,
    sound_in_flight,
    sound_proposal,
)
from nest.hooks.unchanged import Kept
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, order_fault, places_of
from nest.plan.certificate import (
    RAYS,
    Stuck,
    batch_length,
    busiest,
    certify,
    equal_passes,
    highest_price,
    is_staggered,
    least_of_rays,
    longest_pipeline,
    too_few_in_flight,
)
from nest.plan.legality import structure_violations
from nest.spec.device import COMMUNICATION, MATRIX, VECTOR
from nest.spec.topology import DragonflySpec, FatTreeSpec, MatrixSpec, MeshSpec, RailOptimisedSpec, TorusSpec

__all__ = [
    "BACKWARD", "CHECKS", "COMMUNICATION", "COPIES", "DISTRIBUTION", "FORWARD", "INPUT_GRADIENTS", "KINDS",
    "LONGEST", "MATRIX", "MEMBERS", "RAYS", "VECTOR", "WEIGHT_GRADIENTS", "DragonflySpec", "FatTreeSpec",
    "InvalidResult", "Kept", "Kind", "MatrixSpec", "MeshSpec", "PluginState", "RailOptimisedSpec", "Stuck",
    "TimedOut", "TorusSpec", "Worker", "amount", "batch_length", "busiest", "called_with", "certify",
    "equal_passes", "files_by_name", "highest_price", "instance_of", "is_staggered", "least_of_rays",
    "longest_pipeline", "message", "normal_name", "operator_cost", "order_fault", "places_of", "plain_weights",
    "process_state_restored", "region", "require_rising", "reserved_names", "sound_graph", "sound_in_flight",
    "sound_network", "sound_proposal", "sound_ranks", "structure_violations", "takes", "too_few_in_flight",
]  # fmt: skip
