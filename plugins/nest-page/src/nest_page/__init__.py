"""Pages: a plan, or the rows of a study, as one HTML file (`nest report`).

Belongs here: figures, templates, and which questions a page asks. Does not: how they are answered.
"""

from typing import Any

from nest.hooks import hook


@hook
def nest_commands(app: Any) -> None:
    """`nest report`."""
    from nest_page.commands import report

    app.command("report")(report)
