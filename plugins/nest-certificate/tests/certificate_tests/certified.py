"""Random problems with their certificates, and mutations of these."""

import copy
import json
from functools import lru_cache
from random import Random

from nest.errors import InputError
from nest_certificate.rules import Refused, check
from nest_certificate.verbs import certify
from tests.agreement.compare import plugins_of, solved
from tests.agreement.draws import draw
from tests.oracle.brute_force import solve


@lru_cache(maxsize=64)
def certificate_of(kind, seed):
    """A random problem and its certificate as its reader gets it; None: no plan, or not covered."""
    problem = draw(seed, kind).problem
    plan = solved(problem)
    if plan.status != "optimal" or problem.get("search", {}).get("mixed"):
        return None
    made = certify(plan, **plugins_of(problem))
    return problem, json.dumps(made)


def equal_blocks(memory, parts, light=0, scales=()):
    """A problem of blocks between an embedding and a head, in chunks; stages may recompute `parts`.

    Of six blocks the first `light` cost half, the others are equal; else blocks cost `scales`.
    """

    scales = scales or [0.5] * light + [1.0] * (6 - light)

    def row(block, first, last):
        return [first, *(block * scale for scale in scales), last]

    kept = {"first": row(4, 1, 2), "more": row(4, 1, 2), "peak": row(1, 1, 1), "stash_inputs": False}
    full = {"first": row(1, 1, 2), "more": row(0.5, 1, 2), "peak": row(3, 1, 1), "stash_inputs": False}
    state = {
        "weights": row(2, 3, 3),
        "gradients": row(2, 3, 3),
        "optimizer": row(6, 9, 9),
        "update": row(0.1, 0.1, 0.1),
    }
    candidate = {
        "name": "one", "degrees": {}, "width": 1, "samples": 1, "edge_bytes": [0.5] * (1 + len(scales)),
        "forward": row(1.0, 0.2, 0.5), "backward": row(2.0, 0.3, 1.0), "state": {"dense": {"ranks": [0], **state}},
        "recompute": {"none": {"extra": row(0, 0, 0), **kept}, "full": {"extra": row(1.0, 0.2, 0.5), **full}},
    }  # fmt: skip
    levels = [{"fanout": 2, "bandwidth": 4.0, "latency": 0.01}, {"fanout": 2, "bandwidth": 2.0, "latency": 0.02}]
    return {
        "nest": 1,
        "training": {"global_batch": 8, "schedule": "interleaved"},
        "cluster": {"memory": memory, "levels": levels},
        "search": {"recompute_layers": parts, "zero": [0, 1]},
        "constraints": ["pp > 1"],
        "profile": {
            "layers": ["embedding", *(f"block {i}" for i in range(len(scales))), "head"],
            "edges": [[i, i + 1] for i in range(1 + len(scales))],
            "candidates": [candidate],
        },
    }


def outcome(certificate):
    """The bound that the checker accepts; None: it accepts none."""
    try:
        return check(certificate)[0]
    except Refused:
        return None


def parts_of(node):
    """Every inner node of a tree of cases."""
    if "parts" in node:
        yield node
        for _, part in node["parts"]:
            yield from parts_of(part)


def leaves_of(node):
    """Every leaf of a tree of cases."""
    if "rule" in node:
        yield node
    for _, part in node.get("parts", ()):
        yield from leaves_of(part)


def raise_bound(random, problem, certificate):
    certificate["lower_bound"] *= 1 + random.choice([1e-6, 1e-3, 0.1, 1.0])


def drop_case(random, problem, certificate):
    nodes = list(parts_of(certificate["cases"]))
    if nodes:
        parts = random.choice(nodes)["parts"]
        del parts[random.randrange(len(parts))]


def change_rule(random, problem, certificate):
    leaf = random.choice(list(leaves_of(certificate["cases"])))
    leaf["rule"] = random.choice(["totals", "recurrence", "placement", "replay", "memory", ""])


def change_array(random, problem, certificate):
    """One number of a candidate, in the certificate and in the problem."""
    place = random.randrange(len(problem["profile"]["candidates"]))
    one = problem["profile"]["candidates"][place]
    name = random.choice(["forward", "backward"])
    layer, factor = random.randrange(len(one[name])), random.choice([0.0, 0.5, 0.9, 1.1, 2.0])
    other = next((c for c in certificate["instance"]["candidates"] if c["name"] == one["name"]), None)
    if name == "backward" and "weight_gradients" in one:
        factor = max(factor, 1.0)
    one[name][layer] *= factor
    if other is not None:
        other[name][layer] = one[name][layer]


def change_limit(random, problem, certificate):
    factor = random.choice([0.5, 0.9, 1.1, 2.0])
    problem["cluster"]["memory"] *= factor
    certificate["instance"]["memory"] *= factor


def swap_plan(random, problem, certificate):
    stages = certificate["plan"]["stages"]
    stage = random.choice(stages)
    if random.random() < 0.5:
        stage["slot"] += random.choice([-1, 1])
    else:
        other = random.choice(stages)
        stage["chunks"], other["chunks"] = other["chunks"], stage["chunks"]


def forget_number(random, problem, certificate):
    part = random.choice([certificate, certificate["instance"], certificate["plan"]])
    del part[random.choice(sorted(part))]


MUTATIONS = (raise_bound, drop_case, change_rule, change_array, change_limit, swap_plan, forget_number)


def mutated(kind, seed, number):
    """Return the claim that the checker accepts of a mutated certificate, and the optimum of its instance."""
    random = Random(f"{kind} {seed} {number}")
    problem, text = certificate_of(kind, seed)
    problem, certificate = copy.deepcopy(problem), json.loads(text)
    random.choice(MUTATIONS)(random, problem, certificate)
    return outcome(certificate), problem, solve


__all__ = ["InputError", "certificate_of", "mutated", "outcome"]
