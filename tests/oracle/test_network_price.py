"""Paths, rings, products and placed plans whose numbers are worked out by hand."""

from tests.oracle.check import same
from tests.oracle.network_price import price
from tests.oracle.rings import Ring, Rings
from tests.oracle.topology import Topology


def links(*rows, **more) -> dict:
    """Node-link data of rows `one two bandwidth latency`; names that begin with s are switches."""
    names = sorted({end for one, two, _, _ in rows for end in (one, two)})
    nodes = [{"id": name, **({"kind": "switch"} if name.startswith("s") else {})} for name in names]
    edges = [{"source": a, "target": b, "bandwidth": wide, "latency": slow} for a, b, wide, slow in rows]
    return {"nodes": nodes, "edges": edges, **more}


def grid(*shape: int, closes: bool = False, bandwidth: float = 1.0, latency: float = 0.0) -> dict:
    return {"torus" if closes else "mesh": {"shape": list(shape), "bandwidth": bandwidth, "latency": latency}}


def through(network: Topology, one: int, two: int) -> list[int]:
    """The nodes that a path goes through, its ends included."""
    return [network.devices[one], *(network.links[index].target for index in network.path[one][two])]


def test_the_widest_of_the_shortest_paths_is_taken():
    # a - b - d is narrow, a - c - d wide, a - e - f - d wider and longer.
    wide = links(
        ("a", "b", 1, 1), ("b", "d", 9, 1), ("a", "c", 3, 2), ("c", "d", 4, 5), ("a", "e", 9, 0), ("e", "f", 9, 0),
        ("f", "d", 9, 0),
    )  # fmt: skip
    network = Topology(wide)
    assert through(network, 0, 3) == [0, 2, 3]
    assert (network.bandwidth[0][3], network.latency[0][3]) == (3, 7)
    assert network.message(6, 0, 3) == 7 + 2
    assert network.message(0, 0, 3) == 0


def test_small_buffers_take_the_quicker_circuit_and_large_ones_the_wider():
    #        0-1, 2-3: wide and quick; 0-2, 1-3: narrow and quick; 0-3, 1-2: wide and slow.
    rows = [("a", "b", 8, 1), ("c", "d", 8, 1), ("a", "c", 1, 1), ("b", "d", 1, 1), ("a", "d", 8, 3), ("b", "c", 8, 3)]
    rings = Rings(Topology(links(*rows)))
    assert (rings.cheapest([0, 1, 2, 3], 0.1).latency, rings.cheapest([0, 1, 2, 3], 0.1).bandwidth) == (1, 1)
    assert (rings.cheapest([3, 2, 1, 0], 100).latency, rings.cheapest([3, 2, 1, 0], 100).bandwidth) == (3, 8)


def test_rings_run_one_dimension_after_the_other():
    """Two by three: first the three with the whole buffer, then the two with a third of it, or the other way round."""
    rings = Rings(Topology(grid(3, 2, closes=True, bandwidth=4, latency=1)))
    ring = rings.cheapest(range(6), 24)
    assert same(ring.phase(24), (2 + 1) * 1 + (2 / 3 * 24 + 1 / 2 * 8) / 4)
    # The flat ring takes five steps for as many bytes.
    assert same(rings.circuits(tuple(range(6)))[0].phase(24), 5 * 1 + 5 / 6 * 24 / 4)
    # Dimensions in the order of the file: the three before the two.
    network = rings.topology
    crossed = {
        (network.links[index].source, network.links[index].target): share for index, share in ring.shares.items()
    }
    assert same(crossed.get((0, 2), 0) + crossed.get((2, 0), 0), 2 / 3)
    assert same(crossed[0, 1], 1 / 2 * 1 / 3)


def on_all_ports(topology: dict, members) -> Ring:
    return min(Rings(Topology(topology), all_ports=True).ways(members), key=lambda ring: ring.phase(1000))


