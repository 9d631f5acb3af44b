"""Problems in numbers and their answers: all that solvers see and say."""

from nest.instance.candidate import Array, Candidate, Overheads, ParameterGroup, RecomputeMode, read_only
from nest.instance.cluster import Cluster, CollectiveLine, EstimateError, Exposure, Level, Link, Pool, Pools, shape_of
from nest.instance.instance import (
    Instance,
    LayerGraph,
    Placement,
    Result,
    SearchProgress,
    Solution,
    StageDecision,
)
from nest.instance.network import CollectiveModel, NetworkModel, OnRings, PlacedNetwork, Ring, port_seconds
from nest.instance.schedule import (
    ChunkedSchedule,
    OrderedSchedule,
    Pass,
    Schedule,
    Weights,
    admits,
    always_fills,
    chunks_of,
    copies_of,
    fills,
    fullest_moments,
    in_flight,
    least_held,
    route,
    weights_of,
)
from nest.instance.space import Space, Usual

Standing = SearchProgress
"""The name of `SearchProgress` up to version 0.1, for plug-ins."""

__all__ = [
    "Array",
    "Candidate",
    "ChunkedSchedule",
    "Cluster",
    "CollectiveLine",
    "CollectiveModel",
    "EstimateError",
    "Exposure",
    "Instance",
    "LayerGraph",
    "Level",
    "Link",
    "NetworkModel",
    "OnRings",
    "OrderedSchedule",
    "Overheads",
    "ParameterGroup",
    "Pass",
    "PlacedNetwork",
    "Placement",
    "Pool",
    "Pools",
    "RecomputeMode",
    "Result",
    "Ring",
    "Schedule",
    "SearchProgress",
    "Solution",
    "Space",
    "StageDecision",
    "Standing",
    "Usual",
    "Weights",
    "admits",
    "always_fills",
    "chunks_of",
    "copies_of",
    "fills",
    "fullest_moments",
    "in_flight",
    "least_held",
    "port_seconds",
    "read_only",
    "route",
    "shape_of",
    "weights_of",
]
