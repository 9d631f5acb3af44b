"""MkDocs hooks: pages that live outside docs/, and the command reference.

A link from docs/ to another file of the repository works on GitHub and in a checkout. For the site these files are
published too, below `repository/`, and links are turned to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"  # On the site, docs/index.md stands in its place.
COMMANDS = "reference/commands.md"
ROOTS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE", "CITATION.cff")
"""Files that the navigation names though no page may link to them."""

_ITEM = re.compile(r"([*+-]|\d+\.) ")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages lead to, and the command reference."""
    from mkdocs.structure.files import File

    waiting, seen = [*DOCS.rglob("*.md"), *(REPOSITORY / name for name in ROOTS)], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.is_relative_to(DOCS) and path != README:
            files.append(File.generated(config, site_path(path), abs_src_path=str(path)))
        if path.suffix == ".md":
            waiting += [found for target in _targets(path.read_text()) if (found := _file(path, target)) is not None]
    files.append(File.generated(config, COMMANDS, content="\n".join(command_reference())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between docs/ and the rest of the repository to where the site has them."""
    source = page.file.abs_src_path
    return markdown if source is None else turned(markdown, Path(source))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make empty cells of a table's head plain cells: a header without a name says nothing to who hears the page."""
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)


def turned(markdown: str, source: Path) -> str:
    """`markdown` of the file `source` with its links as the site needs them."""
    folder = Path(site_path(source)).parent

    def link(match: re.Match[str]) -> str:
        found, (_, mark, anchor) = _file(source, match[2]), match[2].partition("#")
        if found is None:
            return match[0]
        path = os.path.relpath(site_path(found), folder)
        return f"{match[1]}{path if found == README else path + mark + anchor}{match[3]}"

    parts = _CODE.split(_spaced(markdown))
    return "".join(_code(part) if index % 2 else _LINK.sub(link, part) for index, part in enumerate(parts))


def _spaced(markdown: str) -> str:
    """Lists as Python-Markdown wants them: behind an empty line, and four spaces a level, where GitHub takes two."""
    lines: list[str] = []
    fence, inside, loose, more = False, False, False, 0
    for line in markdown.splitlines():
        indent, marks = len(line) - len(line.lstrip()), line.lstrip().startswith("```")
        if not fence:
            item, before = _ITEM.match(line) is not None, lines[-1].strip() if lines else ""
            if item and before and (loose or not inside):
                lines.append("")
            ends = not indent and (marks or line.startswith(("#", "|")))
            inside = item or (inside and not ends and (not line.strip() or indent > 0 or bool(before)))
            loose = inside and not item and (loose or not line.strip())
            more = max(indent // 2 * 4 - indent, 0) if inside else 0
        fence ^= marks
        lines.append(" " * more + line if line.strip() else "")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Code as Python-Markdown wants it: unlike GitHub it splits no table at a bar in code, and shows a backslash."""
    return text if text.startswith("```") else text.replace("\\|", "|")


def site_path(path: Path) -> str:
    """The path of a file of the repository in the site's sources."""
    if path == README:
        return "index.md"
    return (
        path.relative_to(DOCS).as_posix()
        if path.is_relative_to(DOCS)
        else f"repository/{path.relative_to(REPOSITORY).as_posix()}"
    )


def _targets(text: str) -> Iterator[str]:
    for index, part in enumerate(_CODE.split(text)):
        if not index % 2:
            yield from (match[2] for match in _LINK.finditer(part))


def _file(source: Path, target: str) -> Path | None:
    """The file a link leads to; a folder's README or problem; None for addresses and anchors."""
    place = unquote(target.partition("#")[0])
    if not place or re.match(r"[a-z]+:", place):
        return None
    path = (source.parent / place).resolve()
    if path.is_dir():
        path = next((path / name for name in ("README.md", "problem.yaml") if (path / name).exists()), path)
    return path if path.is_file() and path.is_relative_to(REPOSITORY) else None


def command_reference() -> Iterator[str]:
    """The lines of the page of all commands, from the commands themselves."""
    import typer

    from nest.cli.app import app

    yield from ("# Commands", "", "Every command and its options, as `nest COMMAND --help` prints them.")
    yield "[The command line](command-line.md) explains what all commands share."
    yield from _command("nest", typer.main.get_command(app), 2)


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    context = command.context_class(command, info_name=name)
    if name != "nest":
        usage = " ".join(command.collect_usage_pieces(context))
        yield from (
            "",
            f"{'#' * min(level, 4)} `{name}`",
            "",
            *_paragraphs(command.help),
            "",
            "```text",
            f"{name} {usage}",
            "```",
        )
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    if rows := [_row(each, context) for each in shown]:
        yield from ("", "| argument or option | meaning |", "|---|---|", *rows)
    for each in command.list_commands(context) if hasattr(command, "list_commands") else ():
        below = command.get_command(context, each)
        if not below.hidden:
            yield from _command(f"{name} {each}", below, level + (name != "nest"))


def _row(parameter: Any, context: Any) -> str:
    """A row of a table: an argument or option, and its help."""
    record = parameter.get_help_record(context) or (parameter.make_metavar(context), parameter.help or "")
    name, told = (" ".join(part.split()) for part in record)
    return f"| `{name}` | {_escaped(told)} |"


def _paragraphs(text: str | None) -> list[str]:
    return [_escaped(line) for line in (text or "").replace("\b", "").splitlines()]


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*").replace("|", "\\|")