def test_part_of_a_ring_goes_round_for_large_buffers_and_to_its_end_and_back_for_small_ones():
    rings = Rings(Topology(grid(8, closes=True, bandwidth=1, latency=1)), all_ports=True)
    # 0 2 4 5 3 1 has steps of two hops, and its way back takes the same links; 0 1 2 3 4 5 has one of three hops.
    assert same(rings.cheapest(range(6), 6).phase(6), 5 * 2 + 5 / 6 * 6)
    assert same(rings.cheapest(range(6), 600).phase(600), 5 * 3 + 5 / 6 * 600 / 2)


def test_all_ports_send_a_part_along_each_rotation_of_the_dimensions():
    # Half of the buffer goes along the two first, then the three; of the other half it is the other way round. The
    # three are a ring, half in each direction.
    ring = on_all_ports(grid(3, 2, closes=True, bandwidth=4), range(6))
    first = (1 / 2 * 20 + 2 / 3 * 10 / 2) / 4
    second = (2 / 3 * 20 / 2 + 1 / 2 * (20 / 3)) / 4
    assert same(ring.phase(40), max(first, second))


MODE = {"extra": [0, 0], "first": [0, 0], "more": [0, 0], "peak": [0, 0]}


def problem_of(topology: dict, *, width: int = 1, ranks=(0,), tensor: float = 8, gradients: float = 6, **training):
    group = {
        "ranks": list(ranks),
        "weights": [3, 0],
        "gradients": [gradients, 0],
        "optimizer": [0, 0],
        "update": [2, 0],
    }
    candidate = {
        "name": "c", "degrees": {}, "width": width, "samples": 1, "forward": [1, 1], "backward": [2, 2],
        "state": {"dense": group}, "recompute": {"none": MODE}, "edge_bytes": [tensor],
    }  # fmt: skip
    return {
        "nest": 1,
        "training": {"global_batch": 4, "schedule": "gpipe"} | training,
        "cluster": {"memory": 100, "topology": topology},
        "profile": {"layers": ["a", "b"], "edges": [[0, 1]], "candidates": [candidate]},
    }


def plan_of(devices, zeros=(0, 0)) -> dict:
    split = [[0], [1]] if len(devices[0]) == 2 else [[0, 1]]
    stages = [
        {"layers": layers, "candidate": "c", "recompute": "none", "zero": zero}
        for layers, zero in zip(split, zeros, strict=False)
    ]
    return {"replicas": len(devices), "schedule": "gpipe", "stages": stages, "devices": devices}


def test_a_boundary_waits_for_its_slowest_counterparts():
    # Replicas 0 -> 1 over a wide link and 3 -> 2 over a narrow one.
    topology = links(("a", "b", 8, 1), ("c", "d", 4, 1), ("b", "c", 100, 0))
    found = price(problem_of(topology, gradients=0), plan_of([[[0], [1]], [[3], [2]]]))
    # Each direction of each link carries the tensor once: 8 / 4 is less than the stage's own time.
    assert [stage["time"] for stage in found["stages"]] == [3 + (1 + 2), 3 + (1 + 2)]
    assert found["micro_batches"] == 2
    assert found["batch_time"] == 1 * 6 + 12 + 2


def test_ranks_send_to_their_counterparts():
    topology = links(("a", "b", 8, 0), ("b", "c", 8, 0), ("c", "d", 8, 0))
    problem = problem_of(topology, width=2, gradients=0)
    # Rank 0: a -> b and rank 1: c -> d; or rank 0: a -> d, three hops, and rank 1: c -> b.
    assert price(problem, plan_of([[[0, 2], [1, 3]]]))["stages"][0]["time"] == 3 + 1
    crossed = price(problem, plan_of([[[0, 2], [3, 1]]]))
    # b to c carries the tensor of rank 0 towards d and the gradients of rank 1: 16 bytes at 8 per second.
    assert crossed["stages"][0]["time"] == 3 + 1
    slow = problem_of(links(("a", "b", 8, 0), ("b", "c", 1, 0), ("c", "d", 8, 0)), width=2, gradients=0)
    assert price(slow, plan_of([[[0, 2], [3, 1]]]))["stages"][0]["time"] == (8 + 8) / 1


