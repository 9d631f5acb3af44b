"""`nest capture`: from a factory by name to a graph that nest plans."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from nest.errors import InputError
from nest.graph import OperatorGraph
from nest.io import structure

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

from nest_torch.commands import register  # noqa: E402

MODULES = str(Path(__file__).with_name("modules.py"))
TOKENS = "int64[batch,sequence=16]"


def called(*arguments: str) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    return CliRunner().invoke(app, ["capture", *arguments])


def written(output: Path, *arguments: str) -> OperatorGraph:
    result = called(*arguments, "--output", str(output))
    assert result.exit_code == 0, result.exception
    return structure(json.loads(output.read_text()), OperatorGraph)


def test_a_graph_is_written(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", f"{MODULES}:Gpt", "--input", TOKENS)
    assert graph.family == "Gpt"
    assert graph.blocks == ("blocks.0", "blocks.1", "blocks.2")
    assert {t.itemsize for o in graph.operators if o.kind == "matmul" for t in o.outputs} == {2.0}


def test_the_precision_is_that_of_weights_and_activations(tmp_path: Path) -> None:
    image = "float[batch,3,32,32]"
    wide = written(tmp_path / "wide.json", f"{MODULES}:Convolutional", "-i", image, "--precision", "fp32")
    narrow = written(tmp_path / "narrow.json", f"{MODULES}:Convolutional", "-i", image)
    products = [[o.bytes_read + o.bytes_written for o in g.operators if o.kind == "matmul"] for g in (wide, narrow)]
    assert products[0] == [2 * each for each in products[1]]


def test_inputs_by_keyword_are_those_in_order(tmp_path: Path) -> None:
    by_name = written(tmp_path / "name.json", f"{MODULES}:Llama", "-i", f"labels={TOKENS}", "-i", f"tokens={TOKENS}")
    in_order = written(tmp_path / "order.json", f"{MODULES}:Llama", "-i", TOKENS, "-i", TOKENS)
    assert by_name == in_order


def test_what_takes_no_part_is_said(tmp_path: Path) -> None:
    result = called(f"{MODULES}:Unused", "-i", "float[batch,8]", "--output", str(tmp_path / "graph.json"))
    assert "72 parameters take no part" in result.stderr


@pytest.mark.parametrize(
    ("place", "given", "told"),
    [
        ("models", TOKENS, "expected MODULE:FACTORY"),
        ("no_such_module:Gpt", TOKENS, "cannot be imported"),
        ("nowhere.py:Gpt", TOKENS, "there is no file nowhere.py"),
        (f"{MODULES}:Nothing", TOKENS, "there is no 'Nothing'"),
        (f"{MODULES}:broken", TOKENS, "making the module failed: no such thing"),
        (f"{MODULES}:__name__", TOKENS, "making the module failed"),
        (f"{MODULES}:Gpt", "int64[batch", "expected a type and axes"),
        (f"{MODULES}:Gpt", "int65[batch,sequence=16]", "the type must be one of"),
        (f"{MODULES}:Gpt", "int64[batch,sequence]", "needs a size"),
        (f"{MODULES}:Gpt", "int64[batch,=3]", "an axis is a size"),
        (f"{MODULES}:Gpt", f"words={TOKENS}", "cannot be traced"),
        (f"{MODULES}:Gpt", "int64[1,sequence=16]", "one axis must be called batch"),
        (f"{MODULES}:Gpt", "int64[batch,sequence=99999]", "cannot be traced"),
    ],
)
def test_mistakes_are_told_in_plain_words(tmp_path: Path, place: str, given: str, told: str) -> None:
    result = called(place, "--input", given, "--output", str(tmp_path / "graph.json"))
    assert isinstance(result.exception, InputError)
    assert told in str(result.exception)
    assert "\n" not in str(result.exception)
    assert list(tmp_path.iterdir()) == []
