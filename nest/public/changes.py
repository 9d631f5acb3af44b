"""For questions about a plan, and plans of others: a changed problem solved or priced, and words on both."""

from nest.catalogue.nodes import with_levels
from nest.deployment.limits import degrees_of
from nest.formulate.decisions import contributors, decisions, on_other_problem
from nest.formulate.fixed_plan import decided_instance, fixed_plan
from nest.formulate.from_flags import KEPT
from nest.formulate.instance import build_instance
from nest.formulate.modes import recomputes_parts
from nest.formulate.network import by_levels_notice
from nest.formulate.pools import one_run_each, takes_pools
from nest.formulate.risk import accepted_risk
from nest.formulate.shard import USUAL_MICRO_BATCHES, participating
from nest.hooks.calls import PluginError, TimedOut, attribute, call_limit
from nest.hooks.kinds import KINDS
from nest.hooks.loader import only_own
from nest.plan.check import check
from nest.plan.document import document
from nest.plan.layout import runs_of_stages
from nest.plan.legality import permission_violations, structure_violations
from nest.report.decisions import (
    Decided,
    decision_text,
    degrees_text,
    difference,
    differs,
    in_usual_order,
    ranges,
    values_of,
    whole,
)
from nest.report.other_plans import causes, grown, less_bandwidth, why
from nest.report.plan_summary import SHARE_NAMES, figures, needed_memory, trained_text, upper_memory
from nest.report.text.stage_tables import MEMORY_NAMES, MOST_ROWS
from nest.reuse import once
from nest.solve.dp.listing import admitted
from nest.solve.dp.rules import BESIDE_CANDIDATES
from nest.solve.dp.tables import is_alike
from nest.whatif.changes import changes_of
from nest.whatif.disk_cache import kept
from nest.whatif.engines import engine_called, processes
from nest.whatif.floors import never_slower
from nest.whatif.nodes import Nodes
from nest.whatif.parameters import PLENTY, Parameter, parameters, with_memory
from nest.whatif.solver import Solver, at_most, devices_used, problem_of, require_held
from nest.whatif.starts import MOST_STARTS, WarmStarts

__all__ = [
    "BESIDE_CANDIDATES", "KEPT", "KINDS", "MEMORY_NAMES", "MOST_ROWS", "MOST_STARTS", "PLENTY", "SHARE_NAMES",
    "USUAL_MICRO_BATCHES", "Decided", "Nodes", "Parameter", "PluginError", "Solver", "TimedOut", "WarmStarts",
    "accepted_risk", "admitted", "at_most", "attribute", "build_instance", "by_levels_notice", "call_limit",
    "causes", "changes_of", "check", "contributors", "decided_instance", "decision_text", "decisions",
    "degrees_of", "degrees_text", "devices_used", "difference", "differs", "document", "engine_called",
    "figures", "fixed_plan", "grown", "in_usual_order", "is_alike", "kept", "less_bandwidth", "needed_memory",
    "never_slower", "on_other_problem", "once", "one_run_each", "only_own", "parameters", "participating",
    "permission_violations", "problem_of", "processes", "ranges", "recomputes_parts", "require_held",
    "runs_of_stages", "structure_violations", "takes_pools", "trained_text", "upper_memory", "values_of",
    "whole", "why", "with_levels", "with_memory",
]  # fmt: skip
