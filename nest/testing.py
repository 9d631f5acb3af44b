"""The conformance kit: what authors of plug-ins import into their tests.

Every check is an ordinary function that takes an object, as a hook returns it, and gives findings:

    from nest.testing import assert_conforms
    from my_plugin import MyStrategy

    def test_it_conforms():
        assert_conforms(MyStrategy())

`nest plugins doctor` runs the same on what is installed. The code is the bundled distribution `nest-testing`.
"""

from nest_testing.conformance import assert_conforms, check, check_stack
from nest_testing.costs import check_collective_model, check_cost_model, check_layer_times
from nest_testing.engine import check_engine
from nest_testing.exporter import check_exporter, sample_plans
from nest_testing.finding import Finding
from nest_testing.importers import check_model_importer, check_topology_importer
from nest_testing.plan_reader import check_plan_reader
from nest_testing.planner import check_planner
from nest_testing.public_names import MODULES
from nest_testing.samples import SAMPLE_CLUSTERS, SAMPLE_MODELS, SampleCluster, SampleModel
from nest_testing.schedule import check_schedule
from nest_testing.strategy import check_strategy

__all__ = [
    "MODULES", "SAMPLE_CLUSTERS", "SAMPLE_MODELS", "Finding", "SampleCluster", "SampleModel", "assert_conforms",
    "check", "check_collective_model", "check_cost_model", "check_engine", "check_exporter",
    "check_layer_times", "check_model_importer", "check_plan_reader", "check_planner", "check_schedule",
    "check_stack", "check_strategy", "check_topology_importer", "sample_plans",
]  # fmt: skip
