"""Modules by name: a function that makes one, called where weights take no memory."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from nest.errors import InputError
from nest_torch.machine import FORMATS

PRECISIONS = ("fp32", "fp16", "bf16")


def load(place: str, precision: str) -> Any:
    """The `torch.nn.Module` that what `place` names makes, on the meta device, in the number format `precision`.

    Args:
        place: `module:factory` or `file.py:factory`; modules are looked for in the working directory too.
        precision: one of `PRECISIONS`.

    Raises:
        InputError: there is no such thing, or it makes no module.
    """
    if precision not in PRECISIONS:
        raise InputError(f"--precision must be one of {', '.join(PRECISIONS)}, is {precision!r:.40}.")
    made = _named(place)
    try:
        with torch.device("meta"):
            module = made if isinstance(made, torch.nn.Module) else made()
    except Exception as error:  # The factory is anybody's code.
        raise InputError(f"{place}: making the module failed: {first_line(error)}.") from None
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{place}: this gives a {type(module).__name__}; nest captures a torch.nn.Module.")
    return module.to(getattr(torch, FORMATS[precision]))


@frozen
class Place:
    """Factory of a module by the place of its code: other processes find it there.

    Attributes:
        place: `module:factory` or `file.py:factory`.
    """

    place: str

    def __call__(self) -> Any:
        """Make the module.

        Raises:
            InputError: there is no such thing.
        """
        made = _named(self.place)
        return made if isinstance(made, torch.nn.Module) else made()


def _named(place: str) -> Any:
    """The object at `module:name` or `file.py:name`."""
    name, colon, attribute = place.rpartition(":")
    if not colon or not name or not attribute:
        raise InputError(f"{place!r:.80}: expected MODULE:FACTORY, such as models.py:make_model.")
    made: Any = _imported(name, place)
    for part in attribute.split("."):
        if not hasattr(made, part):
            raise InputError(f"{place}: there is no {part!r} in {name}.")
        made = getattr(made, part)
    return made


def _imported(name: str, place: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        path = Path(name)
        if not path.is_file():
            raise InputError(f"{place}: there is no file {name}.")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        return module
    except InputError:
        raise
    except Exception as error:  # Whatever importing it runs.
        raise InputError(f"{place}: {name} cannot be imported: {first_line(error)}.") from None


def first_line(error: Exception) -> str:
    """The first line of what an error says, without its full stop; its name if it says nothing."""
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)[
        :200
    ]
