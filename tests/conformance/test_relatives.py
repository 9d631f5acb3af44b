"""Hydra with verl's own configuration, and Megatron-SWIFT's own arguments, take what nest's exporters write."""

import json
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import read_mapping_text
from tests.conformance.consumer import consume, needs
from tests.conformance.plans import PROBLEMS

COMPOSE = """
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from importlib.util import find_spec
from pathlib import Path

home = find_spec("verl")
if home is not None:  # Its package needs PyTorch, its folder of files does not.
    file = Path(given["folder"], given["name"] + ".yaml")
    place = "file://" + str(Path(home.origin).parent / "trainer/config")
    file.write_text(file.read_text().replace("pkg://verl.trainer.config", place))
OmegaConf.register_new_resolver("multiply", lambda *each: 1, replace=True)
with initialize_config_dir(config_dir=given["folder"], version_base=None):
    found = compose(config_name=given["name"])
chosen = {key: OmegaConf.select(found, key) for key in given["keys"]}
answer(json.loads(json.dumps(chosen, default=OmegaConf.to_container)))
"""


def written(name: str) -> list[tuple[str, str]]:
    """File and text of every kind of plan that the exporter writes."""
    found = []
    for problem in PROBLEMS.values():
        training = {**problem["training"], "overlap": {"data": True, "tensor": name != "verl"}}
        try:
            found += registry().exporters()[name].export(nest.evaluate({**problem, "training": training})).items()
        except InputError:
            continue
    assert len(found) >= 2
    return found


def leaves(content: Any, above: str = "") -> dict[str, Any]:
    """Values by their path."""
    if not isinstance(content, dict):
        return {above[:-1]: content}
    return {path: value for key, each in content.items() for path, value in leaves(each, f"{above}{key}.").items()}


@pytest.mark.parametrize("name", ["verl", "nemo"])
def test_hydra_composes_what_is_written(name: str, tmp_path: Path) -> None:
    needs("verl", "hydra-core", "omegaconf")
    for number, (file, text) in enumerate(written(name)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / file).write_text(text)
        if name == "nemo":  # Whose examples are in its repository, and in no distribution.
            (folder / "megatron_gpt_config.yaml").write_text(
                "trainer: {precision: 16, devices: 1}\nmodel: {bias: true}\n"
            )
        content = read_mapping_text(text, file)
        said = leaves({key: value for key, value in content.items() if key not in ("defaults", "hydra")})
        answer = consume(COMPOSE, {"folder": str(folder), "name": Path(file).stem, "keys": list(said)}, of="verl")
        assert answer == said


SWIFT = """
import ast, os
from importlib.metadata import distribution
files = {str(each): each.locate() for each in distribution("ms-swift").files or ()}

def tree(path):
    return ast.parse(open(files[path], encoding="utf-8").read())

fields = {
    node.target.id: node
    for path in ("swift/megatron/arguments/megatron_args.py",)
    for kind in tree(path).body if isinstance(kind, ast.ClassDef)
    for node in kind.body if isinstance(node, ast.AnnAssign)
}
parse = next(n for n in tree("swift/cli/main.py").body if getattr(n, "name", "") == "parse_yaml_args")
import json, yaml, logging
space = {"json": json, "os": os, "yaml": yaml, "logger": logging.getLogger()}
exec(compile(ast.Module([parse], []), "main.py", "exec"), space)
os.environ = {}
arguments = [given["file"]]
space["parse_yaml_args"](arguments)
names = [each[2:] for each in arguments if isinstance(each, str) and each.startswith("--")]
choices = {
    name: [each.value for each in ast.walk(fields[name].annotation) if isinstance(each, ast.Constant)]
    for name in names if name in fields
}
answer({"unknown": [name for name in names if name not in fields], "choices": choices, "environment": dict(os.environ)})
"""


def test_arguments_are_those_of_megatron_swift(tmp_path: Path) -> None:
    needs("ms-swift", "pyyaml")
    for file, text in written("ms-swift"):
        (tmp_path / file).write_text(text)
        content = read_mapping_text(text, file)
        answer = consume(SWIFT, {"file": str(tmp_path / file)}, of="ms-swift")
        assert set(answer["unknown"]) <= {"max_length", "packing"}  # Those of BaseArguments.
        del answer["environment"]["SWIFT_CONFIG_FILE"]  # Where it keeps a copy.
        assert answer["environment"] == {name: str(value) for name, value in content["ENV"].items()}
        for name, known in answer["choices"].items():
            words = [word for word in known if isinstance(word, str)]
            said = content[name] if isinstance(content[name], list) else [content[name]]
            assert not words or name == "recompute_modules" or set(said) <= set(words), (name, json.dumps(said))
