"""The batch over time: what every stage does when, and what it holds then."""

from nest.errors import InputError
from nest.reporting.records import Section
from nest.reporting.subject import Subject
from nest.reporting.timeline import batch_figures
from nest.simulate.replay import replay


def batch(subject: Subject) -> Section:
    """The section: a replay of the plan, drawn; of a schedule that cannot be replayed, the reason."""
    name, title = "timeline", "Timeline"
    try:
        found = replay(subject.instance, subject.solution)
    except InputError as error:
        return Section(name, title, paragraphs=(f"This batch cannot be replayed: {error}",))
    told = "Every pass of the batch, for Perfetto (ui.perfetto.dev): `nest simulate PLAN --trace trace.json`"
    priced = subject.priced
    figures = batch_figures(found, priced.device_memory, [stage.memory for stage in priced.stages])
    return Section(name, title, paragraphs=(f"{told}.",), figures=figures)
