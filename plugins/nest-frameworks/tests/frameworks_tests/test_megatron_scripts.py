"""Public scripts are read right, or refused with a reason; none is read as what it is not."""

from pathlib import Path

import pytest

from frameworks_tests.megatron_launchers import LAUNCHED
from frameworks_tests.megatron_script import Script
from frameworks_tests.megatron_scripts import SCRIPTS
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest_frameworks.megatron.reading.read import read_megatron


@pytest.mark.parametrize("script", [*SCRIPTS, *LAUNCHED], ids=lambda script: script.source)
def test_public_scripts(script: Script, tmp_path: Path) -> None:
    for name, text in script.beside.items():
        (tmp_path / name).write_text(text)
    options = LaunchOptions(**script.options, folder=tmp_path)
    if script.refused:
        with pytest.raises(InputError) as error:
            read_megatron(script.text, options)
        assert script.refused in str(error.value)
        return
    found = read_megatron(script.text, options)
    fixed, training = found.settings["fixed"], found.settings["training"]
    assert found.devices == script.ranks
    assert {name: fixed.get(name) for name in script.fixed} == script.fixed
    assert {name: training.get(name) for name in script.training} == script.training
