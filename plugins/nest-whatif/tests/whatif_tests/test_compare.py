"""Comparisons: no other plan is faster than ours, everybody's plan holds, and what does not count is told."""

import json
from pathlib import Path
from random import Random
from time import sleep

import pytest
from attrs import evolve

import nest
from frameworks_tests.test_from_megatron_command import CLUSTER, SCRIPT
from nest import api
from nest.errors import InputError, InternalError
from nest.formulate import from_flags
from nest.formulate.fixed_plan import as_fixed
from nest.hooks import hook
from nest.hooks.planning import Proposal
from nest.hooks.registry import Registry, registry
from nest.instance import Solution, StageDecision
from nest.io.source import read_text_of
from nest.units import percent
from nest_whatif.text.comparison import comparison_text
from planners_tests.instances import PLANNERS, candidate, problem
from tests.agreement.problems import KINDS, random_problem
from tests.seeds import seeds


def examine(written: dict) -> None:
    """No plan that counts is faster, and every plan passes the check that rebuilds its problem."""
    found = nest.compare(written, evaluations=40)
    found.assert_unbeaten()
    assert not found.faster
    assert [each.name for each in found.others] == PLANNERS
    for each in found.others:
        if each.plan is None:
            assert each.reasons
            continue
        assert nest.check(each.plan).ok, each.name
        assert each.plan.fits == (each.missing == 0.0)
    if found.ours.status == "infeasible":
        assert not any(each.counts for each in found.others)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(5, 40))
def test_no_other_plan_is_faster(seed):
    random = Random(seed)
    examine(random_problem(random, KINDS[seed % len(KINDS)], sharded=seed % 3 == 0))


@pytest.mark.longer
def test_a_faster_plan_is_called_a_bug():
    found = nest.compare(problem(1e12), planners=["phaze"])
    entry = found.others[0]
    beaten = evolve(found, others=(evolve(entry, plan=evolve(entry.plan, batch_time=entry.batch_time / 2)),))
    with pytest.raises(InternalError, match="the plan of phaze takes"):
        beaten.assert_unbeaten()
    # One that a search does not admit, or is none of the problem's, may be as fast as it likes.
    faster = beaten.others[0]
    for harmless in (evolve(faster, missing=1.0, refutes=False), evolve(faster, reasons=("It is none.",))):
        evolve(beaten, others=(harmless,)).assert_unbeaten()


def test_a_plan_that_fits_by_rounding_alone_refutes_nothing(tmp_path):
    """It needs 7e-13 more than a device has: pricing lets it pass, a search does not look at it."""
    mode = {"extra": [0.0, 0.0], "first": [0.1, 0.2], "more": [0.1, 0.2], "peak": [0.0, 0.0]}
    frugal = {**mode, "extra": [1.0, 1.0], "first": [0.01, 0.02]}
    used = {"name": "c", "degrees": {}, "width": 1, "samples": 1, "forward": [1.0, 1.0], "backward": [1.0, 1.0]}
    used |= {"state": {}, "recompute": {"none": mode, "full": frugal}, "edge_bytes": [1.0]}
    roomy = {
        "nest": 1,
        "training": {"global_batch": 1, "schedule": "1f1b"},
        "cluster": {"memory": 1.0, "levels": [{"fanout": 1, "bandwidth": 1.0, "latency": 0.0}]},
        "profile": {"layers": ["a", "b"], "edges": [[0, 1]], "candidates": [used]},
    }
    best = nest.solve(roomy)
    tight = {**roomy, "cluster": {**roomy["cluster"], "memory": best.stages[0].memory / (1 + 7e-13)}}
    path = tmp_path / "best.json"
    path.write_text(json.dumps(best.to_dict()))
    found = nest.compare(tight, planners=(), plans=[path])
    assert [each.name for each in found.faster] == [str(path)]
    found.assert_unbeaten()
    assert nest.verify(found.ours).status == "proved"


