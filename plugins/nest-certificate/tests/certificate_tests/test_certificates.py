"""Certificates: accepted where they are true, refused where they claim too much."""

import ast
import json
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import pytest

from certificate_tests.certified import certificate_of, equal_blocks, mutated
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.public.planning import solution_of
from nest.schedules.interleaved import Interleaved
from nest_certificate import proof, rules
from nest_certificate.numbers import Tables, decisions_of
from nest_certificate.verbs import certify, formulated
from tests.agreement.compare import solved
from tests.command_line import call
from tests.oracle.brute_force import solve
from tests.seeds import seeds

ROOT = Path(__file__).parents[4]
CHECKER = ROOT / "tools" / "check_certificate.py"
PAGE = ROOT / "docs" / "explanation" / "certificate.md"


@pytest.mark.longer
@pytest.mark.parametrize("seed", [*seeds(6, of=90), 96, 127])
@pytest.mark.parametrize("kind", ["plain", "sharded"])
def test_a_certificate_proves_the_optimum_of_the_brute_force(kind, seed):
    made = certificate_of(kind, seed)
    if made is None:
        pytest.skip("no plan, or stages of several candidates")
    problem, text = made
    bound, price = rules.check(json.loads(text))
    least = solve(problem).batch_time
    assert bound == pytest.approx(least, rel=2e-9)
    assert price == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("number", seeds(10, of=200))
@pytest.mark.parametrize("seed", [0, 2, 5])
def test_a_mutated_certificate_claims_no_more_than_the_optimum(seed, number):
    accepted, problem, brute_force = mutated("plain", seed, number)
    if accepted is not None:
        least = brute_force(problem).batch_time
        assert accepted <= (inf if least is None else least * (1 + 1e-9))


def case_of(instance, plan):
    """Case of a plan."""
    decided = [plan[name] for name in ("candidate", "replicas", "order", "schedule", "degree")]
    own = (case for case in instance.cases if case.stages == len(plan["stages"]))
    return next(c for c in own if [c.candidate, c.replicas, c.order, c.schedule, c.degree] == decided)


@pytest.mark.parametrize(
    ("memory", "parts", "light", "share"),
    [
        *(
            (63.5, False, 0, 1.0),
            (59.5, False, 0, 0.0),
            (42.5, False, 0, 0.0),
            (38.0, True, 0, 0.0),
            (43.0, True, 0, 0.0),
        ),
        *((54.0, False, 2, 1.0), (49.5, True, 2, 0.99)),
    ],
)
def test_counts_of_equal_blocks_leave_the_best_plan(memory, parts, light, share):
    solution = solved(equal_blocks(memory, parts, light))
    instance, numbers, _ = formulated(solution, registry(strict=False))
    plan = decisions_of(instance, solution_of(instance, solution))
    case, price = case_of(numbers, plan), numbers.price(plan)
    chosen = rules.Choices({tuple(stage["choice"]) for stage in plan["stages"]})
    # All memory is used. A claim that no plan reaches leaves no stage out, and one just above the price this plan.
    for claim in (1e3 * price, price * (1 + 1e-6)):
        assert rules.Rules(numbers, claim).counts(case, chosen) <= price * (1 + 1e-9)
    assert rules.Rules(numbers, price).counts(case, chosen) >= share * price * (1 - 1e-9)


def test_chunks_with_more_layers_than_a_stretch_has_are_none():
    problem = equal_blocks(75.0, False, scales=[1.0, 1.0, 0.9, 0.8, 1.1, 0.7, 1.2, 1.3])
    problem["search"]["zero"], problem["constraints"], problem["fixed"] = [2], ["pp == 2"], {"chunks": 2}
    solution = solved(problem)
    assert rules.check(certify(solution))[0] == pytest.approx(solution.batch_time, rel=2e-9)


@pytest.mark.parametrize("seed", [35, 39])
def test_chunked_problems_have_certificates(seed):
    problem, text = certificate_of("chunked", seed)
    assert rules.check(json.loads(text))[0] == pytest.approx(solve(problem).batch_time, rel=2e-9)
    assert "counts" in text


def test_chunks_with_more_room_than_equal_layers_are_no_crash():
    with pytest.raises(proof.NotProved, match="no rule covers"):
        certificate_of("chunked", 50026)


def test_a_case_without_choices_needs_no_rule():
    instance = rules.Instance(by_hand()["instance"] | {"allowed": {"sets": [], "cases": {}}})
    assert [rules.Rules(instance, 1e9).prove(case, 0) for case in instance.cases] == [0, 0, 0]


