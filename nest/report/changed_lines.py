"""Difference of two exported files, in lines of the user's own file."""

import re

MOST_LINES = 12  # Lines that show a change.

_FRAME = re.compile(r'#.*|"?\$\{\w+\[@\]\}"?|\w+=\(|[\[\]{}()]*')
"""Lines of a file without content: comments, and frames of an array."""

_BATCH = re.compile(r"(global|train)[-_]batch[-_]size\b")
"""A line with the global batch, which a framework without it derives from the micro-batch and the replicas."""

Lines = tuple[str, ...]
Files = tuple[str, Lines, Lines]
"""Name of an exporter's first file, its lines, and the other files that it names."""


def content_of(file: str) -> Lines:
    """Lines of a file with content."""
    lines = (line.strip().rstrip(",") for line in file.splitlines())
    return tuple(line for line in lines if not _FRAME.fullmatch(line))


def flag_of(line: str) -> str:
    """Flag or key of a line."""
    return line.split()[0].partition("=")[0]


def changed_lines(before: Files, after: Files, own: str | None, *, batches: bool) -> tuple[Lines, Lines] | None:
    """Removed and added lines; None: they are many, or of another file, or not in the user's.

    Args:
        before: the exporter's files of the run.
        after: those of the changed run.
        own: the user's file; None: there is none, and every line may be removed.
        batches: whether the number of micro-batches changes, so that the global batch must be given.
    """
    (_, old, old_named), (_, new, new_named) = before, after
    removed, added = [line for line in old if line not in new], [line for line in new if line not in old]
    if batches:
        added += [line for line in new if _BATCH.search(line) and line not in added and not _has(own, line)]
    replaced = {flag_of(line) for line in added}
    unseen = {line for line in removed if not _has(own, line)}
    removed = [_as_own(line, own or "") for line in removed if line not in unseen]
    many = not 0 < len(removed) + len(added) <= MOST_LINES
    lost = (line for line in unseen if flag_of(line) not in replaced and not _BATCH.search(line))
    elsewhere = old_named != new_named or any(lost)
    return None if many or elsewhere else (tuple(removed), tuple(added))


def _has(own: str | None, line: str) -> bool:
    """Whether the user's file, if there is one, names the flag of a line."""
    flag = flag_of(line).strip('-":').replace("_", "-")
    return own is None or re.search(rf"(?<!\w)(?<!\w-){re.escape(flag)}(?![\w-])", own.replace("_", "-")) is not None


def _as_own(line: str, own: str) -> str:
    """The line of the user's file, where a key has another value there, such as -1 for the rest of the devices."""
    key = rf"^[ \t]*({re.escape(flag_of(line))}[ \t]*[:=][ \t]*[^\s#][^\n#]*?)[ \t]*\\?(?:#.*)?$"
    return line if line in own else next(iter(re.findall(key, own, re.MULTILINE)), line)
