"""Public launch files: facts retyped into rows, and a generator that writes a file of each framework from them.

Rows (`corpus.jsonl`) name the repository, commit and path of a file, and have the keys of it that decide layout, memory
or model, in the framework's own words. Files were chosen before any was tried: of all training files of a repository
those whose path has the least SHA-256. `written` spells a row in one of several ways, as people do.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.io import yaml_text

STYLES = ("plain", "variables", "array", "file")


@frozen
class Row:
    """A public file.

    Attributes:
        reader: name of the plan reader.
        source: repository, commit and path.
        facts: keys and values that decide.
        nodes: machines of eight devices that it is read with; None: it says its own.
        part: the part of its model that it is read with; None: all of it.
        model: configuration of a model that lies elsewhere, given with it; None: none.
        refused: part of the reason why it is refused; empty: it is read.
    """

    reader: str
    source: str
    facts: Mapping[str, Any]
    nodes: int | None = None
    part: str | None = None
    model: Mapping[str, Any] | None = None
    refused: str = ""

    @property
    def framework(self) -> str:
        """The repository's own name."""
        return self.source.partition("@")[0].rpartition("/")[2]


def rows() -> list[Row]:
    """All of them."""
    text = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8")
    return [Row(**json.loads(line)) for line in text.splitlines()]


def written(row: Row, style: str = "plain") -> dict[str, str]:
    """The files of a row, the one to read first; YAML has one style."""
    facts = dict(row.facts)
    if row.source.endswith(".json"):
        return {"run.json": json.dumps(facts)}
    if row.reader in ("axolotl", "llama-factory", "transformers", "nanotron"):
        return {"run.yaml": yaml_text(facts)}
    if row.framework == "Primus":
        trainer, model = facts.pop("trainer"), facts.pop("model", None)
        config = facts.pop("config", f"{trainer}.yaml")
        module = {"framework": "megatron", "config": config, "model": model, "overrides": facts}
        return {"run.yaml": "modules:\n" + _below(yaml_text({trainer: module}))}
    if row.source.endswith(".yaml"):
        flags = {key if "." in key else f"--{key}": value for key, value in facts.items()}
        return {"run.yaml": yaml_text({"ENV_VARS": {}, "MODEL_ARGS": flags})}
    return _script(row, facts, style)


def _below(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def _script(row: Row, facts: dict[str, Any], style: str) -> dict[str, str]:
    """A launch script: `plain`, with `variables`, with an `array`, or with arguments in a `file` beside."""
    variables = {name: facts.pop(name) for name in ("NPROC_PER_NODE", "NNODES") if name in facts}
    program = str(facts.pop("program", ""))
    if row.framework in ("verl", "maxtext"):
        trainer = (
            f"torchrun --nproc-per-node $1 -m verl.trainer.{program}" if program else "python3 -m verl.trainer.main_ppo"
        )
        call = {"verl": trainer, "maxtext": "python3 -m MaxText.train base.yml"}[row.framework]
        words = [f"{key}={_quoted(value)}" for key, value in facts.items()]
    elif row.framework == "ms-swift":
        call = program or "megatron sft"
        words = list(_flags(facts, "_"))
    else:
        call, words = f"torchrun --nproc-per-node 8 {program}", list(_flags(facts, "-"))
    exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
    if style == "variables":
        named = {f"V{index}": word.split(maxsplit=1)[-1] for index, word in enumerate(words) if " " in word}
        words = [f"{word.split()[0]} ${{V{index}}}" if " " in word else word for index, word in enumerate(words)]
        head = "".join(f"{name}={_shell(value)}\n" for name, value in named.items())
        return {"run.sh": f"{exports}{head}{call} {' '.join(words)}\n"}
    if style == "array":
        listed = "".join(f"  {word}\n" for word in words)
        return {"run.sh": f'{exports}ARGS=(\n{listed})\n{call} "${{ARGS[@]}}"\n'}
    if style == "file" and not any("'" in word or '"' in word for word in words):
        return {"run.sh": f"{exports}{call} $(cat flags.txt)\n", "flags.txt": "\n".join(words) + "\n"}
    return {"run.sh": f"{exports}{call} \\\n    " + " \\\n    ".join(words) + "\n"}


def _flags(facts: Mapping[str, Any], joint: str) -> Iterator[str]:
    for key, value in facts.items():
        name = f"--{key.replace('_', joint).replace('-', joint)}"
        values = value if isinstance(value, list) else [value]
        yield name if value is True else f"{name} {' '.join(map(_quoted, values))}"


def _quoted(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text}'" if any(letter in text for letter in " ()[]*|$&;<>") else text


def _shell(value: str) -> str:
    return value if value.startswith("'") else f"'{value}'"


NAMES = {
    "tp": ("tensor_model_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "cp": ("context_parallel_size",),
    "micro_batch": (
        *("micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu"),
        *("ppo_micro_batch_size_per_gpu", "micro_batch_size_per_gpu"),
    ),
    "global_batch": ("global_batch_size",),
    "sequence_length": ("seq_length", "sequence_len", "cutoff_len", "max_seq_length"),
}
"""What frameworks with Megatron Core, and Hugging Face's Trainer, call a decision."""


def decided(row: Row) -> dict[str, Any]:
    """What a row decides, by a reading of its own, where it says so: degrees, batches, length and recomputation."""
    said = {key.replace("-", "_").rpartition(".")[2]: value for key, value in _single(row.facts)}
    found: dict[str, Any] = {}
    for name, keys in NAMES.items():
        value = next((said[key] for key in keys if key in said), None)
        if value is not None and str(value).isdecimal():
            found[name] = int(value)
    if "rm" in (said.get("stage"), said.get("rlhf_type")) and not said.get("packing"):  # Two answers a sample.
        found |= {name: 2 * found[name] for name in ("micro_batch", "global_batch") if name in found}
    if {"max_prompt_length", "max_response_length"} <= {*said}:
        found["sequence_length"] = int(said["max_prompt_length"]) + int(said["max_response_length"])
    if said.get("recompute_granularity") in ("full", "selective") and said.get("recompute_num_layers") not in (0, "0"):
        found["recompute"] = said["recompute_granularity"]
    return found


def _single(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values, of sections as well."""
    for key, value in facts.items():
        yield from _single(value) if isinstance(value, Mapping) else [(key, value)]
