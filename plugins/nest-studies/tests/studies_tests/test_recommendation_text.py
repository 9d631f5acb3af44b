"""What is said of clusters that a training may run on."""

from nest_studies.clusters.recommendation import recommendation_text


def test_the_nearest_cluster_takes_as_many_times_as_long_as_is_allowed() -> None:
    nearest = {
        "nodes": 8, "time": 300.0, "low": None, "high": None, "fit_probability": 0.9, "device_hours": 5.0, "cost": None,
    }  # fmt: skip
    cluster = {"cluster": "small", "nodes": 8, "price": None, "reason": None, "nearest": nearest}
    none = dict.fromkeys(("fewest", "cheapest", "fastest"))
    document = {"within": 100.0, "tokens": 10**9, "met": False, "nearest": "small", "budget": None, "batch": 64}
    text = recommendation_text({**document, "clusters": [{**cluster, **none}]})
    assert "No cluster manages 1B tokens in 100 s. small is nearest: 8 of 8 nodes take 300 s" in text
    assert ", 3x as long" in text
    assert "data-parallel ranks" not in text
    rented = {**cluster, **none, "cluster": "p5.48xlarge-64"}
    text = recommendation_text({**document, "nearest": "p5.48xlarge-64", "clusters": [rented]})
    assert "`--cluster p5.48xlarge-128` has twice as many nodes" in text
    text = recommendation_text({**document, "clusters": [{**cluster, **none, "nodes": 9}]})
    assert "A global batch of 64 samples allows at most 64 data-parallel ranks" in text
