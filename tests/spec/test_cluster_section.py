"""What a `cluster` section may say of pools and of generated networks, and what of it contradicts the rest."""

from typing import Any

import pytest

from nest.errors import InputErrors
from nest.io import structure
from nest.spec import ClusterSpec
from nest.spec.topology import FatTreeSpec

LEVELS = [{"fanout": 8, "link": "nvlink4"}]


def cluster(first: dict[str, Any], second: dict[str, Any], **between: Any) -> dict[str, Any]:
    pools = [{"name": name, "levels": LEVELS, **each} for name, each in (("new", first), ("old", second))]
    return {"pools": pools, "between": [{"pools": ["new", "old"], "bandwidth": "10 GB/s", **between}]}


@pytest.mark.parametrize(
    "written",
    [
        cluster({}, {}),
        cluster({}, {}, egress=0.02),
        cluster({"zone": "a"}, {"zone": "b"}, egress=0.02),
        cluster({"zone": "a"}, {}, egress=0.02),
        cluster({"hosts": ["h0"]}, {"hosts": ["h1"]}),
    ],
)
def test_pools_of_several_places(written: dict[str, Any]) -> None:
    assert len(structure(written, ClusterSpec).pools or ()) == 2


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            cluster({"zone": "a"}, {"zone": "a"}, egress=0.02),
            "between[0].egress is paid between zones, and both pools stand in one.",
        ),
        (cluster({"hosts": ["h0", "h1"]}, {"hosts": ["h1"]}), "pools[1].hosts names 'h1', as does pools[0]."),
        (cluster({}, {"name": "new"}), "pools[1].name is 'new', the name of an earlier pool."),
        (cluster({}, {}, pools=["new", "new"]), "between[0].pools must name two different pools."),
        ({**cluster({}, {}), "levels": LEVELS}, "levels and pools exclude each other; give it in each pool."),
    ],
)
def test_pools_that_contradict_each_other(written: dict[str, Any], told: str) -> None:
    with pytest.raises(InputErrors) as error:
        structure(written, ClusterSpec)
    assert told in error.value.problems


@pytest.mark.parametrize(("tree", "tiers"), [({"k": 4}, 3), ({"fanout": [4, 2]}, 2), ({"fanout": [8]}, 1)])
def test_a_tier_below_the_top_may_be_tapered(tree: dict[str, Any], tiers: int) -> None:
    written = {**tree, "bandwidth": "50 GB/s"}
    below = [2.0] * (tiers - 1)
    assert structure({**written, "oversubscription": below}, FatTreeSpec).oversubscription == tuple(below)
    with pytest.raises(InputErrors, match=f"has {tiers} items; below the top there are {tiers - 1} tiers"):
        structure({**written, "oversubscription": [2.0] * tiers}, FatTreeSpec)
