"""Scripts that give a program the arguments of LLaMA-Factory or of Hugging Face's Trainer as flags.

`HfArgumentParser` (transformers, hf_argparser.py) takes flags, or a file; `llamafactory-cli train` takes both
(hiyouga/LLaMA-Factory ff6d4d12, src/llamafactory/hparams/parser.py, and launcher.py, which starts a process for every
visible device where NPROC_PER_NODE does not say how many).
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from attrs import evolve, frozen

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest_frameworks.keys import PER_MACHINE, Keys

_FLAGS = r"\s--(per_device_train_batch_size|model_name_or_path|cutoff_len)\b|\s--config[=\s]+\S+\.ya?ml\b"
_SCRIPT = re.compile(rf"^[^#\n]*({_FLAGS}|\bllamafactory-cli\s+train\b|\baccelerate\s+launch\b)", re.MULTILINE)
_SHARDS = re.compile(
    r"__(use_(fsdp|deepspeed|megatron_lm|parallelism_config)|zero_stage|deepspeed_config_file"
    r"|(fsdp|offload|parallelism_config)_\w+)"
)
"""Flags of `accelerate launch`, with underscores, that say how a run is split."""

_NAMED = re.compile(r"--(per_device_train_batch_size|model_name_or_path|config)(=|$)")
_PREFERRING = re.compile(r"(^|[/_.-])(dpo|grpo|ppo|kto|orpo|cpo|simpo|rloo|gkd|rlhf|reward)([/_.-]|$)")
"""Names of programs that train on preferences or rewards."""

CLI, FILES = "llamafactory-cli", (".yaml", ".yml", ".json")
WHAT = "call of a program with per_device_train_batch_size, model_name_or_path or a file"


def is_script(text: str) -> bool:
    """Return whether a text gives such arguments as flags."""
    return _SCRIPT.search(text) is not None


@frozen
class Started:
    """The last training that a script starts.

    Attributes:
        content: its arguments.
        options: on what it is started.
        notes: what the reader of the result should know, a sentence each.
        settings: of `accelerate launch`, or the name of their file; None: it names none.
    """

    content: dict[str, Any]
    options: LaunchOptions
    notes: list[str]
    settings: str | dict[str, Any] | None = None


def arguments(text: str, options: LaunchOptions) -> Started:
    """Read the last training that a script starts.

    Raises:
        InputError: it starts none, shards in a way that is not read, or nothing says on how many devices.
    """
    from nest_frameworks.megatron.reading.flags import read_flags
    from nest_frameworks.megatron.reading.ranks import count_ranks
    from nest_frameworks.megatron.relatives.commands import arguments_of, command, overrides, scalar

    words, script, notes = command(text, options, _trains, WHAT)
    place = _program(words) or 0
    if (other := _PREFERRING.search(words[place].rpartition("/")[2])) is not None:
        raise InputError(f"{words[place]:.80} trains by {other[2]}, as its name says; nest prices plain fine-tuning.")
    rest, content = list(words[place + 1 :]), dict[str, Any]()
    if _file(words, place):
        content |= arguments_of(script.files, rest.pop(0))
        changes = list(takewhile(lambda word: not word.startswith("--"), rest))  # OmegaConf's `key=value`.
        content |= overrides(changes)
        rest = rest[len(changes) :]
    for flag, value in (read_flags(rest).words if rest else {}).items():
        told = [scalar(word) for word in value]
        content[flag.removeprefix("--").replace("-", "_")] = True if not told else told[0] if len(told) == 1 else told
    if isinstance(named := content.pop("config", None), str):  # TrlParser, trl/scripts/utils.py.
        content = {**arguments_of(script.files, named), **content}
    for key in ("deepspeed", "fsdp_config"):
        if content.get(key) in script.files.written:
            content[key] = arguments_of(script.files, content[key])
    if words[place - 1].endswith(CLI):
        return Started(content, _of_cli(script.texts, options), notes)
    named, processes = _accelerated(words[:place], content)
    settings = arguments_of(script.files, named) if named in script.files.written else named
    if settings is not None and not processes:
        return Started(content, options, notes, settings)
    ranks = count_ranks(words[:place], script.texts, options, script.files)
    each = ranks.per_node or min(options.machine or PER_MACHINE, ranks.count)
    split = (1, ranks.count) if ranks.count % each else (ranks.count // each, each)
    asked = options if options.nodes else evolve(options, nodes=split[0], devices_per_node=split[1])
    return Started(content, asked, [ranks.said, *notes], settings)


def _accelerated(launcher: Sequence[str], content: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The file of `accelerate launch`, and whether its flags say how many processes there are."""
    flags = {word.partition("=")[0].replace("-", "_"): at for at, word in enumerate(launcher) if word.startswith("--")}
    shards = next((launcher[at] for flag, at in flags.items() if _SHARDS.fullmatch(flag)), None)
    if shards is not None and not {"deepspeed", "fsdp"} & content.keys():
        raise InputError(f"{shards.partition('=')[0]} shards, which nest does not read; put it into the --config_file.")
    at, processes = flags.get("__config_file") if "launch" in launcher else None, "__num_processes" in flags
    if at is None:
        return None, processes
    _, equals, name = launcher[at].partition("=")
    return name if equals else "".join(launcher[at + 1 : at + 2]), processes


def _of_cli(variables: dict[str, str], options: LaunchOptions) -> LaunchOptions:
    """Machines and devices of LLaMA-Factory's launcher."""
    seen = [each for each in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip().isdecimal()]
    said = {name: int(variables[name]) for name in ("NNODES", "NPROC_PER_NODE") if variables.get(name, "").isdecimal()}
    each = options.devices_per_node or said.get("NPROC_PER_NODE") or len(seen) or None
    return evolve(options, nodes=options.nodes or said.get("NNODES"), devices_per_node=each)


def of_ray(keys: Keys, options: LaunchOptions) -> LaunchOptions:
    """Ray's workers as processes, where it starts LLaMA-Factory (src/llamafactory/hparams/training_args.py)."""
    workers = keys.integer("ray_num_workers")
    if workers is None or options.nodes is not None:
        return options
    each = min(workers, options.devices_per_node or options.machine or PER_MACHINE)
    keys.note(f"ray_num_workers: nest assumes Ray to start {workers} processes (USE_RAY=1).")
    if workers % each:
        keys.problem(f"ray_num_workers {workers} is no multiple of the {each} devices of a machine; give --nodes.")
    return evolve(options, nodes=max(workers // each, 1), devices_per_node=each)


def _trains(words: Sequence[str]) -> bool:
    named = any(_NAMED.match(word) for word in words)
    place = _program(words)
    return place is not None and (words[place - 1].endswith(CLI) or named or _file(words, place))


def _file(words: Sequence[str], place: int) -> bool:
    """Whether a file of arguments is the first argument."""
    return "".join(words[place + 1 : place + 2]).endswith(FILES)


def _program(words: Sequence[str]) -> int | None:
    """Place of the program, or of `train` behind LLaMA-Factory's command; None: it runs neither."""
    for place, word in enumerate(words):
        if word == "train" and place and words[place - 1].endswith(CLI):
            return place
        if word.endswith(".py") or (place and words[place - 1] == "-m" and not word.startswith("torch.distributed")):
            return place
    return None