@pytest.mark.longer
def test_a_search_that_was_stopped_may_be_beaten_down_to_its_bound():
    found = nest.compare(problem(1e12), planners=["phaze"])
    ours = found.ours
    stopped = evolve(ours, status="feasible", batch_time=ours.batch_time * 2, lower_bound=ours.batch_time / 2)
    unproved = evolve(found, ours=stopped)
    assert [each.name for each in unproved.faster] == ["phaze"]
    unproved.assert_unbeaten()


@pytest.mark.longer
def test_a_plan_file_is_priced_on_the_problem_at_hand(tmp_path: Path):
    slow = problem(1e12)
    slow["cluster"]["levels"][1]["bandwidth"] = 1e8
    other = tmp_path / "plan.json"
    other.write_text(json.dumps(nest.solve(problem(1e12)).to_dict()))
    own = tmp_path / "own.json"
    own.write_text(json.dumps(nest.solve(slow).to_dict()))
    found = nest.compare(slow, planners=[], plans=[other, own])
    assert [each.name for each in found.others] == [str(other), str(own)]
    assert found.others[0].counts
    assert found.others[0].batch_time > json.loads(other.read_text())["batch_time"]
    assert found.relative(found.others[1]) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.longer
def test_a_plan_that_the_problem_does_not_allow_is_priced_and_does_not_count(tmp_path: Path):
    wide = nest.solve(problem(1e12, constraints=["width == 8"]))
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(wide.to_dict()))
    (entry,) = nest.compare(problem(1e12, constraints=["width <= 4"]), planners=[], plans=[path]).others
    assert not entry.counts
    assert entry.batch_time == pytest.approx(wide.batch_time, rel=1e-12)
    assert "`width <= 4` does not hold" in entry.reasons[0]
    assert nest.check(entry.plan).ok
    # A schedule that is not among the problem's is no reason to be silent on its price.
    piped = problem(1e12, constraints=["pp == 4"])
    piped["training"]["schedule"] = "gpipe"
    path.write_text(json.dumps(nest.solve(piped).to_dict()))
    (entry,) = nest.compare(problem(1e12), planners=[], plans=[path]).others
    assert entry.plan.schedule == "gpipe"
    assert nest.check(entry.plan).ok
    assert "Schedule 'gpipe' is not among those allowed" in entry.reasons[0]


@pytest.mark.longer
def test_flags_are_priced_on_the_problem(tmp_path: Path):
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT)
    written = tmp_path / "problem.yaml"
    model = "{layers: 8, hidden: 256, ffn: 640, heads: 8, vocab: 1024, gated_mlp: true}"
    written.write_text(
        f"nest: 1\nmodel: {{transformer: {model}}}\ntraining: {{global_batch: 16, sequence_length: 512}}\n{CLUSTER}"
    )
    (entry,) = nest.compare(written, planners=[], flags={"megatron": [script]}).others
    assert entry.name == str(script)
    assert entry.plan is not None, entry.reasons
    assert entry.plan.candidate.degrees["tp"] == 8
    assert len(entry.plan.stages) == 2
    assert "the file has global_batch 32; nest prices the problem's 16." in entry.remarks
    assert entry.plan.micro_batches * entry.plan.data_parallel * entry.plan.candidate.samples == 16


def test_a_file_of_flags_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script, times = tmp_path / "run.sh", []
    script.write_text(SCRIPT)
    written = problem(1e12)

    def text_of(path: Path) -> str:
        times.append(path)
        return read_text_of(path)

    monkeypatch.setattr(from_flags, "read_text_of", text_of)
    (entry,) = nest.compare(written, planners=[], flags={"megatron": [script]}).others
    assert times == [script], entry.reasons


class Copying:
    """Proposes what the exact search finds, for one replica fewer than it should where asked to."""

    name = "copying"
    summary = "what the search finds"

    def __init__(self, answer):
        self.answer = answer

    def plan(self, instance, context):
        return self.answer(instance, context)


