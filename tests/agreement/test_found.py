"""Small problems on which the planner once disagreed with the oracle."""

from tests.agreement.compare import complaint, disagreements


def problem(candidates: list[dict], layers: int, **rest) -> dict:
    """A chain on four devices."""
    return {
        "nest": 1,
        "cluster": {"memory": 1.0, "levels": [{"name": "node", "fanout": 4, "bandwidth": 10.0, "latency": 0.0}]},
        "profile": {
            "layers": [f"layer {i}" for i in range(layers)],
            "edges": [[i, i + 1] for i in range(layers - 1)],
            "candidates": candidates,
        },
        **rest,
    }


def candidate(samples: int, modes: dict[str, list[float]]) -> dict:
    """One device, a second a layer, without state; modes by what they keep of each layer."""
    [layers] = {len(first) for first in modes.values()}
    nothing = [0.0] * layers
    return {
        "name": f"mb{samples}",
        "degrees": {"tp": 1},
        "width": 1,
        "samples": samples,
        "forward": [1.0] * layers,
        "backward": nothing,
        "state": {},
        "recompute": {
            mode: {"extra": nothing, "first": first, "more": nothing, "peak": nothing, "stash_inputs": False}
            for mode, first in modes.items()
        },
        "edge_bytes": [1.0] * (layers - 1),
    }


def examine(found: dict) -> None:
    wrong = disagreements(found)
    assert not wrong, complaint("found before", found, wrong)


def test_each_stage_fits_in_a_mode_of_its_own_and_the_whole_model_in_none():
    modes = {"none": [3.0, 0.0], "full": [0.9, 1.35]}
    examine(problem([candidate(1, modes)], 2, training={"global_batch": 2}))


def test_no_mode_is_allowed_and_no_constraint_is_to_blame():
    candidates = [candidate(1, {"full": [0.5]}), candidate(2, {"none": [0.5]})]
    rest = {"training": {"global_batch": 3}, "search": {"recompute": ["none"]}}
    examine(problem(candidates, 1, **rest))
    examine(problem(candidates, 1, **rest | {"search": {"recompute": ["none"], "mixed": True}}))
