"""The file formats (FORMATS.md) by name, with the class of their records."""

from collections.abc import Mapping
from typing import Any

from nest.graph import OperatorGraph
from nest.spec.cluster import ClusterOfFile, LinkProfile
from nest.spec.measurements import Measurement
from nest.spec.plan import PlanDocument
from nest.spec.problem import Problem, ProfileSpec
from nest.spec.study import Study
from nest.spec.topology import Topology
from nest.spec.training import StackSpec

FORMATS: Mapping[str, Any] = {
    "problem": Problem,
    "profile": ProfileSpec,
    "plan": PlanDocument,
    "topology": Topology,
    "graph": OperatorGraph,
    "measurement": Measurement,
    "cluster": ClusterOfFile,
    "link-profile": LinkProfile,
    "stack": StackSpec,
    "study": Study,
}
