"""Scripts that give a program the arguments of LLaMA-Factory or of Hugging Face's Trainer as flags.

`HfArgumentParser` (transformers, hf_argparser.py) takes flags, or a file; `llamafactory-cli train` takes both
(hiyouga/LLaMA-Factory ff6d4d12, src/llamafactory/hparams/parser.py, and launcher.py, which starts a process for every
visible device where NPROC_PER_NODE does not say how many).
"""

import re
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.io import read_mapping_text
from nest_frameworks.keys import PER_MACHINE

_FLAGS = r"\s--(per_device_train_batch_size|model_name_or_path|cutoff_len)\b"
_SCRIPT = re.compile(rf"^[^#\n]*({_FLAGS}|\bllamafactory-cli\s+train\b)", re.MULTILINE)
CLI = "llamafactory-cli"
WHAT = "call of a program with per_device_train_batch_size, model_name_or_path or a file"


def is_script(text: str) -> bool:
    """Return whether a text gives such arguments as flags."""
    return _SCRIPT.search(text) is not None


def arguments(text: str, options: LaunchOptions) -> tuple[dict[str, Any], LaunchOptions, list[str]]:
    """Arguments of the last training that a script starts, on what it starts it, and notes.

    Raises:
        InputError: it starts none, or nothing says on how many devices.
    """
    from nest_frameworks.megatron.reading.flags import read_flags
    from nest_frameworks.megatron.reading.ranks import count_ranks
    from nest_frameworks.megatron.relatives.commands import command, scalar

    words, script, notes = command(text, options, _trains, WHAT)
    place = _program(words) or 0
    variables = {name: " ".join(value) for name, value in script.variables.items()}
    rest, content = list(words[place + 1 :]), dict[str, Any]()
    if rest and rest[0].endswith((".yaml", ".yml", ".json")):
        name = rest.pop(0)
        inner = script.files.text(name)
        if inner is None:
            raise InputError(f"the script takes its arguments from {name!r:.80}, which is not here.")
        content |= read_mapping_text(inner, name)
    for flag, value in (read_flags(rest).words if rest else {}).items():
        told = [scalar(word) for word in value]
        content[flag.removeprefix("--").replace("-", "_")] = True if not told else told[0] if len(told) == 1 else told
    if words[place - 1].endswith(CLI):
        return content, _of_cli(variables, options), notes
    devices, how = count_ranks(words[:place], variables, options, script.files)
    nodes, over = divmod(devices, PER_MACHINE)
    split = (nodes, PER_MACHINE) if nodes and not over else (1, devices)
    asked = options if options.nodes else evolve(options, nodes=split[0], devices_per_node=split[1])
    return content, asked, [how, *notes]


def _of_cli(variables: dict[str, str], options: LaunchOptions) -> LaunchOptions:
    """Machines and devices of LLaMA-Factory's launcher."""
    seen = [each for each in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip().isdecimal()]
    said = {name: int(variables[name]) for name in ("NNODES", "NPROC_PER_NODE") if variables.get(name, "").isdecimal()}
    each = options.devices_per_node or said.get("NPROC_PER_NODE") or len(seen) or None
    return evolve(options, nodes=options.nodes or said.get("NNODES"), devices_per_node=each)


def _trains(words: Sequence[str]) -> bool:
    named = any(word.startswith(("--per_device_train_batch_size", "--model_name_or_path")) for word in words)
    place = _program(words)
    return place is not None and (words[place - 1].endswith(CLI) or named)


def _program(words: Sequence[str]) -> int | None:
    """Place of the program, or of `train` behind LLaMA-Factory's command; None: it runs neither."""
    for place, word in enumerate(words):
        if word == "train" and place and words[place - 1].endswith(CLI):
            return place
        if word.endswith(".py") or (place and words[place - 1] == "-m" and not word.startswith("torch.distributed")):
            return place
    return None
