"""The picture of the house in docs/explanation/house.md: rooms on floors, and arrows between them."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import networkx

from tests.docs.document import REPOSITORY

PAGE = Path("docs/explanation/house.md")
BEGIN, END = "<!-- drawn by tests/docs/rooms.py -->\n", "<!-- end of the drawing -->\n"


def floors() -> list[list[str]]:
    """The rooms of each floor of the import law, the highest first; built-ins have none."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    law = next(each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    every = [[room for room in line.split(" | ") if room in rooms()] for line in law["layers"]]
    return [floor for floor in every if floor]


def rooms() -> set[str]:
    """Packages of the core; `library` holds data alone."""
    return {path.parent.name for path in (REPOSITORY / "nest").glob("*/__init__.py")} | {"library"}


def built_ins() -> list[str]:
    """Rooms without a floor, which nobody imports."""
    return sorted(rooms() - {room for floor in floors() for room in floor} - {"library"})


def arrows() -> networkx.DiGraph:
    """Which room imports which, types included."""
    found = networkx.DiGraph()
    for path in (REPOSITORY / "nest").rglob("*.py"):
        room, *below = path.relative_to(REPOSITORY / "nest").parts
        if below:
            found.add_edges_from((room, other) for other in _imported(path) if other != room and other in rooms())
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("nest."):
            yield node.module.split(".")[1]


def drawn() -> str:
    """The picture in Mermaid: an arrow for each import that no other path of imports implies."""
    lines = ["```mermaid", "flowchart TD"]
    for number, floor in enumerate([*floors(), built_ins()], 1):
        name = "built-ins" if floor == built_ins() else f"floor {len(floors()) + 1 - number}"
        lines.append(f'  subgraph f{number}["{name}"]')
        lines += [f"    {room}" for room in floor]
        lines.append("  end")
    lines += [f"  {room} --> {other}" for room, other in sorted(networkx.transitive_reduction(arrows()).edges)]
    return "\n".join([*lines, "```", ""])


def refreshed(page: str) -> str:
    """`page` with today's picture."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + drawn() + END + rest.partition(END)[2]
