"""Files and lines of each room, in the table of docs/explanation/house.md."""

import re
from pathlib import Path

from nest.hooks.bundled import bundled_modules
from tests.docs.document import REPOSITORY

PAGE = Path("docs/explanation/house.md")
ROW = re.compile(r"^\| (?P<rooms>`[^|]*?) \| (?P<files>[\d,]+) \| (?P<lines>[\d,]+) \|", re.MULTILINE)
TOTAL = re.compile(r"(?P<lines>[\d,]+) lines in (?P<files>[\d,]+) files")


def sizes() -> dict[str, tuple[int, int]]:
    """Files and lines of Python of every room right below `nest` and of every bundled package, by their names."""
    found: dict[str, tuple[int, int]] = {}
    places = {path: path.relative_to(REPOSITORY / "nest").parts[0] for path in (REPOSITORY / "nest").rglob("*.py")}
    for package in bundled_modules():
        name = package.replace("_", "-")
        places |= dict.fromkeys((REPOSITORY / "plugins" / name / "src").rglob("*.py"), name)
    for path, room in sorted(places.items()):
        files, lines = found.get(room, (0, 0))
        found[room] = files + 1, lines + len(path.read_text().splitlines())
    return found


def of_row(rooms: str) -> tuple[int, int]:
    """Files and lines of the rooms in the first cell of a row."""
    named = [sizes()[room] for room in re.findall(r"`([\w.-]+)`", rooms)]
    return sum(files for files, _ in named), sum(lines for _, lines in named)


def refreshed(page: str) -> str:
    """`page` with today's numbers."""
    every = sizes().values()
    page = TOTAL.sub(f"{sum(each for _, each in every):,} lines in {sum(each for each, _ in every):,} files", page)
    return ROW.sub(lambda row: "| {} | {:,} | {:,} |".format(row["rooms"], *of_row(row["rooms"])), page)
