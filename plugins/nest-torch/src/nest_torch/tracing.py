"""Programs traced with `torch.export`, without what PyTorch has to say about it."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nest.errors import InputError
from nest_torch.program.targets import GROUPED_PRODUCTS

TRACED_BATCH = 3
"""Samples a module is traced with: few, and no factor of usual sizes, so that the batch is told from other axes."""


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is written and nothing is logged: what PyTorch has to say of a program it cannot trace is pages long."""
    level = logging.root.manager.disable
    logging.disable()
    try:
        with redirect_stderr(StringIO()), redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class NarrowProducts(TorchFunctionMode):  # type: ignore[misc]
    """Narrows grouped products: without numbers PyTorch 2.13 runs them in bf16 only."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if getattr(function, "__name__", "") not in GROUPED_PRODUCTS:
            return function(*arguments, **(keywords or {}))
        rows, weights, *more = arguments
        return function(rows.bfloat16(), weights.bfloat16(), *more, **(keywords or {})).to(rows.dtype)


def exported(module: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The program that a call of `module` runs.

    Raises:
        InputError: it cannot be traced.
    """
    try:
        with quiet():
            return torch.export.export(module, positional, keywords, strict=False)
    except Exception as error:  # Whatever the module's own code raises ends here too.
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"{type(module).__name__} cannot be traced for {TRACED_BATCH} samples: {reason[:200].rstrip('.')}. Neither "
            "sizes nor branches may depend on what tensors hold; replace the part where they do."
        ) from None