def plugin(*answers):
    """A plug-in with a planner for each answer: `copying`, `copying2`, ..."""

    class Plugin:
        @hook
        def nest_planners(self):
            planners = [Copying(answer) for answer in answers]
            for place, each in enumerate(planners[1:], 2):
                each.name = f"copying{place}"
            return planners

    return Plugin()


def compared(answer, **options):
    known = registry([plugin(answer)])
    return nest.compare(problem(1e12), plugins=known, **options), known


FEW = ("copying", "manual")
"""Planners that take no time."""


def shaped(instance, **changes) -> Solution:
    """All devices, four replicas of four stages of the first candidate."""
    cuts = [(0, 1), (2, 3), (4, 5), (6, 7)]
    stages = tuple(StageDecision(layers, 0, "none", 0, place) for place, layers in enumerate(cuts))
    return evolve(Solution(4, instance.space.rank_orders[0], instance.space.schedules[0].name, stages), **changes)


def recomputing(instance, mode) -> Solution:
    solution = shaped(instance)
    return evolve(solution, stages=(evolve(solution.stages[0], recompute=mode), *solution.stages[1:]))


def sharded(instance, context):
    solution = shaped(instance)
    return Proposal(evolve(solution, stages=tuple(evolve(each, zero=2) for each in solution.stages)))


def mixed(instance, context):
    solution = shaped(instance)
    last = evolve(solution.stages[3], candidate=1, offset=4)
    return Proposal(evolve(solution, replicas=2, stages=(*solution.stages[:3], last)))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (sharded, "Stage 1: ZeRO stage 2 is not among those allowed."),
        (mixed, "Stages use different candidates, which only search.mixed allows."),
        (lambda instance, _: Proposal(shaped(instance, schedule="gpipe")), "Schedule 'gpipe' is not among those"),
        (lambda instance, _: Proposal(shaped(instance, rank_order="dp-inner")), "Rank order 'dp-inner' is not among"),
        (lambda *_: Proposal(None, decisions={"pp": 4, "zero": 3, "tp": 1}), "ZeRO stage 3 is not among those"),
    ],
)
def test_a_plan_outside_nests_space_is_priced_and_says_which_decision_nest_cannot_take(answer, told):
    known = registry([plugin(answer)])
    written = problem(1e12)
    written["search"]["rank_order"] = ["pp-inner"]
    found = nest.compare(written, plugins=known, planners=["copying"])
    (entry,) = found.others
    assert known.warnings == ()
    assert told in entry.reasons[0]
    assert not entry.counts
    assert entry.plan is not None
    assert nest.check(entry.plan).ok, nest.check(entry.plan).disagreements
    if answer is not mixed:  # `fixed` says the same of all stages.
        evaluated = nest.evaluate(written, fix=as_fixed(entry.plan))
        assert evaluated.batch_time == pytest.approx(entry.batch_time, rel=1e-9)
    assert "outside the problem" in comparison_text(found.to_dict())


@pytest.mark.longer
@pytest.mark.parametrize("allowed", [False, True])
def test_a_planner_may_recompute_some_blocks_of_a_stage(allowed):
    known = registry([plugin(lambda instance, _: Proposal(recomputing(instance, "full:1:none"), bound=0))])
    written = problem(1e12)
    written["search"]["recompute_layers"] = allowed
    (entry,) = nest.compare(written, plugins=known, planners=["copying"]).others
    assert known.warnings == ()
    assert nest.check(entry.plan).ok
    assert entry.plan.stages[0].recompute_layers == 1
    assert entry.counts is allowed, entry.reasons