def test_a_full_link_holds_up_the_stages_that_use_it_alone():
    """A line of four: two replicas of two stages whose messages all cross the link in the middle."""
    topology = links(("a", "b", 100, 0), ("b", "c", 1, 0), ("c", "d", 100, 0))
    problem = problem_of(topology, gradients=0)
    far = price(problem, plan_of([[[0], [2]], [[1], [3]]]))
    # Alone a message takes 8 seconds; the link carries two activations one way, two gradients the other.
    assert [stage["time"] for stage in far["stages"]] == [16, 16]
    near = price(problem, plan_of([[[0], [1]], [[2], [3]]]))
    assert [stage["time"] for stage in near["stages"]] == [3 + 0.08, 3 + 0.08]


def test_zero_loads_links_in_every_micro_batch_only_from_stage_two_on():
    problem = problem_of(grid(4, bandwidth=1), gradients=6, tensor=0)
    plan = [[[0], [1]], [[2], [3]]]
    # Stage a is on devices 0 and 2, two hops apart; half of 6 bytes each way once per batch, twice for an all-reduce.
    found = price(problem, plan_of(plan))
    assert found["stages"][0]["time"] == 3
    assert found["stages"][0]["sync_time"] == 2 * 3 + 2
    scattered = price(problem, plan_of(plan, zeros=(2, 0)))
    assert scattered["stages"][0]["time"] == 3 + 3
    assert scattered["stages"][0]["sync_time"] == 1 / 2 * 3 + 2 / 2
    gathered = price(problem, plan_of(plan, zeros=(3, 0)))
    assert gathered["stages"][0]["time"] == 3 + 3 + 2 * 1.5
    assert gathered["stages"][0]["sync_time"] == 2 / 2


def test_messages_and_collectives_add_up_on_a_link():
    """Stage a on 0 and 2 scatters over 0-1 and 1-2, over which its tensors go as well."""
    problem = problem_of(grid(4, bandwidth=1), gradients=6, tensor=4, exposed=0.0)
    found = price(problem, plan_of([[[0], [1]], [[2], [3]]], zeros=(2, 0)))
    # 0-1: 4 bytes there, 4 back; of the scatter 3 bytes each way. Alone, stage a would take 3 + 4.
    assert found["stages"][0]["time"] == max(3 + 4, 4 + 3)
    plan = plan_of([[[0], [2]], [[1], [3]]], zeros=(2, 0))
    # 0-1: 4 of its own message and 3 of the scatter; 1-2 carries both messages, and nothing of the scatter.
    assert [stage["time"] for stage in price(problem, plan)["stages"]] == [8, 8]
    # With messages of 6 bytes the link in the middle has 12.
    problem["profile"]["candidates"][0]["edge_bytes"] = [6]
    assert [stage["time"] for stage in price(problem, plan)["stages"]] == [12, 12]


def test_the_slowest_of_the_sets_that_hold_the_same_counts():
    """A block of two ranks: rank 0 of both replicas is one hop apart, rank 1 three."""
    problem = problem_of(grid(4, bandwidth=1, latency=1), width=2, gradients=6)
    near = plan_of([[[1, 0]], [[2, 3]]])
    assert price(problem, near)["stages"][0]["sync_time"] == 2 * (3 + 3) + 2
    whole = problem_of(grid(4, bandwidth=1, latency=1), width=2, ranks=(0, 1), gradients=6)
    # All four in one set, in a line: 0 1 3 2 or so, two hops at the most.
    assert price(whole, near)["stages"][0]["sync_time"] == 2 * (3 * 2 + 3 / 4 * 6) + 2
