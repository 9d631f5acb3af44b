"""For commands: options, output and progress as nest's own commands have them."""

from nest.cli.catalogue import profiles
from nest.cli.options import (
    DEVICES_PER_NODE,
    FILES,
    JSON,
    NODES,
    PART,
    PLAN,
    RELEASE,
    STRICT_PLUGINS,
    TOKENS,
    VOCABULARY,
    ScriptCommand,
    changes_of,
    complete_clusters,
    complete_engines,
    complete_planners,
    count,
    launch_options,
    seconds,
    time_limit,
)
from nest.cli.output import (
    DONE,
    NO_PLAN,
    fail,
    note,
    note_assumed,
    note_once,
    screen,
    show,
    show_listing,
    show_paragraph,
    show_table,
    to_json,
    unwritten,
    warn,
    warn_of_plugins,
)
from nest.cli.progress import StepLine, clear_line, progress_line, share_line, spinner

__all__ = [
    "DEVICES_PER_NODE", "DONE", "FILES", "JSON", "NODES", "NO_PLAN", "PART", "PLAN", "RELEASE", "STRICT_PLUGINS",
    "TOKENS", "VOCABULARY", "ScriptCommand", "StepLine", "changes_of", "clear_line", "complete_clusters",
    "complete_engines", "complete_planners", "count", "fail", "launch_options", "note", "note_assumed",
    "note_once", "profiles", "progress_line", "screen", "seconds", "share_line", "show", "show_listing",
    "show_paragraph", "show_table", "spinner", "time_limit", "to_json", "unwritten", "warn", "warn_of_plugins",
]  # fmt: skip