@pytest.mark.longer
def test_the_closing_sentence_speaks_of_nests_space():
    """Who overlooks a constraint is faster."""

    def free(instance, context):
        return Proposal(context.search(evolve(instance, space=evolve(instance.space, constraints=()))).solution)

    written = problem(1e12, constraints=["pp == 8"])
    known = registry([plugin(free)])
    found = nest.compare(written, plugins=known, planners=["copying", "manual"])
    lines = comparison_text(found.to_dict()).splitlines()
    (claim,) = (line for line in lines if line.startswith("Optimal plan: "))
    assert claim == "Optimal plan: no fitting plan in nest's search space is faster."
    share = 1 / found.relative(found.others[0]) - 1
    assert share > 0.01
    assert f"Outside that space, copying is {percent(share)} faster." in lines
    found.assert_unbeaten()
    # Said of no plan that is slower, or does not fit.
    for changed in ({"batch_time": found.ours.batch_time}, {"fits": False}):
        entry = evolve(found.others[0], plan=evolve(found.others[0].plan, **changed))
        assert "Outside" not in comparison_text(evolve(found, others=(entry,)).to_dict())


@pytest.mark.longer
def test_a_bound_of_its_own_objective_is_shown():
    found, known = compared(lambda *_: Proposal(None, ("None.",), bound=0.05), planners=["copying", "phaze", "manual"])
    assert known.warnings == ()
    assert [each.bound is None for each in found.others] == [False, False, True]
    assert found.others[1].bound <= found.others[1].batch_time * (1 + 1e-9)
    assert [each["bound"] for each in found.to_dict()["others"]] == [each.bound for each in found.others]
    assert "copying: its own lower bound is 50 ms." in comparison_text(found.to_dict())


@pytest.mark.longer
def test_what_is_no_plan_is_told():
    def overlapping(instance, context):
        solution = context.search(instance).solution
        return Proposal(evolve(solution, replicas=1000))

    found, _ = compared(overlapping, planners=["copying"])
    (entry,) = found.others
    assert entry.plan is None
    assert entry.reasons[0].startswith("Not a plan of this problem: ")


@pytest.mark.longer
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda *_: None, "None is no Proposal"),
        (lambda *_: Proposal("pp 4"), "'pp 4' is no Solution"),
        (lambda *_: 1 / 0, "raised ZeroDivisionError"),
        (
            lambda instance, context: Proposal(
                evolve(s := context.search(instance).solution, stages=(evolve(s.stages[0], candidate=99),))
            ),
            "names candidate 99",
        ),
        (
            lambda instance, context: Proposal(
                evolve(s := context.search(instance).solution, stages=(each for each in s.stages))
            ),
            "is no sequence of stages",
        ),
        (
            lambda instance, context: Proposal(
                evolve(s := context.search(instance).solution, stages=(evolve(s.stages[0], candidate=True),))
            ),
            "a candidate is True",
        ),
        (lambda instance, context: Proposal(None, "No plan."), "is no sequence of remarks"),
        (lambda instance, context: Proposal(None, None), "is no sequence of remarks"),
    ],
)
def test_a_planner_that_fails_is_disabled(answer, told, monkeypatch):
    every = Registry.planners
    monkeypatch.setattr(
        Registry, "planners", lambda known: {name: each for name, each in every(known).items() if name in FEW}
    )
    found, known = compared(answer)
    assert {each.name: each.plan is None for each in found.others} == {"manual": False, "copying": True}
    (reason,) = next(each.reasons for each in found.others if each.name == "copying")
    assert reason.startswith("The planner 'copying' ")
    assert told in reason
    (warning,) = known.warnings
    assert told in warning
    again = nest.compare(problem(1e12), plugins=known, planners=["copying", "manual"])
    assert again.others[0].reasons == ("The planner 'copying' failed and is disabled; run `nest plugins doctor`.",)
    assert again.others[1].plan is not None


