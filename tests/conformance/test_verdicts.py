"""Every framework takes 60 plans of its own, of all kinds, at the releases of `tools/frameworks.toml`."""

import pytest

from tests.conformance.askers import ASKERS
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
        ("megatron-bridge", ["model: {no_such_field: 1}", "comm_overlap: {_target_: no.such.module}", "train: {}"]),
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
    text = table([Verdicts("one", "1.2", 3, {"2 dense": "ValueError: no"}), Verdicts("two", None, 0, {})])
    assert "| one | 1.2 | 3 | 2 |" in text
    assert "| two | not installed | | |" in text
    assert text.endswith("one, 2 dense: ValueError: no")
