"""Every framework takes 60 plans of its own, of all kinds, at the releases of `tools/frameworks.toml`."""

import pytest

from tests.conformance import verdicts
from tests.conformance.askers import ASKERS, Asker
from tests.conformance.consumer import needs
from tests.conformance.verdicts import COUNT, Verdicts, ask, cases, table


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKERS)
def test_a_framework_takes_its_plans(name: str) -> None:
    needs(*ASKERS[name].distributions)
    found = ask(name, cases(name))
    assert found.asked >= COUNT
    assert found.refused == {}, table([found])


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("deepspeed", ['{"train_batch_size": 3, "zero_optimization": {"x": 1}}']),
        ("accelerate", ["num_processes: 64\npipeline_size: 2\n"]),
        (
            "megatron-bridge",
            [
                *("model: {no_such_field: 1}", "comm_overlap: {_target_: no.such.module}", "train: {}"),
                "ddp: {megatron_fsdp_main_grads_dtype: torch.float32}",
            ],
        ),
    ],
)
def test_what_is_wrong_is_refused(name: str, texts: list[str]) -> None:
    """Else the test above would ask nobody."""
    needs(*ASKERS[name].distributions)
    (case,) = cases(name, 1).values()
    file = next(iter(case["files"]))
    wrong = {text: {**case, "files": {**case["files"], file: text}} for text in texts}
    assert list(ask(name, wrong).refused) == texts


def test_the_table_is_dated_and_names_refusals() -> None:
    same = dict.fromkeys(("1 dense", "2 experts"), "KeyError: x")
    text = table([Verdicts("one", "1.2", 3, same | {"3 dense": "ValueError: no"}), Verdicts("two", None, 0, {})])
    assert "| one | 1.2 | 3 | 0 |" in text
    assert "| two | not installed | | |" in text
    assert text.endswith("one, 1 dense and 1 more: KeyError: x\none, 3 dense: ValueError: no")


@pytest.mark.parametrize("body", ["import no_such_module", "while True: pass"])
def test_a_framework_that_does_not_import_refuses_all_plans(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release of the day may not import in `tools/frameworks newest`."""
    monkeypatch.setitem(verdicts.ASKERS, "broken", Asker(("pytest",), body))
    monkeypatch.setattr(verdicts, "SECONDS", 60 if "import" in body else 0)
    found = ask("broken", {"1 dense": {}, "2 experts": {}})
    assert (found.asked, len(found.refused)) == (2, 2)
    assert "gave no answer" in (line := table([found]).splitlines()[-1])
    assert "no_such_module" in line or "timed out" in line
