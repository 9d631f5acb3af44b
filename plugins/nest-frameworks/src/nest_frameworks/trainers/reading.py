"""From files of LLaMA-Factory, Axolotl and Hugging Face's Trainer to the keys of a problem.

What is sharded stands in DeepSpeed's file, or in the keys of FSDP, or in the file of `accelerate launch` beside, which
their own readers read.
"""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from attrs import evolve

from nest.catalogue.spellings import catalogued, published
from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.io import placed, read_mapping_text
from nest.io.source import read_text_of
from nest.spec import Architecture
from nest_frameworks import accelerate, deepspeed
from nest_frameworks.accelerate import YAML_FILE
from nest_frameworks.deepspeed import BATCH, MICRO
from nest_frameworks.keys import PER_MACHINE, UNKNOWN_OPTIMIZER, Keys, launched, opened, said
from nest_frameworks.trainers.adapters import adapters, of_experts, thawed
from nest_frameworks.trainers.kernels import ON, kernels
from nest_frameworks.trainers.models import UNKNOWN, with_model
from nest_frameworks.trainers.names import (
    AXOLOTL,
    FLASH,
    INPUTS,
    LLAMA_FACTORY,
    OPTIMIZERS,
    STEPS,
    TRANSFORMERS,
    TRL,
    TRL_KEYS,
    Names,
)
from nest_frameworks.trainers.narrow import EIGHT, check_experts
from nest_frameworks.trainers.scripts import Started, arguments, is_script, of_ray

EXCHANGES = {"varlen_llama3": "allgather", "batch_ring": "alltoall"}
"""Accelerate's word for the exchange of keys and values, by Axolotl's `ring_attn_func` (monkeypatch/ring_attn)."""


