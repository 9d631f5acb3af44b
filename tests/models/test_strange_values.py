"""Configurations with strange values are read or refused with their key, never with a traceback."""

from contextlib import suppress

import pytest

from nest.errors import InputError
from nest.models import nest_model_importers
from nest.spec import Training
from tests.strategies.families import FAMILIES

STRANGE = (None, True, 0, -1, 7, 10**12, 1.5, "x", "", [], [3], ["x"], [None], {}, {"a": 1}, float("inf"))
CONFIGURATIONS = {name: config for name, config in FAMILIES.items() if isinstance(config, dict)}


@pytest.mark.longer
@pytest.mark.parametrize("family", CONFIGURATIONS)
def test_strange_values_are_read_or_refused(family):
    config = CONFIGURATIONS[family]
    (importer,) = [each for each in nest_model_importers() if each.accepts(config)]
    keys = sorted(config.keys() - {"model_type"})
    without = [{k: v for k, v in config.items() if k != key} for key in keys]
    for changed in [*without, *({**config, key: value} for key in keys for value in STRANGE)]:
        with suppress(InputError):
            importer.load(changed, Training(global_batch=1, sequence_length=20))
