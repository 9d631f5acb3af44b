"""The newest Megatron-Core, out of its wheel: its own argument parser and checks, on plain CPU PyTorch.

The wheel asks for Python 3.12, and for kernels that only GPUs run. `typing.override` and modules of Triton, which no
parser calls, are stood in for; everything else is the wheel's.
"""

import shlex
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument
from nest_frameworks.megatron.flags import export
from tests.conformance.consumer import interpreter

NEWEST = ("--no-deps", "--only-binary=:all:", "--python-version", "3.12", "--platform", "manylinux_2_28_x86_64")

PRELUDE = """
import os, sys, types, typing, warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

warnings.simplefilter("ignore")
typing.override = getattr(typing, "override", lambda each: each)

class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})

    def __call__(cls, *given, **named):
        return given[0] if len(given) == 1 and callable(given[0]) else cls

class Triton(MetaPathFinder, Loader):
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == "triton" else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = Anything.__getattr__.__get__(object)
        module.__version__ = "3.4.0"
        return module

    def exec_module(self, module):
        pass

# Before the stand-in: PyTorch asks whether there is a Triton.
import torch._inductor.compile_fx, torch._inductor.select_algorithm, torch.utils.flop_counter
sys.meta_path.append(Triton())
sys.path.insert(0, given["wheel"])
import megatron.training.arguments as arguments
from megatron.training.argument_utils import core_transformer_config_from_args

arguments.is_te_min_version = lambda *version, **more: True  # Transformer Engine of the same days.
arguments.get_device_arch_version = lambda: given.get("capability", 9)
torch.cuda.get_device_capability = lambda *device: (given.get("capability", 9), 0)
"""
"""What runs in front of a script that asks the wheel in folder `given["wheel"]`."""


def wheel(folder: Path) -> Path:
    """The newest Megatron-Core, unpacked below `folder`; skips the test where no registry is reached."""
    done = subprocess.run(
        [interpreter(), "-m", "pip", "download", "-q", *NEWEST, "-d", str(folder), "megatron-core"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"pip does not download megatron-core: {done.stderr[-200:]}")
    (archive,) = folder.glob("*.whl")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder / "src")
    return folder / "src"


FLAGS = "megatron_flags.sh"


def case(plan: PlanDocument) -> dict[str, Any]:
    """What bash makes of a plan's exported file, and how many ranks it is for."""
    return case_of(export(plan)[FLAGS], deployed(plan).world_size)


def case_of(text: str, world: int) -> dict[str, Any]:
    """What bash makes of an exported file for `world` ranks."""
    script = f"set -eu; eval {shlex.quote(text)}; env -0; printf '\\n'; printf '%s\\0' \"${{MEGATRON_ARGS[@]}}\""
    done = subprocess.run(["env", "-i", "bash", "-c", script], capture_output=True, text=True, check=True)
    variables, _, words = done.stdout.partition("\0\n")
    return {
        "words": words.split("\0")[:-1],
        "environment": dict(each.split("=", 1) for each in variables.split("\0") if "=" in each and each[0] != "_"),
        "unset": [line.split()[1] for line in text.splitlines() if line.startswith("unset ")],
        "world": world,
    }