def read_transformers(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read arguments of Hugging Face's Trainer: JSON, or YAML, as `HfArgumentParser` reads."""
    return _read(TRANSFORMERS, text, options or LaunchOptions())


def read_llama_factory(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a YAML file of LLaMA-Factory."""
    return _read(LLAMA_FACTORY, text, options or LaunchOptions())


def read_axolotl(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a YAML file of Axolotl."""
    return _read(AXOLOTL, text, options or LaunchOptions())


def _read(names: Names, text: str, options: LaunchOptions) -> Reading:
    """Read the run of a file.

    `text`: a file, or a script that gives its keys as flags. `options`: its machines, of eight processes by default,
    and its folder.

    Raises:
        InputErrors: keys contradict each other, or cannot be priced.
        InputError: it is no such file, or one that it names is missing or is none.
    """
    if names is not AXOLOTL and is_script(text):
        started = arguments(text, options)
    else:
        content = opened(text, "trainer.yaml", f"the keys of {names.framework}", names.typical)
        started = Started(content, options, [])
    keys, options = Keys(started.content, notes=started.notes), started.options
    if names is LLAMA_FACTORY:
        from nest_frameworks.megatron.relatives import factory

        if factory.asks_for(keys.content):
            return factory.read(keys.content, options)
    asked, options = options, evolve(options, part=None)
    if names is TRANSFORMERS and not keys.content.keys().isdisjoint(TRL_KEYS) and "max_seq_length" not in keys.content:
        names = TRL
        keys.note("trl's keys are in the file: what it leaves out is as in SFTConfig of trl 1.16.")
    for key, (usual, priced, reason) in names.refused.items():
        value = keys.value(key)
        if (usual if value is None else value) not in priced:
            told = f"left out, which is {usual}" if value is None else f"{value!s:.60}"
            keys.problem(f"{key} is {told}, but {reason}.")
    micro = keys.integer(names.micro[0]) or names.micro[1]
    training, steps = _training(keys, names), _steps(keys, micro)
    fixed: dict[str, Any] = {"micro_batch": micro, "recompute": _recompute(keys, names)}
    options = of_ray(keys, options) if names is LLAMA_FACTORY else options
    launch = started.settings if isinstance(started.settings, dict) else _beside(keys, options, started.settings)
    sharded = any(keys.value(key) for key in SHARDING)
    if launch is not None and (sharded or Keys(launch).value(accelerate.FILE) is not None):
        file = {} if sharded else {"deepspeed": Keys(launch).value(accelerate.FILE)}
        options, launch = accelerate.with_machines(launch, options), None
        keys.content = {**keys.content, **file}
    if launch is None and options.nodes is None and (keys.value("deepspeed") or not keys.value("dp_shard_size")):
        keys.note("nest assumes one machine, as its launchers do by default; change this with --nodes.")
        options = evolve(options, nodes=1)
    ranks = launched(keys, options) if launch is None else None
    each = options.devices_per_node or ((options.machine or PER_MACHINE) if ranks else None)
    options = evolve(options, devices_per_node=each)
    inner = (_deepspeed if keys.value("deepspeed") else _accelerate)(
        keys, names, options, {**training, **fixed, "steps": steps, "ranks": ranks, "launch": launch}
    )
    ours = {key: value for key, value in training.items() if inner.settings["training"].get(key) is None}
    if launch is not None and names is not TRL and not [key for key in names.formats if keys.value(key) in ON]:
        training["precision"] = inner.settings["training"].get("precision", training["precision"])
    training = {**inner.settings["training"], **ours, "precision": training["precision"], **kernels(keys, names)}
    if training["optimizer"] is None:
        keys.problem(f"{names.optimizer} is {keys.value(names.optimizer)!s:.60}, {UNKNOWN_OPTIMIZER}.")
    fixed = {**fixed, **inner.settings["fixed"]}
    if fixed.get("dp") is None:
        keys.problem("how many processes there are is not known, and the batch follows from it: give --nodes.")
    answers = 2 if names is LLAMA_FACTORY and keys.value("stage") == "rm" else 1
    if answers > 1:
        keys.note("a reward model reads two answers a sample: batches count both.")
        keys.note("nest assumes a loss over the vocabulary; a reward model computes none from it.")
        fixed["micro_batch"] = answers * micro
    training["global_batch"] = batch = answers * micro * steps * int(fixed.get("dp", 1))
    _accumulated(keys, training, fixed, steps)
    last = keys.integer("max_steps", -1) or 0
    if last > 0 and training.get("sequence_length"):
        training["tokens"] = prod((last, batch, training["sequence_length"]))
    kept = (training.get("trainable") or {}).get("stored")
    model, built = _model(keys, names, asked, kept)
    training["trainable"] = of_experts(keys, names, training.get("trainable"), built or options.model)
    if names is LLAMA_FACTORY and keys.value("finetuning_type") == "freeze":
        training["trainable"] = thawed(keys, built or options.model)
    if kept == EIGHT and fixed.get("zero") == 3:
        keys.problem("ZeRO 3 cannot shard weights in 8 bits; bitsandbytes shards those in 4.")
    keys.refuse(names.changing)
    keys.unpriced(names.passed_over())
    fixed.pop("micro_batches", None)
    settings = {"training": said(training), "fixed": said(fixed), **({} if model is None else {"model": model})}
    each, notes = inner.ranks_per_node or keys.ranks_per_node, (*keys.finish(names.patterns()), *inner.notes)
    return Reading(settings, inner.devices, notes=notes, ranks_per_node=each)


def _training(keys: Keys, names: Names) -> dict[str, Any]:
    on = [key for key in names.formats if keys.value(key) in ON]
    precision = names.formats[on[0]] if on else "fp32" if keys.value(names.usual) is False else names.usual
    if {"bf16", "fp16"} <= {names.formats[key] for key in on}:
        keys.problem(f"{' and '.join(on)} are all given; {names.framework} takes one of them.")
    pure = [key for key in names.pure if key in on]
    if pure and keys.value("deepspeed"):
        keys.note(f"{pure[0]} is priced as if DeepSpeed kept weights in single precision beside.")
    optimizer = str(keys.value(names.optimizer) or "adamw_torch")
    lengths = [length for key in names.lengths if (length := keys.integer(key)) is not None]
    if not [key for key in names.filled if keys.value(key)]:
        keys.note(f"nest assumes samples to be of {names.lengths[0]} tokens each; shorter ones take less.")
    flags = {key: keys.value(key) for key in ("flash_attention", "sdp_attention", "flex_attention", "eager_attention")}
    attention: str | None = None
    if "/" in str(keys.value(names.attention)):  # A kernel of Hugging Face's hub, all of which are fused.
        attention = FLASH
    elif keys.value(names.attention) is not None or names.length is not None:
        attention = keys.choice(names.attention, names.attentions, "unfused" if flags["eager_attention"] else FLASH)
    training = {
        "precision": precision,
        "optimizer": OPTIMIZERS.get(optimizer),
        "sequence_length": lengths[0] if lengths else names.length,
        "attention": attention,
        "trainable": adapters(keys, names),
    }
    return training | (_narrow(training) if pure and not keys.value("deepspeed") else {})


def _narrow(training: Mapping[str, Any]) -> dict[str, Any]:
    """Kept state with only 16-bit weights: gradients and AdamW's state share their format."""
    state = {"adamw": "adam-bf16"}.get(training["optimizer"], training["optimizer"])
    return {"master_weights": False, "master_gradients": False, "gradients": training["precision"], "optimizer": state}


def _recompute(keys: Keys, names: Names) -> str:
    told = [keys.value(key) for key in ("gradient_checkpointing", "activation_checkpointing")]
    if names.recomputes and told == [None, None]:
        return "full"
    if names.kept:
        return "none" if keys.truth(names.kept) else "full"
    if str(keys.value("gradient_checkpointing")).startswith(("offload", "unsloth")):
        keys.refuse({"gradient_checkpointing": INPUTS})
    return "full" if any(told) else "none"


def _steps(keys: Keys, micro: int) -> int:
    """Micro-batches of a step; Axolotl's `batch_size` counts one device."""
    steps = keys.integer(STEPS)
    whole = keys.integer("batch_size") if steps is None else None
    return steps or max((whole or micro) // micro, 1)


SHARDING = ("deepspeed", "fsdp", "fsdp_config")
"""Keys that say how a run is split, in place of Accelerate's file."""


def _beside(keys: Keys, options: LaunchOptions, named: str | None) -> Mapping[str, Any] | None:
    """Settings of the `accelerate launch` file.

    `named`: the file that a script names; None: it may lie beside, unless this one says how to shard.
    """
    if named is None and any(keys.value(key) for key in SHARDING):
        return None
    found = None if options.folder is None else _found(named or YAML_FILE, options.folder)
    if named is None and (found is None or found.parent != options.folder):
        return None
    if found is None:
        raise InputError(f"`accelerate launch` names {named:.80}, which is not here; put that file beside this one.")
    if named is None:
        keys.note(f"nest assumes it to be started by `accelerate launch` with {YAML_FILE}, which lies beside.")
    return opened(read_text_of(found), YAML_FILE, "Accelerate's keys", accelerate.SECTIONS)


def _found(name: str, folder: Path) -> Path | None:
    """A file that is named from a folder, or from one above it, such as the root of a repository."""
    for path in (*(above / name for above in (folder, *folder.parents)), folder / Path(name).name):
        try:
            if path.is_file():
                return path
        except OSError:
            continue
    return None


def _content(keys: Keys, key: str, options: LaunchOptions) -> dict[str, Any]:
    """Content of a key, or of the file that it names; empty: nothing.

    Raises:
        InputError: there is no such file, or it is none.
    """
    named = keys.value(key)
    if named is None or isinstance(named, Mapping):
        return dict(named or {})
    if named is True:
        raise InputError(f"{key} names no file, as the arguments of Hugging Face's Trainer do; write its file there.")
    path = None if options.folder is None else _found(str(named), options.folder)
    if path is None:
        file = Path(str(named)).name
        raise InputError(
            f"{key} is {named!s:.200}, which is not there; put {file} beside this file, or its name there."
        )
    try:
        return read_mapping_text(read_text_of(path), path.name)
    except InputError as error:
        raise placed(path, error) from None


def _deepspeed(keys: Keys, names: Names, options: LaunchOptions, ours: Mapping[str, Any]) -> Reading:
    """Read DeepSpeed's settings, `auto` filled in as `HfTrainerDeepSpeedConfig` does (transformers, integrations)."""
    content = _content(keys, "deepspeed", options)
    content.pop("activation_checkpointing", None)  # The Trainer checkpoints by itself.
    if content.get(BATCH) in (None, "auto"):
        content.pop(BATCH, None)
    for key, value in ((MICRO, ours["micro_batch"]), (STEPS, ours["steps"])):
        if content.setdefault(key, "auto") not in ("auto", value):
            keys.problem(f"{key} is {content[key]!r:.60} in DeepSpeed's file, and {value} here.")
        content[key] = value
    for name in ("bf16", "fp16"):
        section = content.get(name)
        if isinstance(section, Mapping) and section.get("enabled") == "auto":
            content[name] = {**section, "enabled": ours["precision"] == name}
    tp = _size(keys, "tensor_parallel_size") if names is AXOLOTL else 1
    if tp > 1:
        content["tensor_parallel"] = {"autotp_size": tp}
    if names is AXOLOTL and _context(keys) > 1:
        keys.problem("context_parallel_size is above 1 beside deepspeed, which nest does not read; give fsdp_config.")
    if keys.problems:
        keys.finish(())  # Which raises them.
    found = deepspeed.read(json.dumps(content), options)
    told = found.settings["training"].get("precision")
    if told is not None and told != ours["precision"] and ours["precision"] != "fp8":
        keys.problem(f"DeepSpeed's file has precision {told}, and this one {ours['precision']}.")
    fixed = {key: value for key, value in found.settings["fixed"].items() if key != "recompute"}
    return evolve(found, settings={**found.settings, "fixed": fixed})


def _accelerate(keys: Keys, names: Names, options: LaunchOptions, ours: Mapping[str, Any]) -> Reading:
    """Read Accelerate's settings, with FSDP or without."""
    content = ours["launch"]
    if content is None:
        precision = "no" if ours["precision"] == "fp32" else ours["precision"]
        sizes, ranks = _sizes(keys, ours["ranks"]) if names is AXOLOTL else ({}, ours["ranks"])
        config = {f"fsdp_{_short(key)}": value for key, value in _content(keys, "fsdp_config", options).items()}
        sharded = bool(keys.value("fsdp")) or (names is AXOLOTL and bool(config))
        keys.value("fsdp_version")
        if sharded:
            config |= _legacy(keys, config)
        elif ranks != 1:
            keys.note(
                "no key shards anything: nest assumes every device to hold all parameters; with `accelerate launch`, "
                f"put its file beside, as {YAML_FILE}."
            )
        content = said(
            {
                "distributed_type": "FSDP" if sharded else "MULTI_GPU",
                "mixed_precision": precision,
                "num_machines": options.nodes,
                "num_processes": ranks,
                "fsdp_config": config if sharded else None,
                "parallelism_config": sizes or None,
            }
        )
    inner = Keys(content)
    settings, devices = accelerate.sharding(inner, options)
    keys.problems += inner.problems
    inner.problems.clear()
    fixed, training = dict(settings["fixed"]), dict(settings["training"])
    loaded = names is AXOLOTL or any(keys.value(key) in ("bfloat16", "float16") for key in ("dtype", "torch_dtype"))
    if fixed.get("zero") == 0 and loaded and not ours["trainable"] and ours["precision"] in ("bf16", "fp16"):
        training |= _narrow(ours)
        keys.note(f"without sharding {names.framework} keeps weights in 16 bits alone; they are priced so.")
    settings, notes = {"training": training, "fixed": fixed}, inner.finish(accelerate.HARMLESS)
    return Reading(settings, devices, notes=notes, ranks_per_node=inner.ranks_per_node)


def _short(key: str) -> str:
    """A key of `fsdp_config`, which may have the prefix or not."""
    plain = key.removeprefix("fsdp_")
    return {"cpu_offload": "offload_params"}.get(plain, plain)


def _legacy(keys: Keys, config: Mapping[str, Any]) -> dict[str, Any]:
    """Read the words of `fsdp`: `full_shard auto_wrap`, or a list of them."""
    told = keys.value("fsdp")
    words = told.split() if isinstance(told, str) else told if isinstance(told, list) else []
    legacy: dict[str, Any] = {}
    for word in map(str, words):
        if word in accelerate.STRATEGIES:
            legacy["fsdp_sharding_strategy"] = config.get("fsdp_sharding_strategy", word)
        elif word == "offload":
            legacy["fsdp_offload_params"] = True
        elif word != "auto_wrap":
            keys.problem(f"fsdp has the word {word:.60}, which nest does not know.")
    return legacy


def _size(keys: Keys, name: str) -> int:
    return keys.integer(name) or 1


def _context(keys: Keys) -> int:
    former = _size(keys, "sequence_parallel_degree")
    return keys.integer("context_parallel_size") or former


def _sizes(keys: Keys, ranks: int | None) -> tuple[dict[str, Any], int | None]:
    """Sizes of Accelerate's mesh and the number of ranks, after `_get_parallel_config_kwargs` of Axolotl."""
    tp, cp, shard = _size(keys, "tensor_parallel_size"), _context(keys), keys.integer("dp_shard_size")
    replicate, packed = keys.integer("dp_replicate_size"), bool(keys.value("sample_packing"))
    default = "varlen_llama3" if packed else "batch_ring"
    exchange = keys.choice("ring_attn_func", EXCHANGES, EXCHANGES[default])
    if ranks is None and shard is not None:
        ranks = tp * cp * shard * (replicate or 1)
        keys.note(f"the sizes of the mesh make {ranks} processes; change this with --nodes.")
    if ranks is None:
        return {}, None
    left, over = divmod(ranks, tp * cp * (replicate or 1))
    if shard is None:
        shard = left
    elif replicate is None and left % shard == 0:
        replicate = left // shard
    if over or shard * (replicate or 1) * tp * cp != ranks:
        keys.problem(
            f"dp_shard_size, dp_replicate_size, tensor_parallel_size and context_parallel_size do not make the {ranks} "
            "processes there are; give other --nodes, or other sizes."
        )
    sizes = {"dp_replicate_size": replicate, "dp_shard_size": shard, "tp_size": tp, "cp_size": cp}
    return said({**sizes, "parallelism_config_cp_comm_strategy": exchange if cp > 1 else None}), ranks


def _accumulated(keys: Keys, training: dict[str, Any], fixed: Mapping[str, Any], steps: int) -> None:
    """Tell what FSDP does with gradients between micro-batches (`Accelerator.no_sync`, accelerator.py)."""
    path = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
    if training.get("stack") != "transformers" or not fixed.get("zero") or keys.truth(path) or steps == 1:
        return
    if fixed["zero"] == 2:
        training["accumulation"] = "whole"
        return
    keys.note(
        f"between the {steps} micro-batches of a step FSDP keeps whole gradients on every device, which is not priced: "
        f"nest prices {path}, which reduces each."
    )


def _model(
    keys: Keys, names: Names, options: LaunchOptions, kept: str | None
) -> tuple[str | None, Architecture | None]:
    """The catalogue's name of the model, or its `config.json`, and what it is made of; None: the problem says."""
    name = str(keys.value(names.model) or UNKNOWN)
    if name == UNKNOWN:
        return None, None
    known, architecture = with_model(keys, names.model, options, narrow=True)
    check_experts(keys, names, kept, architecture)
    if known is not None and known == catalogued(name) and name != published(known):
        keys.note(f"nest assumes {names.model} {name:.120} to be built as {known}.")
    return known, architecture