@pytest.mark.parametrize("seed", [0, 2, 5, 13])
@pytest.mark.parametrize("rule", rules.RULES)
def test_no_bound_exceeds_the_plan(rule, seed):
    certificate = json.loads(certificate_of("plain", seed)[1])
    instance, plan = rules.Instance(certificate["instance"]), certificate["plan"]
    case = case_of(instance, plan)
    # A claim that no plan reaches leaves no stage out.
    bounds = [getattr(rules.Rules(instance, 1e3 * certificate["price"]), rule)(case, s) for s in instance.choices(case)]
    assert min(bounds) <= certificate["price"] * (1 + 1e-9)


def test_solve_writes_a_certificate_and_certify_the_same(monkeypatch, tmp_path, capsys):
    problem, _ = certificate_of("plain", 0)
    files = {name: str(tmp_path / name) for name in ("problem.json", "plan.json", "one.gz", "two.gz")}
    Path(files["problem.json"]).write_text(json.dumps(problem))
    solving = ("solve", files["problem.json"], "--output", files["plan.json"], "--certificate", files["one.gz"])
    assert call(monkeypatch, *solving) == 0
    assert call(monkeypatch, "certify", files["plan.json"], "--output", files["two.gz"]) == 0
    assert Path(files["one.gz"]).read_bytes() == Path(files["two.gz"]).read_bytes()
    assert rules.main([files["one.gz"]]) == 0
    assert "not checked" not in capsys.readouterr().out
    unpriced = rules.read(files["one.gz"])
    unpriced["instance"]["complete_below"] = 1e9
    (tmp_path / "unpriced.json").write_text(json.dumps(unpriced))
    assert rules.main([str(tmp_path / "unpriced.json")]) == 0
    assert "not checked: candidates without numbers take at least 1000000000.0 s" in capsys.readouterr().out
    assert call(monkeypatch, "certify", files["plan.json"], "--compare", files["one.gz"]) == 0
    written = json.loads(Path(files["plan.json"]).read_text())
    with pytest.raises(InputError, match="has no schedule 'none'"):
        certify(written | {"schedule": "none"})
    problem["training"]["global_batch"] *= 2
    Path(files["problem.json"]).write_text(json.dumps(problem))
    assert call(monkeypatch, "solve", files["problem.json"], "--output", files["plan.json"]) == 0
    assert call(monkeypatch, "certify", files["plan.json"], "--compare", files["one.gz"]) == 1
    assert "global_batch are not this problem's" in capsys.readouterr().err


def test_what_certificates_do_not_cover_is_refused():
    problem, _ = certificate_of("plain", 0)
    mixed = problem | {"search": (problem.get("search") or {}) | {"mixed": True}}
    with pytest.raises(InputError, match="stages of several candidates"):
        certify(solved(mixed))


def linked():
    """A small transformer on links with measured collectives."""
    return {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 512, "ffn": 2048, "heads": 8, "vocab": 8192}},
        "training": {"global_batch": 4, "sequence_length": 1024, "schedule": "1f1b"},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 2, "link": "nvlink4"}]},
        "search": {"within": 0},
    }


def test_costs_of_measured_collectives_are_part_of_the_instance():
    certificate = certify(solved(linked()))
    written = json.loads(json.dumps(certificate))
    costs = written["instance"]["collectives"]
    assert any(len(ways) > 1 for ways in costs.values())
    assert rules.check(written)[1] == certificate["price"]
    name = next(iter(costs))
    latency, slope, ports = costs[name][0]
    for wrong, said in (
        ([[latency, -slope, ports]], "negative"),
        ([[latency, slope, [*ports, ports[0]]]], "number of levels"),
        ([], "has no cost"),
    ):
        written["instance"]["collectives"] = costs | {name: wrong}
        with pytest.raises(rules.Refused, match=said):
            rules.check(written)
    del costs[name]
    written["instance"]["collectives"] = costs
    with pytest.raises(rules.Refused, match="has no cost"):
        rules.check(written)


def test_layers_in_front_of_recomputed_blocks_keep_their_activations():
    data = by_hand()["instance"] | {"recomputed_units": [[1], [2]]}
    parts = rules.Instance(data).split("full:1:none", [(0, 4)])
    assert parts == [("full", [(2, 3)]), ("none", [(0, 2), (3, 4)])]


