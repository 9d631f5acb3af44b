"""Files of the field, gathered in the shared test data: what nest makes of each, and how many it imports."""

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from nest.errors import InputError
from nest.formulate.cluster import from_file
from nest.hooks.registry import registry
from nest.spec import ClusterSpec

FOLDER = Path(__file__).resolve().parents[5] / "shared" / "data" / "topologies"

BEGIN = "<!-- counted over the shared test data by plugins/nest-networks/tests/networks_tests/field_files.py -->"
END = "<!-- end of what is counted -->"


@frozen
class Outcome:
    """What became of one file.

    Attributes:
        path: relative to the folder of all.
        cluster: the section it became; None: it was refused.
        reason: why it was refused; empty: it was not.
    """

    path: Path
    cluster: ClusterSpec | None
    reason: str = ""


def outcomes() -> Iterator[Outcome]:
    """Every file but notes on where they are from, in the order of their names."""
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            yield outcome(path)


def outcome(path: Path) -> Outcome:
    """What becomes of one file."""
    name = path.relative_to(FOLDER)
    try:
        return Outcome(name, from_file(ClusterSpec(topology=path.name), registry(), path.parent))
    except InputError as error:
        return Outcome(name, None, str(error))


def refreshed(page: str) -> str:
    """`page` with new counts between the marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{counts()}\n{END}{after}"


def counts() -> str:
    """Counts of all files."""
    found = list(outcomes())
    refused = sum(each.cluster is None for each in found)
    return f"{len(found)} files, {len(found) - refused} imported, {refused} refused.\n"
