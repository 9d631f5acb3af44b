"""Records of problem and plan files, without input and output.

Belongs here: records and the constraint language. Does not: defaults that need a catalogue.

Measurements and studies load on use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nest.spec.architecture import Architecture, MlaSpec, TransformerSpec
from nest.spec.cluster import (
    BetweenSpec,
    ClusterCalibration,
    ClusterOfFile,
    ClusterSpec,
    LevelSpec,
    LinkProfile,
    PoolSpec,
    TierSpec,
)
from nest.spec.device import Coefficients, DeviceSpec, MatrixPeaks, MemoryOverheads, Range, ranges
from nest.spec.plan import (
    CandidateSummary,
    Decisions,
    MemoryBreakdown,
    OtherPlan,
    PlacementRecord,
    PlanDocument,
    StageDecisions,
    StageRecord,
    TimeRange,
    UnknownFact,
)
from nest.spec.problem import Fixed, Problem, ProfileCandidate, ProfileGroup, ProfileRecompute, ProfileSpec, Search
from nest.spec.topology import DragonflySpec, FatTreeSpec, GraphSpec, MatrixSpec, MeshSpec, RailOptimisedSpec, TorusSpec
from nest.spec.trainable import Lora, Trainable
from nest.spec.training import NO_STACK, Overlap, StackDefaults, StackSpec, Training, with_value

if TYPE_CHECKING:
    from nest.spec.measurements import (
        CollectiveMeasurement,
        Measurement,
        OperatorMeasurement,
        RunFigures,
        RunMeasurement,
        read_measurements,
    )
    from nest.spec.study import Study
else:
    _RUNS = ("RunFigures", "RunMeasurement", "read_measurements")
    _MEASUREMENTS = ("CollectiveMeasurement", "Measurement", "OperatorMeasurement", *_RUNS)
    _MODULES = {**dict.fromkeys(_MEASUREMENTS, "measurements"), "Study": "study"}

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "NO_STACK", "Architecture", "BetweenSpec", "CandidateSummary", "ClusterCalibration", "ClusterOfFile",
    "ClusterSpec", "Coefficients", "CollectiveMeasurement", "Decisions", "DeviceSpec", "DragonflySpec",
    "FatTreeSpec", "Fixed", "GraphSpec", "LevelSpec", "LinkProfile", "Lora", "MatrixPeaks", "MatrixSpec",
    "Measurement", "MemoryBreakdown", "MemoryOverheads", "MeshSpec", "MlaSpec", "OperatorMeasurement",
    "OtherPlan", "Overlap", "PlacementRecord", "PlanDocument", "PoolSpec", "Problem", "ProfileCandidate",
    "ProfileGroup", "ProfileRecompute", "ProfileSpec", "RailOptimisedSpec", "Range", "RunFigures",
    "RunMeasurement", "Search", "StackDefaults", "StackSpec", "StageDecisions", "StageRecord", "Study",
    "TierSpec", "TimeRange", "TorusSpec", "Trainable", "Training", "TransformerSpec", "UnknownFact", "ranges",
    "read_measurements", "with_value",
]  # fmt: skip
