"""Every public function from threads, first calls of a process included: the answers of one thread."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import nest
from nest.formulate import kept_model
from nest.formulate.problem import complete_problem
from nest.hooks import loader
from nest.hooks import registry as registries
from nest.hooks.kinds import KINDS
from nest.hooks.loader import Loader
from nest.hooks.registry import Registry, registry
from nest.io import write_text
from nest.io.source import read_text_of
from nest.solve.effort import Deadline

REPOSITORY = Path(__file__).resolve().parent.parent
MEASURED = REPOSITORY / "examples/measured-layers/problem.yaml"

MODEL: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 64, "ffn": 128, "heads": 8, "vocab": 500}},
    "training": {"global_batch": 16, "sequence_length": 128, "micro_batch": 1, "tokens": 10**6, "schedule": "1f1b"},
    "cluster": {"device": "h100-sxm", "levels": [{"fanout": 8, "bandwidth": "300 GB/s", "latency": "1 us"}]},
    "strategies": {"tp": [1, 2], "cp": [1], "sp": [1]},
}

SCRIPT = """
import json, os, sys, threading, traceback, warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nest
from nest.hooks.bundled import bundled_entries

problem, plan, model, folder = sys.argv[1:5]
model_cluster = "p5.48xlarge"
first = sys.argv[5].split(",")
study = Path(folder, "study.yaml")
of_study = {"nest": 1, "base": model, "vary": {"training.global_batch": [8, 16]}}
study.write_text(json.dumps(of_study))
one = threading.Lock()


def swept():
    with one:  # Two sweeps to one file are no calls that may run at once.
        nest.sweep(study, output=Path(folder, "rows.jsonl"), jobs=1)
        return Path(folder, "rows.jsonl").read_text() + nest.study_page(Path(folder, "rows.jsonl"))


few = ("alternatives", "frontier", "sensitivity")
certificate = Path(folder, "certificate.json.gz")
nest.certify(plan, output=certificate)
calls = {
    "certify": lambda: nest.certify(plan),
    "compare_certificate": lambda: nest.compare_certificate(plan, certificate),
    "check": lambda: nest.check(plan).ok,
    "compare": lambda: nest.compare(problem, planners=["manual"]).to_dict(),
    "evaluate": lambda: nest.evaluate(problem).to_dict(),
    "explain": lambda: nest.explain(plan).to_dict(),
    "export": lambda: nest.export(plan, "dot"),
    "frontier": lambda: repr(nest.frontier(plan)),
    "recommend": lambda: nest.recommend(model, within=1e9, clusters=[model_cluster]).to_dict(),
    "report_page": lambda: nest.report_page(plan, without=few),
    "sensitivity": lambda: repr(nest.sensitivity(plan)),
    "simulate": lambda: nest.simulate(plan).batch_time,
    "solve": lambda: nest.solve(problem).to_dict(),
    "study_page": swept,
    "sweep": swept,
    "verify": lambda: {**nest.verify(plan).to_dict(), "seconds": None},
}
assert {*calls} | {"__version__"} == {*nest.__all__, *bundled_entries("nest.verbs")}
names = [name for name in calls if first == ["all"] or name in first]
names *= max(8 // len(names), 1)
together = threading.Barrier(8)


def called(index):
    if index < 8:
        together.wait()
    try:
        return repr(calls[names[index]]())
    except Exception:
        return traceback.format_exc()


sys.setswitchinterval(1e-5)
with ThreadPoolExecutor(8) as pool:
    of_threads = list(pool.map(called, range(len(names))))
alone = {name: repr(calls[name]()) for name in dict.fromkeys(names)}
for name, answer in zip(names, of_threads):
    if answer != alone[name]:
        print(name, answer[:2000])
"""


def other_answers(folder: Path, names: str, processes: int = 1, kept: str = "off") -> str:
    """What a process prints whose threads answer otherwise than one of them alone."""
    plan = folder / "plan.json"
    write_text(plan, json.dumps(nest.solve(MEASURED).to_dict()))
    model = folder / "problem.json"
    write_text(model, json.dumps(MODEL))
    started = []
    for number in range(processes):
        own = folder / str(number)
        own.mkdir()
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(MEASURED), str(plan), str(model), str(own), names],
                env=os.environ | {"NEST_CACHE": kept},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return "".join(each.communicate()[0] for each in started)


@pytest.mark.longer
def test_threads_answer_as_one_does(tmp_path: Path) -> None:
    assert other_answers(tmp_path, "all") == ""


def meanwhile(ask: Callable[[], Any]) -> Callable[[], Any]:
    """Ask in another thread for a moment; what is given waits for its answer."""
    answers: list[Any] = []
    thread = Thread(target=lambda: answers.append(ask()), daemon=True)
    thread.start()
    thread.join(0.1)  # It goes on where nothing makes it wait.

    def answer() -> Any:
        thread.join()
        return answers[0]

    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_handed_out_when_it_is_full(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known, waiting = Registry(), list[Callable[[], Any]]()
    register = Loader.register

    def slow(self: Loader, plugins: Any) -> Any:
        if not waiting:
            waiting.append(meanwhile(lambda: dict(getattr(known, kind)())))
        return register(self, plugins)

    monkeypatch.setattr(Loader, "register", slow)
    own = dict(getattr(known, kind)())
    assert waiting[0]() == own != {}


def test_threads_share_one_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    registries._shared.cache_clear()
    waiting, find = list[Callable[[], Any]](), loader.installed_plugins

    def slow() -> Any:
        if not waiting:
            waiting.append(meanwhile(registry))
        return find()

    monkeypatch.setattr(registries, "installed_plugins", slow)
    assert registry() is waiting[0]()


def test_what_a_thread_uses_is_credited_to_its_plan_alone() -> None:
    known = Registry()

    def planned() -> dict[str, str]:
        known.count_use("engines", "local")
        known.engines()
        meanwhile(lambda: known.run(lambda: None))()
        return {str(key): "" for key in known._credits.used}

    assert known.run(planned) == {"('engines', 'local')": ""}


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Callable[[], Any]] = []

    class Slow(BytesIO):
        def read(self, *arguments: Any) -> bytes:
            if not waiting:
                waiting.append(meanwhile(lambda: read_text_of(Path("-"))))
            return super().read(*arguments)

    monkeypatch.setattr(sys, "stdin", TextIOWrapper(Slow(b"nest: 1")))
    assert read_text_of(Path("-")) == waiting[0]()


def test_tables_of_one_search_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an explanation searches with, a solve of another thread must not change."""
    asked = complete_problem(MODEL, registry())
    nest.solve(asked)
    lent = kept_model.KeptModel.of_problem(asked, registry(), Deadline())
    from nest.formulate.priced_models import PricedModels

    tables = lent.lend(PricedModels())
    assert tables.known
    other = kept_model.KeptModel.of_problem(asked, registry(), Deadline())
    assert not {*map(id, tables.known)} & {*map(id, other.tables.known)}
