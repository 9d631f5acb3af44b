"""The exporter."""

from collections.abc import Mapping

from nest.deployment import Deployment, Limits
from nest.errors import InputError
from nest.exporters.checked import (
    checked,
    problem_of,
    refuse_formats,
    refuse_layers,
    refuse_optimizer,
    refuse_precision,
)
from nest.exporters.pipeline_actions import actions, csv_text
from nest.exporters.torchtitan.decisions import SCHEDULE_FILE
from nest.exporters.torchtitan.limits import beyond_new, beyond_old, limits_of
from nest.exporters.torchtitan.models import LLAMA, NEW, OLD, family, flavor, registration
from nest.exporters.torchtitan.python import python_text
from nest.exporters.torchtitan.toml import IMPORTED, toml_file
from nest.hooks.architectures import architecture
from nest.spec import Architecture, PlanDocument, Problem

TOML_FILE = "torchtitan.toml"
PYTHON_FILE = "torchtitan_plan.py"


class Torchtitan:
    """Writes what torchtitan 0.2.2 and 0.3.0 read: each of the two where it can run the plan."""

    name = "torchtitan"
    summary = "torchtitan: TOML for 0.2, Python configuration for 0.3, pipeline schedule as CSV"

    def limits(self, problem: Problem) -> Limits:
        """What one of the versions can run.

        Raises:
            InputError: torchtitan does not train in that precision, or with that optimizer.
        """
        refuse_layers(problem, self.name)
        refuse_precision(problem.training.precision, ("bf16", "fp32"), self.name)
        refuse_optimizer(problem.training.optimizer, ("adam", "adamw"), self.name)
        refuse_formats(problem.training, self.name, ("fp32",))
        return limits_of(problem)

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """`torchtitan.toml`, `torchtitan_plan.py` and, with a pipeline, `pipeline_schedule.csv`.

        Raises:
            InputError: torchtitan cannot run the plan, and why.
        """
        problem = problem_of(plan)
        shape = checked(plan, self.limits(problem), self.name)
        model = architecture(plan)
        beyond = {OLD: list(beyond_old(shape, model)), NEW: list(beyond_new(shape, model))}
        if all(beyond.values()):
            told = " and ".join(f"torchtitan {version} cannot: {reasons[0]}" for version, reasons in beyond.items())
            raise InputError(f"no version of torchtitan can run this plan: {told}.")
        files: dict[str, str] = {}
        if not beyond[OLD]:
            files[TOML_FILE] = toml_file(shape, problem, model, beyond[NEW])
            if model is not None and _unknown_llama(model):
                files[f"{IMPORTED}.py"] = registration(model, problem.model)
        if not beyond[NEW]:
            files[PYTHON_FILE] = python_text(shape, problem, model, beyond[OLD])
        return files | _schedule(shape)


def _unknown_llama(model: Architecture) -> bool:
    return family(model) == LLAMA and flavor(model, OLD) is None and not model.tied


def _schedule(shape: Deployment) -> dict[str, str]:
    """Without a pipeline there is nothing to order."""
    if shape.stages == 1:
        return {}
    return {SCHEDULE_FILE: csv_text(actions(shape.schedule, shape.stages, shape.chunks, shape.micro_batches))}
