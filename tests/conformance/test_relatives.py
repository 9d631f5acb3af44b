"""Hydra with verl's own configuration takes what nest's exporters write."""

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
