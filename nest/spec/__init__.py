"""What people write: frozen records of problem and plan files, without any input or output."""

from nest.spec.architecture import Architecture
from nest.spec.cluster import (
    ClusterCalibration,
    ClusterOfFile,
    ClusterSpec,
    DeviceSpec,
    LevelSpec,
    MatrixPeaks,
    MemoryOverheads,
)
from nest.spec.coefficients import Coefficients, Range, ranges
from nest.spec.fixed import Fixed
from nest.spec.link_profile import LinkProfile, TierSpec
from nest.spec.measurements import (
    CollectiveMeasurement,
    Measurement,
    OperatorMeasurement,
    RunFigures,
    RunMeasurement,
    read_measurements,
)
from nest.spec.model import MlaSpec, TransformerSpec
from nest.spec.plan import (
    CandidateSummary,
    Decisions,
    MemoryBreakdown,
    OtherRisk,
    PlacementRecord,
    PlanDocument,
    StageDecisions,
    StageRecord,
    TimeRange,
)
from nest.spec.problem import Problem, Search
from nest.spec.profile import ProfileCandidate, ProfileGroup, ProfileRecompute, ProfileSpec
from nest.spec.stack import NO_STACK, Overlap, StackDefaults, StackSpec
from nest.spec.topology import (
    DragonflySpec,
    FatTreeSpec,
    GraphSpec,
    MatrixSpec,
    MeshSpec,
    RailOptimisedSpec,
    TorusSpec,
)
from nest.spec.training import Training

__all__ = [
    "NO_STACK",
    "Architecture",
    "CandidateSummary",
    "ClusterCalibration",
    "ClusterOfFile",
    "ClusterSpec",
    "Coefficients",
    "CollectiveMeasurement",
    "Decisions",
    "DeviceSpec",
    "DragonflySpec",
    "FatTreeSpec",
    "Fixed",
    "GraphSpec",
    "LevelSpec",
    "LinkProfile",
    "MatrixPeaks",
    "MatrixSpec",
    "Measurement",
    "MemoryBreakdown",
    "MemoryOverheads",
    "MeshSpec",
    "MlaSpec",
    "OperatorMeasurement",
    "OtherRisk",
    "Overlap",
    "PlacementRecord",
    "PlanDocument",
    "Problem",
    "ProfileCandidate",
    "ProfileGroup",
    "ProfileRecompute",
    "ProfileSpec",
    "RailOptimisedSpec",
    "Range",
    "RunFigures",
    "RunMeasurement",
    "Search",
    "StackDefaults",
    "StackSpec",
    "StageDecisions",
    "StageRecord",
    "TierSpec",
    "TimeRange",
    "TorusSpec",
    "Training",
    "TransformerSpec",
    "ranges",
    "read_measurements",
]
