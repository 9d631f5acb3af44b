"""Every rule's bound against the least price of all plans of a case, for random small instances."""

from itertools import combinations, islice, product
from math import inf
from random import Random

import pytest

from nest_certificate import rules
from tests.seeds import seeds

MOST_PLANS = 500
"""Cases with more plans are left out."""


def instance_of(seed):
    """Random instance of up to four layers on two or four devices; some have chunks."""
    random = Random(f"rules {seed}")
    chunks = random.choice([1, 1, 2])
    layers, levels = 4 if chunks == 2 else random.choice([2, 3, 4]), random.choice([1, 2])
    alike, busy, pieces = (random.random() < share for share in (0.5, 0.4, 0.3))

    def row(low, high, zero=0.1, count=layers):
        usual = random.uniform(low, high)
        other = (usual if alike and random.random() < 0.8 else random.uniform(low, high) for _ in range(count))
        return [0.0 if random.random() < zero else each for each in other]

    def mode(recomputes):
        low, high = (0.5, 2) if recomputes else (2, 4)
        found = {"extra": row(0.2, 1) if recomputes else [0.0] * layers}
        found |= {"first": row(low, high), "more": row(low, high), "peak": row(0, 2)}
        found["stash_inputs"] = recomputes and random.random() < 0.5
        return found | ({"busy": [row(0, 0.5) for _ in range(levels)]} if busy else {})

    def group(zero):
        found = {name: row(0, 5, zero) for name in ("weights", "gradients", "optimizer")} | {"ranks": [0]}
        found["update"] = row(0, 0.3, zero)
        return found | ({"pieces": row(0.5, 1, 0.4)} if pieces else {})

    parts = [f"full:{count}:none" for count in range(1, layers)] if random.random() < 0.5 else []
    candidate = {
        "name": "one", "width": random.choice([1, 1, levels]), "samples": 1, "choices": ["none", "full", *parts],
        "forward": row(0.5, 2), "backward": row(1, 3), "edge_bytes": row(0.5, 1, 0.2, layers - 1),
        "state": {"dense": group(0.1)} | ({"experts": group(0.6)} if random.random() < 0.3 else {}),
        "recompute": {"none": mode(False), "full": mode(True)},
        "gathered": random.choice([0.0, 1.0]),
    } | ({"busy": [row(0, 2) for _ in range(levels)]} if busy else {})  # fmt: skip
    name = "interleaved" if chunks == 2 else random.choice(["1f1b", "gpipe", "nest"])
    schedule = {"name": name, "chunks": chunks, "copies": 1, "staggered": False, "hides": random.random() < 0.3}
    return {
        "layers": layers, "tensors": [[layer, [layer + 1]] for layer in range(layers - 1)], "candidates": [candidate],
        "levels": [[2, random.uniform(1, 4), random.choice([0, 0.1])] for _ in range(levels)],
        "memory": random.uniform(10, 70), "reserve": 0.0, "global_batch": random.choice([2, 4]),
        "exposed": random.choice([0.0, 0.5, 1.0]), "exposed_often": random.choice([0.0, 0.5, 1.0]),
        "synchronisation": random.choice([1.0, 1.5]), "sharded_synchronisation": random.choice([0.5, 1.0, 1.5]),
        "uneven_batch": False, "hiding": random.random() < 0.3, "whole_gradients": random.random() < 0.2,
        "adapters": random.random() < 0.15, "rank_orders": ["pp-inner", "dp-inner"],
        "zero": random.choice([[0], [0, 1], [0, 1, 2, 3], [1, 3], [2, 3]]),
        "zero_degrees": random.choice([[None], [None, 2], [2]]),
        **{name: [[layer] for layer in range(layers)] for name in ("units", "blocks")},
        "recomputed_units": [[layer] for layer in range(random.choice([0, 1]), layers)],
        "schedules": [schedule | {"replayed": chunks == 1 and random.random() < 0.6, "tables": tables(chunks)}],
    }  # fmt: skip


def tables(chunks):
    """Micro-batches in flight of an interleaved schedule, which has no formula in the checker."""
    found = {}
    for micro_batches, stages in product((1, 2, 4), (1, 2, 3, 4)) if chunks > 1 else ():
        counts = [min(2 * micro_batches, 2 * (stages - stage) + stages + 1) for stage in range(1, stages + 1)]
        held = [[[(count + 1) // 2, count // 2]] for count in counts]
        found[f"{micro_batches},{stages}"] = {
            "weights": [micro_batches - 0.5, 0.5, 0.5, 0.5],
            "held": held,
            "route": [*range(stages)] * 2,
        }
    return found


def plans(instance, case):
    """Decisions of every plan of a case: cuts, blocks and choices."""
    route = instance.route(case)
    slots = range(case.size // instance.candidates[case.candidate].width)
    for cuts in combinations(range(1, instance.layers), len(route) - 1):
        runs = [list(range(*ends)) for ends in zip((0, *cuts), (*cuts, instance.layers), strict=True)]
        sizes = [len(run) for run in runs]
        middle = sizes[1:-1] or sizes
        if len(route) > case.stages and max(sizes) > min(middle) + 1:
            continue  # Blocks of chunks differ by one at most, besides fewer in the first and the last.
        chunks = [[run for run, own in zip(runs, route, strict=True) if own == stage] for stage in range(case.stages)]
        for places, some in product(combinations(slots, case.stages), instance.choices(case)):
            for chosen in product(some, repeat=case.stages):
                rows = zip(chunks, chosen, places, strict=True)
                stages = [{"chunks": own, "choice": list(choice), "slot": slot} for own, choice, slot in rows]
                yield dict(zip(case._fields[:5], case[:5], strict=True)) | {"stages": stages}


def least_price(instance, case):
    """Least price of all plans of a case that fit; None: there are too many plans."""
    some = list(islice(plans(instance, case), MOST_PLANS + 1))
    prices = [inf]
    for plan in some if len(some) <= MOST_PLANS else ():
        try:
            prices.append(instance.price(plan))
        except rules.Refused as refused:
            if "does not fit" not in str(refused):
                raise
    return min(prices) if len(some) <= MOST_PLANS else None


@pytest.mark.parametrize("seed", seeds(60, of=1000))
def test_no_rule_bounds_a_case_above_its_best_plan(seed):
    instance = rules.Instance(instance_of(seed))
    for case in Random(seed).sample(instance.cases, min(3, len(instance.cases))):
        least = least_price(instance, case)
        if least is None:
            continue
        (choices,) = instance.choices(case)
        # A claim that no plan reaches leaves no stage out, and one just above the price leaves the best plan.
        for claim in (1e9, *((least * (1 + 1e-6),) if least < inf else ())):
            for rule in rules.RULES:
                bound = getattr(rules.Rules(instance, claim), rule)(case, choices)
                assert bound <= least * (1 + 1e-9), (rule, claim, str(case))
