"""`nest models` lists and describes."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from nest.cli import models
from nest.errors import InputError


@pytest.fixture
def call():
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command()(models.models)

    def run(*arguments):
        result = CliRunner().invoke(app, ["models", *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_the_list_has_families_and_names(call):
    listed = json.loads(call("--json").stdout)
    families = {family["name"] for family in listed["families"]}
    assert {"llama", "gpt2", "bert", "mixtral", "deepseek_v3", "transformer"} <= families
    names = {model["name"]: model["family"] for model in listed["models"]}
    assert names["llama-3-70b"] == "llama"
    table = call().stdout
    assert all(word in table for word in (*families, *names))


def test_a_name_is_described(call):
    described = json.loads(call("llama-2-7b", "--json").stdout)
    assert described["parameters"] == 6738415616
    assert described["layers"] == 32
    assert described["sequence_length"] == 4096
    weights = 6738415616 - 32000 * 4096 - 65 * 4096
    assert described["flops_per_token"] == 2 * weights + 32 * 4 * 4096 * 4096
    told = call("llama-2-7b").stdout
    assert "6,738,415,616" in told
    (block,) = (run for run in described["layer_runs"] if run["count"] == 32)
    (line,) = (line for line in told.splitlines() if line.lstrip().startswith("layers.0 to 31"))
    assert line.endswith(f"  {block['activation_bytes'] / 2**20:,.1f} MiB")


def test_the_sequence_may_be_given(call):
    short, long = (
        json.loads(call("llama-2-7b", "--json", "--sequence-length", str(length)).stdout) for length in (1024, 2048)
    )
    assert (short["sequence_length"], long["sequence_length"]) == (1024, 2048)
    assert long["flops_per_token"] - short["flops_per_token"] == 32 * 4 * 4096 * 1024


def test_files_are_described(call, tmp_path):
    path = tmp_path / "widths.yaml"
    path.write_text("transformer: {layers: 2, hidden: 24, ffn: 40, heads: 6, vocab: 96}\n")
    described = json.loads(call(str(path), "--json").stdout)
    assert (described["family"], described["layers"]) == ("transformer", 2)


@pytest.mark.longer
def test_impossible_sequences_are_refused(call):
    assert call("llama-2-7b", "--sequence-length", "0").exit_code == 2
    with pytest.raises(InputError, match="1024"):
        call("gpt2", "--sequence-length", "1025")
    with pytest.raises(InputError, match="sequence_length is too large"):
        call("llama-2-7b", "--sequence-length", "99999999999999999999")


@pytest.mark.longer
def test_the_module_loads_nothing_heavy():
    script = (
        "import sys, nest.cli.models\n"
        "heavy = {'numpy', 'cattrs', 'ruamel', 'networkx', 'nest.models'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
