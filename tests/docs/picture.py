"""The README's picture: the cluster and the first second of the timeline of a plan, as the report draws them.

`python -m tests.docs.picture` writes it to docs/images, for light and for dark screens; a test compares.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import nest
import tests.bundled  # noqa: F401
from nest.hooks.registry import registry
from nest.public.planning import replay
from nest_page.cluster import cluster_figure
from nest_page.page_of_plan import subject
from nest_page.palette import DARK, HUES, LIGHT, ON_HUE, style_sheet
from nest_page.records import Subject
from nest_page.rendering import _environment
from nest_page.svg import element, joined, number, text
from nest_page.task_table import STYLES, TaskTable
from nest_page.timeline import timeline_figure
from nest_page.timeline_drawing import Windows, patterns
from tests.docs.document import REPOSITORY

FOLDER = REPOSITORY / "docs" / "images"
PROBLEM = REPOSITORY / "examples" / "llama-3-70b-on-128-h100" / "problem.yaml"
SECONDS = 1.2
"""Of the timeline: the pipeline fills, and the first backward passes begin."""

SIZE = 0
"""Which of the drawings of the report: that for large screens."""

ROOM, HEAD, KEY = 16.0, 22.0, 26.0
"""Around the picture, above a drawing, and below the legend, px."""


def pictures() -> Mapping[str, str]:
    """The files by name."""
    plan = nest.solve(PROBLEM)
    drawn, width, height = _drawn(subject(plan, registry()))
    return {
        f"plan-{name}.svg": _file(drawn, width, height, colours) for name, colours in (("light", LIGHT), ("dark", DARK))
    }


def _drawn(of: Subject) -> tuple[str, float, float]:
    """The elements of both drawings, below each other, and the size of the picture."""
    table_replay = replay(of.instance, of.solution)
    table = TaskTable.of(table_replay.timeline.tasks, len(table_replay.stages))
    stages = tuple(range(table.stages))
    (cluster,) = cluster_figure(of).sizes[SIZE]
    (timeline,) = timeline_figure(table_replay, table, Windows(stages, ((0.0, SECONDS),))).sizes[SIZE]
    size, replicas = of.instance.cluster.size, of.plan.data_parallel
    parts, below = [], ROOM
    titles = (
        f"{size} GPUs, numbered by pipeline stage; the first of {replicas} replicas has an outline",
        f"The first {SECONDS:g} s of the step; numbers are micro-batches, percentages the idle share of the whole step",
    )
    for title, drawing in zip(titles, (cluster, timeline), strict=True):
        parts.append(text(ROOM, below + 12, title, "strong"))
        below += HEAD
        if drawing is timeline:
            parts.append(joined(_legend(table, below)))
            below += KEY
        parts.append(element("g", drawing.body, transform=f"translate({number(ROOM)} {number(below)})"))
        below += drawing.height + ROOM
    return str(patterns() + joined(parts)), max(cluster.width, timeline.width) + 2 * ROOM, below


def _legend(table: TaskTable, top: float) -> Iterator[str]:
    left = ROOM
    shown = [(f"task-{STYLES[style][0]}", STYLES[style][1]) for style in table.used_styles()]
    for style, name in (*(key for key in shown if key[0] in ("task-forward", "task-backward")), ("idle", "idle")):
        yield element("rect", x=left, y=top + 2, width=12, height=12, class_=style)
        yield text(left + 18, top + 12, name, "tick")
        left += 34 + 6.7 * len(name)


def _file(body: str, width: float, height: float, colours: Mapping[str, str]) -> str:
    values = {**colours, **HUES, "on-hue": ON_HUE}
    rules = re.sub(r"var\(--([\w-]+)\)", lambda match: values[match[1]], _rules(body))
    style = f"svg{{background:{colours['page']}}}.drawing{{font:12px system-ui,sans-serif}}{rules}"
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    label = "A plan: the pipeline stage of every GPU, and what each stage does in the first second of a training step"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" {size} role="img" aria-label="{label}">'
    return f"{start}\n<style>{style}</style>\n{body}\n</svg>\n"


def _rules(body: str) -> str:
    """The report's rules for classes that the picture has."""
    sheets = [_environment().get_template(name).render() for name in ("page.css", "charts.css")]
    used = set(re.findall(r"[\w-]+", " ".join(re.findall(r'class="([^"]*)"', body)))) | {"drawing"}
    kept = []
    for selector, rule in re.findall(r"^([^{}@]*)\{([^{}]*)\}$", "\n".join([style_sheet(), *sheets]), re.MULTILINE):
        classes = re.findall(r"\.([\w-]+)", selector)
        if classes and set(classes) <= used and selector != ".drawing":
            kept.append(f"{selector}{{{rule}}}")
    return "".join(kept)


def write() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        Path(FOLDER / name).write_text(svg)


if __name__ == "__main__":
    write()
