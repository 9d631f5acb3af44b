"""Problems in numbers and their answers: all that solvers see and say."""

from nest.instance.candidate import Array, Candidate, ParameterGroup, RecomputeMode, read_only
from nest.instance.cluster import Cluster, Level
from nest.instance.instance import Instance, LayerGraph, Space
from nest.instance.protocols import CollectiveModel, Schedule
from nest.instance.solution import Result, Solution, StageDecision, Standing

__all__ = [
    "Array",
    "Candidate",
    "Cluster",
    "CollectiveModel",
    "Instance",
    "LayerGraph",
    "Level",
    "ParameterGroup",
    "RecomputeMode",
    "Result",
    "Schedule",
    "Solution",
    "Space",
    "StageDecision",
    "Standing",
    "read_only",
]
