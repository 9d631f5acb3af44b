"""Random constraints and fixed decisions for a problem, most of which leave some plan."""

from random import Random

from tests.oracle.network import Network
from tests.oracle.partitions import partitions
from tests.oracle.settings import RANK_ORDERS, schedules_of


def degree_names(problem: dict) -> list[str]:
    return sorted(problem["profile"]["candidates"][0]["degrees"])


def modes_of(problem: dict) -> list[str]:
    """Recompute modes the search may use."""
    modes = {mode for candidate in problem["profile"]["candidates"] for mode in candidate["recompute"]}
    return sorted(modes & set(problem.get("search", {}).get("recompute", modes)))


def random_constraints(random: Random, problem: dict) -> list[str]:
    """One to three expressions of every kind the language has."""
    layers = problem["profile"]["layers"]
    mode = random.choice(modes_of(problem))
    number = random.randint(1, 4)
    texts = [
        f"pp <= {number}",
        f"pp >= {random.randint(1, 2)}",
        f"not (pp == {number})",
        f"1 <= pp <= {number}",
        f"dp % {random.randint(1, 3)} == 0",
        f"dp // 2 <= {number}",
        f"dp in [1, 2, {number}]",
        f"dp > replicas or pp < {number}",
        f"replicas != {number}",
        f"replicas * pp <= {2 * number}",
        f"devices <= {random.randint(2, 12)}",
        f"devices / 2 >= pp - {number}",
        f"micro_batches >= {random.randint(1, 3)}",
        f"micro_batch == {random.randint(1, 2)}",
        f"width <= {number}",
        f"schedule in ['{random.choice(schedules_of(problem))}', 'nest']",
        f'schedule != "gpipe" or pp < {number}',
        f"rank_order == '{random.choice(RANK_ORDERS)}'",
        f"zero <= {random.randint(0, 3)}",
        f"zero >= {random.randint(0, 2)}",
        f"zero in [{random.randint(0, 3)}, 2]",
        f"zero == {random.randint(0, 3)} or pp > 1",
        f"zero * pp <= {number}",
        f"recompute == '{mode}'",
        f"recompute != '{mode}'",
        f"recompute == '{mode}' or zero >= 1",
        f"recompute == 'none' and zero == 0 or pp > {number}",
        "uniform(zero)",
        "uniform(zero)",
        "uniform(recompute)",
        "uniform(recompute)",
    ]
    if len(layers) > 1:
        one, two = random.sample(layers, 2)
        texts += [f'same_stage("{one}", "{two}")'] * 3
    if "zero_degree" in problem.get("search", {}):
        texts += [f"zero_degree <= {number}", f"zero_degree >= {number}", f"zero_degree != {number}"]
        texts += ["zero_degree < dp or zero < 2", f"zero_degree * pp <= {2 * number}"]
    names = degree_names(problem)
    if names:
        texts += [f"{' * '.join(names)} <= {number}", f"{names[0]} == 1", f"not {names[0]} > {number}"]
    if problem.get("search", {}).get("mixed"):
        texts += [f"devices <= {random.randint(2, 8)}", "devices % 2 == 0", f"dp % {number} == 0", "width != pp"]
        texts += [f"width in [1, {number}] or devices >= {random.randint(3, 8)}"]
        texts += [f"{' * '.join(names)} <= 2" if names else "width <= 2", "zero == 0 or width > 1"]
    return random.sample(texts, random.choice([1, 1, 2, 3]))


def random_fixed(random: Random, problem: dict) -> dict:
    """One or two decisions already taken."""
    search = problem.get("search", {})
    candidate = random.choice(problem["profile"]["candidates"])
    replicas = random.randint(1, max(1, Network(problem["cluster"]).size // candidate["width"]))
    decisions: dict = {
        "pp": random.randint(1, 3),
        "replicas": replicas,
        "dp": random.randint(1, 4),
        "micro_batch": candidate["samples"],
        "micro_batches": random.randint(1, 4),
        "devices": candidate["width"] * replicas,
        "width": candidate["width"],
        "zero": random.choice(search.get("zero", [0, 1, 2, 3])),
        "recompute": random.choice(modes_of(problem)),
        "schedule": random.choice(schedules_of(problem)),
        "rank_order": random.choice(search.get("rank_order", RANK_ORDERS)),
        "stages": random_stages(random, problem),
    }
    if "zero_degree" in search:
        listed = search["zero_degree"]
        decisions["zero_degree"] = random.choice(listed if isinstance(listed, list) else [listed])
    decisions |= candidate["degrees"]
    drawn = {name: decisions[name] for name in random.sample(sorted(decisions), random.choice([1, 1, 2]))}
    if "stages" in drawn and "pp" in drawn:  # Another number of stages than are listed is bad input, not infeasible.
        drawn["pp"] = len(drawn["stages"])
    return drawn


def random_stages(random: Random, problem: dict) -> list[list[str]]:
    profile = problem["profile"]
    short = [p for p in partitions(len(profile["layers"]), profile["edges"]) if len(p) <= 3]
    return [[profile["layers"][layer] for layer in stage] for stage in random.choice(short)]