def test_an_unprovable_problem_has_an_answer_and_exit_code_1(monkeypatch, tmp_path, capsys):
    problem, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    problem.write_text(json.dumps(certificate_of("plain", 0)[0]))
    certificate = tmp_path / "certificate.gz"
    monkeypatch.setattr(rules, "MOST_CUTS", 1)
    solving = ("solve", str(problem), "--output", str(plan), "--certificate", str(certificate))
    assert call(monkeypatch, *solving) == 1
    assert plan.exists()
    certifying = ("certify", str(plan), "--output", str(certificate))
    assert call(monkeypatch, *certifying) == 1
    monkeypatch.undo()
    monkeypatch.setattr(proof, "RULES", ())
    assert call(monkeypatch, *certifying) == 1
    assert not certificate.exists()
    said = capsys.readouterr().err
    assert "no certificate: the layer graph has more than 1 cuts" in said
    assert "no certificate: no rule covers" in said


def test_the_checker_imports_the_standard_library_alone():
    tree = ast.parse(CHECKER.read_text())
    names = [each.names[0].name for each in ast.walk(tree) if isinstance(each, ast.Import)]
    names += [each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def by_hand():
    """The certificate in the documentation."""
    return json.loads(PAGE.read_text().split("```json\n")[1].split("```")[0])


def test_the_certificate_written_by_hand_is_accepted(tmp_path):
    file = tmp_path / "by-hand.json"
    file.write_text(json.dumps(by_hand()))
    done = subprocess.run([sys.executable, "-I", "-S", CHECKER, file], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "no plan of this instance has a price below 13.499 s",
        "the plan's price is 13.5 s",
    ]
    assert done.returncode == 0


def stages_of_unlike_zero():
    """Certificate of two layers: one costs least with ZeRO 0, for its gradients, one with ZeRO 1, for its update."""
    names = ("weights", "gradients", "optimizer", "update")
    state = {"ranks": [0], **dict(zip(names, ([40, 2], [40, 2], [6, 6], [0, 40]), strict=True))}
    modes = {"none": {"extra": [0, 0], "first": [4, 4], "more": [4, 4], "peak": [0, 0]}}
    candidate = {"name": "one", "width": 1, "samples": 1, "choices": ["none"], "edge_bytes": [1], "recompute": modes}
    one = {"name": "1f1b", "chunks": 1, "copies": 1, "staggered": False, "hides": False, "replayed": True, "tables": {}}
    certificate = by_hand()
    certificate["instance"] |= {
        "layers": 2, "tensors": [[0, [1]]], "levels": [[4, 2.0, 0.0]], "memory": 1000.0, "reserve": 0.0,
        "global_batch": 2, "exposed": 1.0, "sharded_synchronisation": 1.5, "zero": [0, 1], "zero_degrees": [None],
        "rank_orders": ["pp-inner"], "schedules": [one], "together": [], "units": [], "recomputed_units": [],
        "candidates": [candidate | {"forward": [1, 1], "backward": [1, 1], "state": {"dense": state}}],
    }  # fmt: skip
    stages = [{"chunks": [[place]], "choice": ["none", place], "slot": place} for place in range(2)]
    plan = {"candidate": 0, "replicas": 2, "order": 0, "schedule": 0, "degree": None, "stages": stages}
    return certificate | {"plan": plan, "cases": {"rule": "replay"}}


def test_stages_of_unlike_zero_are_bounded():
    certificate = stages_of_unlike_zero()
    price = rules.Instance(certificate["instance"]).price(certificate["plan"])
    assert price == pytest.approx(26.5)
    instance = rules.Instance(certificate["instance"])
    case = case_of(instance, certificate["plan"])
    claim = rules.Rules(instance, price)
    (choices,) = instance.choices(case)
    for rule in (claim.totals, claim.counts, claim.recurrence):
        assert rule(case, choices) <= price * (1 + 1e-9)
    with pytest.raises(rules.Refused, match="s only"):
        rules.check(certificate | {"lower_bound": price * 1.01, "plan": None})
    assert not instance.together(instance.listed(case), 0, 1).alike


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x1f\x8b\x08" + bytes(40), "not proved"),
        (b"[" * 100_000, "not proved"),
        (b'{"a": 1, "a": 2}', "occurs twice"),
    ],
)
def test_a_damaged_file_is_no_proof(content, said, tmp_path, capsys):
    (tmp_path / "certificate").write_bytes(content)
    assert rules.main([str(tmp_path / "certificate")]) == 1
    assert said in capsys.readouterr().out


def no_plan(**numbers):
    """Change numbers of an instance so that no plan is left below a high bound."""
    return lambda c: (c["instance"].update(numbers), c.update(plan=None, lower_bound=1e9, cases={"rule": "replay"}))


