"""Files of the field, gathered in the shared test data: what nest makes of each, and of each kind in a table."""

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

    @property
    def kind(self) -> str:
        """The folder, which has files of one kind."""
        return self.path.parent.as_posix()


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
    """`page` with the table between the marks made anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


def table() -> str:
    """Counts by kind."""
    found = list(outcomes())
    rows = ["| files | number | levels | graph or matrix | refused |", "|---|---|---|---|---|"]
    for kind in dict.fromkeys(each.kind for each in found):
        mine = [each for each in found if each.kind == kind]
        taken = [each.cluster for each in mine if each.cluster is not None]
        levels = sum(cluster.levels is not None for cluster in taken)
        counts = (len(mine), levels, len(taken) - levels, len(mine) - len(taken))
        rows.append(f"| `{kind}` | {' | '.join(map(str, counts))} |")
    refused = sum(each.cluster is None for each in found)
    return "\n".join(rows) + f"\n\n{len(found)} files, {len(found) - refused} imported, {refused} refused.\n"