@pytest.mark.longer
def test_planners_of_one_plug_in_take_no_time_from_each_other(monkeypatch):
    """Eight that each take 0.01 s of 1 s: together more than the 0.05 s of all calls into a plug-in."""
    monkeypatch.setenv("NEST_PLUGIN_SECONDS", "1")
    monkeypatch.setattr("nest.hooks.calls.TOTAL_SHARE", 0.05)

    def slow(*_):
        sleep(0.01)
        return Proposal(None, ("Nothing found.",))

    known = registry([plugin(*[slow] * 8)])
    names = ["copying", *(f"copying{place}" for place in range(2, 9))]
    found = nest.compare(problem(1e12), plugins=known, planners=names)
    assert [each.reasons for each in found.others] == [("Nothing found.",)] * 8
    assert known.warnings == ()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("mcmc:steps=3", "planner 'mcmc' has no option 'steps'; it has evaluations, seed"),
        ("mcmc:evaluations=0", "evaluations is '0'; it is a whole number from 1"),
        ("mcmc:seed=-1", "seed is '-1'"),
        ("mcmc:seed=1" + "0" * 5000, "it is a whole number from 0"),
        ("mcmc:seed", "give each option once"),
        ("mcmc:seed=1,seed=2", "give each option once"),
        ("mcmc:=2", "give each option once"),
        ("phaze:seed=1", "planner 'phaze' takes no options"),
        ("mcmv:seed=1", "there is no planner called 'mcmv'. Did you mean 'mcmc'"),
    ],
)
def test_options_that_a_planner_lacks_are_told_before_anything_is_searched(written, told, monkeypatch):
    monkeypatch.setattr(api, "solve", lambda *_, **__: pytest.fail("the search began"))
    with pytest.raises(InputError) as raised:
        nest.compare(problem(1e12), planners=[written])
    assert told in str(raised.value)


@pytest.mark.longer
def test_a_reader_that_fails_leaves_the_others(tmp_path: Path):
    class Reader:
        name = "torn"
        summary = "reads nothing"

        def read(self, text, nodes=None):
            raise KeyError(text)

    class Plugin:
        @hook
        def nest_plan_readers(self):
            return [Reader()]

    file = tmp_path / "torn.txt"
    file.write_text("x")
    known = registry([Plugin()])
    found = nest.compare(problem(1e12), plugins=known, planners=["manual"], flags={"torn": [file]})
    assert [each.plan is None for each in found.others] == [False, True]
    assert found.others[1].reasons == ("The reader of plans 'torn' raised KeyError: 'x' in read.",)


@pytest.mark.longer
def test_a_planner_that_changes_the_instance_is_told():
    def cheapening(instance, context):
        object.__setattr__(instance.candidates[0], "samples", 7)
        instance.candidates[0].forward[:] = 0.0
        return Proposal(context.search(instance).solution)

    found, _ = compared(cheapening, planners=["copying", "manual"])
    plain = nest.compare(problem(1e12), plugins=Registry(), planners=["manual"])
    assert "in place in plan" in found.others[0].reasons[0]
    assert found.others[1].batch_time == plain.others[0].batch_time


def test_slips_are_told():
    with pytest.raises(InputError, match=r"there is no planner called 'maunal'\. Did you mean 'manual'"):
        nest.compare(problem(1e12), planners=["maunal"])
    with pytest.raises(InputError, match="number of evaluations is 0"):
        nest.compare(problem(1e12), evaluations=0)


@pytest.mark.longer
def test_seed_and_evaluations_reach_the_planner():
    first = nest.compare(problem(2e9), planners=["mcmc"], seed=3, evaluations=11)
    assert first.others[0].remarks == ("11 plans priced, seed 3.",)
    assert first.to_dict() == nest.compare(problem(2e9), planners=["mcmc"], seed=3, evaluations=11).to_dict()


@pytest.mark.longer
def test_from_python():
    found = nest.compare(problem(1e12, candidate(1)), planners=["phaze", "manual"])
    assert [each.name for each in found.others] == ["phaze", "manual"]