def of_candidate(**numbers):
    """Change numbers of the candidate."""
    return lambda c: c["instance"]["candidates"][0].update(numbers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["plan"]["stages"][-1].update(slot=1.5), "blocks are not in order"),
        (lambda c: c.update(lower_bound=13.6), "rule recurrence bounds"),
        (lambda c: c["cases"]["parts"].pop(), "no leaf covers the case of candidate 0, replicas 2"),
        (lambda c: c["plan"]["stages"][0].update(slot=1), "blocks are not in order"),
        (lambda c: c.update(price=13.0), "price is 13.5"),
        (lambda c: c["instance"].update(together=[[1, 2]]), "between two allowed cuts"),
        (lambda c: c["instance"].update(complete_below=13.0), "not priced"),
        (lambda c: c.update(lower_bound=-inf), "claimed bound is -inf"),
        (lambda c: c.update(lower_bound=True), "claimed bound is True"),
        *((no_plan(global_batch=count), "no whole number from 1") for count in (0, 2.5, -2, nan, True)),
        *((no_plan(levels=[[2, *level]]), "a level of the instance") for level in ((nan, 0.0), (2.0, nan), (2.0, inf))),
        *(
            (no_plan(**{name: nan}), "negative or not finite")
            for name in ("memory", "reserve", "exposed", "synchronisation")
        ),
        (no_plan(together=[[0, 9]]), "a layer that it has not"),
        (no_plan(together=[[1, 1, 1]]), "a layer twice in one group"),
        (no_plan(rank_orders=["tp-inner"]), "rank order"),
        (no_plan(hiding=nan), "flag"),
        (no_plan(zero=[-1]), "ZeRO stage"),
        (no_plan(allowed={"sets": [[[["none", 0]]]], "cases": {"0,1,0,0,None": {"1": -1}}}), "choices that it has not"),
        *((of_candidate(width=width), "no whole number from 1") for width in (-1, 0, True, nan)),
        *((of_candidate(samples=samples), "no whole number from 1") for samples in (-1, 0.5, nan)),
        *((of_candidate(gathered=size), "negative or not finite") for size in (-1e9, nan)),
        *((of_candidate(forward=[1, 1, 1, size]), "negative or not finite") for size in (-1, nan, inf)),
        (lambda c: c["instance"]["candidates"][0]["state"]["dense"].update(ranks=[0, 0]), "ranks"),
        (lambda c: c["instance"]["schedules"][0].update(copies=-9), "no whole number from 1"),
        (lambda c: c["instance"]["schedules"][0].update(chunks=1.5), "no whole number from 1"),
        (lambda c: c["plan"]["stages"][1].update(chunks=[[2, 2, 3]]), "between two allowed cuts"),
    ],
)
def test_the_checker_names_what_is_wrong(change, said):
    certificate = by_hand()
    change(certificate)
    with pytest.raises(rules.Refused, match=said):
        rules.check(certificate)


def forget(passes, batch):
    """Leave a micro-batch out of the passes of a stage."""
    return [each for each in passes if each[1] != batch]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: {"weights": t["weights"][:3]}, "other weights than four"),
        (lambda t: {"weights": [*t["weights"][:3], nan]}, "negative or not finite"),
        (lambda t: {"route": [0, 1, 1, 1]}, "route does not lead"),
        (lambda t: {"route": [0, 1]}, "route does not lead"),
        (lambda t: {"held": t["held"][:1]}, "in flight for each chunk"),
        (lambda t: {"held": [[], *t["held"][1:]]}, "in flight for each chunk"),
        (lambda t: {"held": [[[4.0]], *t["held"][1:]]}, "in flight for each chunk"),
        (lambda t: {"held": [[[1.0, 1.0]], *t["held"][1:]]}, "more micro-batches in flight"),
        (lambda t: {"order": [forget(t["order"][0], 1), t["order"][1]]}, "forward and backward once"),
        (lambda t: {"order": [t["order"][0] + t["order"][0][:1], t["order"][1]]}, "forward and backward once"),
        (lambda t: {"order": [[[*each[:3], 1] for each in own] for own in t["order"]]}, "beside a further one"),
        (lambda t: {"order": t["order"][:1]}, "ValueError"),
    ],
)
def test_numbers_of_no_schedule_are_refused(change, said):
    tables = Tables(Interleaved(2))
    assert "4,2" in tables
    numbers = {"order": tables["4,2"]["order"], **tables["4,2"]}
    certificate = by_hand()
    own = certificate["instance"]["schedules"][0] | {"name": "own", "chunks": 2}
    schedules = certificate["instance"]["schedules"]
    schedules.append(own | {"tables": {"4,2": numbers}})
    assert rules.check(certificate)[1] == 13.5
    schedules[-1]["tables"]["4,2"] = numbers | change(numbers)
    with pytest.raises(rules.Refused, match=said):
        rules.check(certificate)
