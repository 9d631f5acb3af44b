"""For planning in steps: a problem read, formulated, solved, priced, replayed, documented."""

from nest.api import blocks, read_plan
from nest.documents.document import plan_summary, result_document, solved_document
from nest.documents.first_plan import with_first_plan
from nest.documents.unknown import with_unknown
from nest.formulate.cluster import (
    any_cluster,
    as_measured,
    build_cluster,
    build_pools,
    described,
    from_file,
    usual_spread,
)
from nest.formulate.cost_breakdown import CostBreakdown, breakdown
from nest.formulate.fixed_plan import as_fixed, with_decisions
from nest.formulate.formulation import Formulation
from nest.formulate.from_flags import read_flags, start
from nest.formulate.instance import Wanted, formulate
from nest.formulate.layer_classes import layer_classes
from nest.formulate.model import load_model, matrix_peak
from nest.formulate.operator_costs import Direction, PricedOperator, computing_weight_gradients
from nest.formulate.priced_models import PricedModels
from nest.formulate.problem import (
    Changes,
    Source,
    carried_problem,
    naming,
    read_record,
    refuse_contradictions,
    self_contained,
    whole_problem,
)
from nest.formulate.risk import (
    EVEN_ODDS,
    RISK,
    Answer,
    at_risk,
    at_risk_of,
    leaves_risk_open,
    likely_enough,
    searched_at_risk,
    simpler_within,
)
from nest.formulate.shard import chosen, micro_batches
from nest.formulate.stack import data_parallel_exposure, device_of, overlap_words
from nest.formulate.target import reasons, runs_on, with_target
from nest.formulate.topology import in_place, link_profile_of, loaded, network
from nest.plan.document import solution_of
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.layout import first_devices, replica_sizes, schedule_of
from nest.plan.on_network import link_loads, on_devices
from nest.plan.zero import data_parallel_groups
from nest.report.other_plans import decided_plan
from nest.simulate.replay import Replay, replay
from nest.simulate.timeline import Points, Task
from nest.simulate.trace import trace
from nest.solve.decision import fastest_within, solve_beside
from nest.solve.dp import SearchCache
from nest.solve.dp.floors import Floor, floors
from nest.solve.effort import Deadline, Waiting, check_effort
from nest.solve.solver import solve
from nest.whatif.launch_files import export_checked

__all__ = [
    "EVEN_ODDS", "RISK", "Answer", "Changes", "CostBreakdown", "Deadline", "Direction", "Floor", "Formulation",
    "Points", "PricedModels", "PricedOperator", "PricedPlan", "Replay", "SearchCache", "Source", "Task",
    "Waiting", "Wanted", "any_cluster", "as_fixed", "as_measured", "at_risk", "at_risk_of", "blocks",
    "breakdown", "build_cluster", "build_pools", "carried_problem", "check_effort", "chosen",
    "computing_weight_gradients", "data_parallel_exposure", "data_parallel_groups", "decided_plan", "described",
    "device_of", "evaluate", "export_checked", "fastest_within", "first_devices", "floors", "formulate",
    "from_file", "in_place", "layer_classes", "leaves_risk_open", "likely_enough", "link_loads",
    "link_profile_of", "load_model", "loaded", "matrix_peak", "micro_batches", "naming", "network",
    "on_devices", "overlap_words", "plan_summary", "read_flags", "read_plan", "read_record", "reasons",
    "refuse_contradictions", "replay", "replica_sizes", "result_document", "runs_on", "schedule_of",
    "searched_at_risk", "self_contained", "simpler_within", "solution_of", "solve", "solve_beside",
    "solved_document", "start", "trace", "usual_spread", "whole_problem", "with_decisions", "with_first_plan",
    "with_target", "with_unknown",
]  # fmt: skip
