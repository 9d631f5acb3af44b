"""A command of nest without some accelerators: `python -m benchmarks.scale.switched_off NAMES ...`.

NAMES, separated by commas, are those of `benchmarks.scale.accelerators`. `none` is none of them, and so is `-`, which
says which of them the command meets. Last on standard error stands a line of JSON: the user seconds of the command,
without the start of Python, and the names met.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.scale.accelerators import ACCELERATORS, Switch

MOST = "NEST_BENCHMARK_SECONDS"
"""Environment variable: user seconds after which the command is ended."""

LOADED = ("nest.cli.app", "nest.api", "nest.solve.solver", "nest.solve.dp.chunks", "nest.formulate.instance")
"""Modules that are loaded before the clock starts."""


def switch_off(name: str) -> None:
    """Put what says nothing in its place.

    Raises:
        KeyError: there is no such accelerator.
        AttributeError: it is not where it was.
    """
    for switch in ACCELERATORS[name].switches:
        held, there = standing(switch)
        setattr(held, switch.name, switch.instead(there))


def standing(switch: Switch) -> tuple[Any, Any]:
    """The module or class of a switch, and what stands there.

    Raises:
        AttributeError: it is not where it was.
    """
    module, _, owner = switch.place.partition(":")
    held = import_module(module)
    held = getattr(held, owner) if owner else held
    return held, held.__dict__[switch.name] if switch.name in vars(held) else getattr(held, switch.name)


def watch(name: str, met: set[str]) -> None:
    """Note in `met` that an accelerator is asked, or that it is a number, which nobody sees being read."""
    for switch in ACCELERATORS[name].switches:
        held, there = standing(switch)

        def noted(asked: Callable[..., Any]) -> Callable[..., Any]:
            def ask(*arguments: Any, **named: Any) -> Any:
                met.add(name)
                return asked(*arguments, **named)

            return ask

        if callable(there) and not isinstance(there, type):
            setattr(held, switch.name, noted(there))
        else:
            met.add(name)


def main() -> None:
    """The command."""
    asked = sys.argv.pop(1)
    names = [] if asked in ("-", "none") else asked.split(",")
    for module in LOADED:
        import_module(module)
    met: set[str] = set()
    for name in names:
        switch_off(name)
    if asked == "-":
        for name in ACCELERATORS:
            watch(name, met)
    from nest.cli.app import main as command

    if MOST in os.environ:
        most = int(float(os.environ[MOST]) + os.times().user) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    began = os.times()
    try:
        command()
    finally:
        ended = os.times()
        user = ended.user + ended.children_user - began.user - began.children_user
        print(json.dumps({"user": user, "met": sorted(met)}), file=sys.stderr)


if __name__ == "__main__":
    main()
