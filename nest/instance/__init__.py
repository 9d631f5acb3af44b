"""Problems in numbers and their answers: the interface of solvers.

Belongs here: records of numbers. Does not: names of strategies, files, units.
"""

from nest.instance.candidate import Array, Candidate, Overheads, ParameterGroup, RecomputeMode, read_only
from nest.instance.cluster import Cluster, CollectiveLine, EstimateError, Exposure, Level, Link, Pool, Pools, shape_of
from nest.instance.instance import (
    Instance,
    LayerGraph,
    PlacedNetwork,
    Placement,
    Result,
    SearchProgress,
    Solution,
    StageDecision,
)
from nest.instance.network import CollectiveModel, NetworkModel, Ring, RingPricing, port_seconds
from nest.instance.recompute import (
    Partial,
    modes_of,
    partial,
    recompute_values,
    recompute_words,
    recomputed,
    stage_mode,
)
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
"""Old name of `SearchProgress` (up to version 0.1), for plug-ins."""

__all__ = [
    "Array", "Candidate", "ChunkedSchedule", "Cluster", "CollectiveLine", "CollectiveModel", "EstimateError",
    "Exposure", "Instance", "LayerGraph", "Level", "Link", "NetworkModel", "OrderedSchedule", "Overheads",
    "ParameterGroup", "Partial", "Pass", "PlacedNetwork", "Placement", "Pool", "Pools", "RecomputeMode",
    "Result", "Ring", "RingPricing", "Schedule", "SearchProgress", "Solution", "Space", "StageDecision",
    "Standing", "Usual", "Weights", "admits", "always_fills", "chunks_of", "copies_of", "fills",
    "fullest_moments", "in_flight", "least_held", "modes_of", "partial", "port_seconds", "read_only",
    "recompute_values", "recompute_words", "recomputed", "route", "shape_of", "stage_mode", "weights_of",
]  # fmt: skip
