"""Every file of the field that was gathered is imported whole, or refused in a sentence that says why."""

import math
from pathlib import Path

import pytest

from nest.formulate.topology import network
from nest.hooks.registry import registry
from nest.spec import ClusterSpec
from networks_tests.field_files import BEGIN, FOLDER, outcome, refreshed
from tests.docs.document import REPOSITORY

FILES = [path for path in sorted(FOLDER.rglob("*")) if path.is_file() and path.suffix != ".md"]
PAGE = REPOSITORY / "docs" / "reference" / "topologies.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
@pytest.mark.slow
def test_it_is_imported_or_refused_with_a_reason(path: Path) -> None:
    found = outcome(path)
    if found.cluster is None:
        assert found.reason.startswith(str(path))
        assert found.reason.endswith((".", "?"))
        assert len(found.reason.removeprefix(str(path)).split()) > 4
        assert "\n" not in found.reason
        return
    _check_whole(found.cluster)


def _check_whole(cluster: ClusterSpec) -> None:
    """Levels as the solvers take them; hosts, where there are some, that share out their devices."""
    reduced = network(cluster, registry(), None)
    levels = getattr(reduced, "levels", None) or reduced.best.levels  # type: ignore[union-attr]
    devices = math.prod(level.fanout for level in levels)
    assert devices >= 1
    assert all(0 < level.bandwidth < 1e13 for level in levels)
    assert all(0 <= level.latency < 1 for level in levels)
    if cluster.hosts is not None:
        assert len(set(cluster.hosts)) == len(cluster.hosts)
        assert devices == len(cluster.hosts) * (cluster.devices_per_host or devices // len(cluster.hosts))


@pytest.mark.longer
@pytest.mark.usefixtures("shared")
def test_the_reference_counts_them() -> None:
    page = PAGE.read_text()
    assert BEGIN in page
    assert refreshed(page) == page, "python -m tests.docs.refresh docs/reference/topologies.md"
