"""docs/reference/mistakes.md: what people write by mistake, and what nest answers.

`python -m tests.docs.refresh docs/reference/mistakes.md` writes the answers of today; `tests/cli/test_mistakes.py` sees
to it that each names its remedy.
"""

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from pathlib import Path
from typing import Any

import attrs

from nest.cli import app, output
from nest.io import yaml_text
from tests.docs.generated import begin
from tests.docs.generated import refreshed as with_parts

FILE = "problem.yaml"
SOLVE = ("solve", FILE)

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": "llama-3-8b",
    "training": {"global_batch": 64, "sequence_length": 4096, "micro_batch": [1]},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 8, "bandwidth": "450 GB/s"},
            {"name": "rack", "fanout": 2, "bandwidth": "50 GB/s"},
        ],
    },
}
MOE = {"model": "mixtral-8x7b"}
LEVEL = "cluster.levels[0]"
NDR = {"cluster.levels[1].link": "infiniband-ndr"}


@attrs.frozen
class Mistake:
    """Something written by mistake.

    Attributes:
        written: values of the problem by their paths, None for what is left out; or the text of the whole file.
        remedy: what the answer must say.
        command: what is run.
        exit: with which code it ends.
        beside: further values, which are no mistake.
    """

    written: Mapping[str, Any] | str
    remedy: str
    command: tuple[str, ...] = SOLVE
    exit: int = 2
    beside: Mapping[str, Any] = attrs.field(factory=dict)


M = Mistake
GROUPS: dict[str, tuple[Mistake, ...]] = {
    "Units": (
        M({f"{LEVEL}.bandwidth": 450}, "did you mean 450 GB/s?"),
        M({f"{LEVEL}.bandwidth": "450 Gb"}, "Gb/s or GB/s?"),
        M({f"{LEVEL}.bandwidth": "450 GBps"}, "GB/s or Gb/s?"),
        M({f"{LEVEL}.bandwidth": "400G"}, "GB/s or GiB/s or Gbit/s?"),
        M({f"{LEVEL}.bandwidth": "50 GB/s", "cluster.levels[1].bandwidth": "450 GB/s"}, "innermost first", exit=0),
        M({**NDR, "cluster.levels[1].bandwidth": "400 GB/s"}, "did you mean 400 Gbit/s", exit=0),
        M({**NDR, "cluster.levels[1].bandwidth": "50 Gbit/s"}, "did you mean 50 GB/s?", exit=0),
        M({f"{LEVEL}.bandwidth": "900 GB/s"}, "450 GB/s in each direction", exit=0),
        M({"cluster.levels[1].latency": "6 ms"}, "did you mean 6 us?", exit=0),
        M({f"{LEVEL}.latency": 3}, "did you mean 3 us?"),
        M({f"{LEVEL}.latency": "3 sec"}, "did you mean s?"),
        M({"cluster.memory": 80}, "did you mean 80 GiB?"),
        M({"cluster.memory": "80G"}, "GB or GiB?"),
        M({"cluster.memory": "80 gb"}, "did you mean GB?"),
        M({"cluster.memory": "80,5 GB"}, "must be a size"),
        M({"cluster.memory": "640 GB"}, "80 GB for each of 8 devices", exit=0),
        M({"cluster.reserve": 4}, "did you mean 4 GiB?"),
        M({"cluster.reserve": "100 GiB"}, "reserve less"),
        M({}, "did you mean min?", (*SOLVE, "--time-limit", "5 mins")),
    ),
    "Numbers": (
        M({"training.global_batch": -64}, "from 1 to"),
        M({"training.global_batch": "64"}, "leave the quotes out"),
        M({"training.global_batch": 64.5}, "must be a whole number"),
        M({"training.global_batch": [64, 128]}, "must be a whole number, is a list"),
        M({"training.sequence_length": "8 kB"}, "must be a whole number"),
        M({f"{LEVEL}.fanout": 0}, "at least 1"),
        M({"training.memory_risk": 1}, "from 0.001 to 0.999"),
        M({"training.memory_margin": 80}, "from 0 to 1"),
        M({"training.memory_risk": "5%"}, "such as 0.05 for 5 %"),
        M({"training.uneven_batch": "yes"}, "must be true or false"),
        M({"training.micro_batch": []}, "must not be empty"),
        M({"training.micro_batch": 128}, "above the global batch of 64"),
        M({"training.micro_batch": [3, 5]}, "divides training.global_batch (64)"),
        M({"training.sequence_length": 8193}, "8192 would not", exit=0),
        M({"training.global_batch": 60}, "64 would use all of them", exit=0, beside={"cluster.levels[1].fanout": 8}),
        M({"training.global_batch": 15}, "16 would use all of them", exit=0),
        M({"training.tokens": 15}, "such as 15T", exit=0),
    ),
    "Keys": (
        M({"training.global_batc": 64, "training.global_batch": None}, "did you mean global_batch?"),
        M({"training.batch_size": 64}, "write `global_batch: 64`"),
        M({"training.seq_len": 8192}, "write `sequence_length: 8192`"),
        M({"training.micro_batch_size": 2}, "write `micro_batch: 2`"),
        M({"training.gradient_accumulation_steps": 8}, "write `micro_batches: 8` under `fixed`"),
        M({"training.tensor_model_parallel_size": 8}, "write `tp: 8` under `fixed`"),
        M({"training.activation_checkpointing": True}, "write `recompute: full` under `fixed`"),
        M({"training.dtype": "bfloat16"}, "write `precision: bf16`"),
        M({"tp": 8}, "write `tp: 8` under `fixed`"),
        M({"cluster.gpus": 128}, "write `levels: [{fanout: 8"),
        M({"cluster.gpu": "h100-sxm"}, "write `device: h100-sxm`"),
        M({"training.overlap.tp": True}, "write `tensor: true`"),
        M({"cluster.link": "nvlink4"}, "write `link: nvlink4` under `cluster.levels`"),
        M(
            {"model": {"transformer": {"num_layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000}}},
            "write `layers: 32`",
        ),
        M({f"{LEVEL}.bw": "450 GB/s"}, "write `bandwidth: 450 GB/s`"),
        M({"strategies.pp": [1, 2]}, "Write `pp: 4` under `fixed`"),
        M({"search.zero_stage": 3}, "write `zero: 3`"),
        M({"cluster": None}, "cluster is missing"),
        M({"training.sequence_length": None}, "give the tokens per sample"),
        M({"model": None}, "give model or profile"),
        M({"profile": "profile.json"}, "leave one out"),
        M({"cluster.levels": None}, "give one network"),
        M({"cluster.device": None}, "name one that `nest devices` lists"),
    ),
    "Names": (
        M({"cluster.device": "H100"}, "Did you mean 'h100-sxm'?"),
        M({"cluster.device": "A100-80GB"}, "Did you mean 'a100-sxm-80g'?"),
        M({"cluster.device": "A100"}, "'a100-sxm-40g' or 'a100-sxm-80g'?"),
        M({"cluster.device": "dgx-h100"}, "the cluster 'dgx-h100-superpod'? It belongs under `cluster.name`"),
        M({"cluster.device": "rtx-4090"}, "For any other device, write its figures"),
        M({"cluster": "h100-sxm"}, "It is a device; write it under `cluster.device`"),
        M({"cluster": "dgx-h100-superpod-12"}, "use a multiple of"),
        M({"cluster.levels[1].link": "ndr400"}, "Write `infiniband-ndr`"),
        M({"model": "llama3-70b"}, "Did you mean 'llama-3-70b'?"),
        M({"model": "meta-llama/Meta-Llama-3-70B"}, "Did you mean 'llama-3-70b'?"),
        M({"model": "Qwen/Qwen3-Next-80B-A3B"}, "give its path"),
        M({"model": "gpt2", "training.sequence_length": 2048}, "learns only 1024 positions"),
        M({"model": "llama/config.json"}, "there is no file"),
        M({"model": {"model_type": "rwkv7"}}, "`nest capture config.json --output graph.json`"),
        M({"model": {"hidden_size": 4096}}, "`model_type` is missing"),
        M({"training.precision": "bfloat16"}, "write `bf16`"),
        M({"training.optimizer": "adamw_torch"}, "Write `adamw`"),
        M({"training.schedule": "dual-pipe"}, "Did you mean 'dualpipe'?"),
        M({"training.schedule": "vpp"}, "Write `interleaved`"),
        M({"search.recompute": "selectiv"}, "Did you mean 'selective'?"),
        M({"search.target": "megatron-lm"}, "Write `megatron`"),
        M({"training.stack": "torchtitan"}, "Known: "),
    ),
    "Decisions": (
        M({"fixed.tensor_parallel": 8}, "Write `tp: 8`"),
        M({"fixed.fsdp": True}, "Write `zero: 3`"),
        M({"fixed.vpp": 2}, "Write `chunks: 2`"),
        M({}, "Write `tp: 8`", ("evaluate", FILE, "--fix", "TP=8")),
        M({"fixed.tp": 3}, "only allow tp 1, 2, 4, 8, 16"),
        M({"fixed.tp": 64}, "only allow tp 1, 2, 4, 8, 16"),
        M({"fixed.tp": 0}, "a whole number of at least 1"),
        M({"fixed.ep": 2}, "only allow ep 1"),
        M({"fixed.ep": 3}, "only allow ep 1, 2, 4, 8", beside=MOE),
        M({"fixed.cp": 3}, "only allow cp 1, 2, 4, 8, 16"),
        M({"fixed.pp": 40}, "pp can only be 1 to 16", exit=1),
        M({"fixed.pp": 40}, "only 32 transformer blocks", ("evaluate", FILE), beside={"cluster.levels[1].fanout": 16}),
        M({"fixed.dp": 3}, "3 does not divide training.global_batch (64)", exit=1),
        M({"fixed.tp": 8, "fixed.pp": 4}, "pp can only be 1, 2", exit=1),
        M({"fixed.micro_batch": 128}, "a whole number from 1 to training.global_batch (64)"),
        M({"fixed.devices": 20}, "devices can only be 1 to 16", exit=1),
        M({}, "32 in total, but the cluster has 16", ("evaluate", FILE, "--fix", "tp=8", "--fix", "pp=4")),
        M({"fixed": "tp=8"}, "must hold keys and values"),
        M({"fixed.zero": 5}, "0, 1, 2 or 3"),
        M({"fixed.recompute": "all"}, "Write `full`"),
        M({"fixed.recompute_num_layers": 5}, "recompute_layers: 5"),
        M({"fixed.recompute_layers": 0}, "at least 1"),
        M({"fixed.recompute_layers": 5, "fixed.recompute": "none"}, "leave it out"),
        M({"fixed.recompute_layers": 5, "fixed.recompute_rest": "full"}, "none or selective"),
        M({"fixed.recompute_layers": 5, "search.target": "torchtitan"}, "choose another target"),
        M({"fixed.recompute_layers": 5, "search.recompute_layers": False}, "change one of them"),
        M({"fixed.tp": 8, "strategies.tp": [1, 2]}, "change one of them"),
        M({"fixed.chunks": 2, "training.schedule": "1f1b"}, "change one of them"),
        M({"fixed.stages": [16, 15]}, "blocks"),
        M({"fixed.zero": 3, "fixed.pp": 2, "search.target": "megatron"}, "zero < 2 or pp == 1", exit=1),
    ),
    "Constraints": (
        M({"constraints": ["tp = 8"]}, "equality is written `==`"),
        M({"constraints": ["tp <= 8 and"]}, "is not an expression such as"),
        M({"constraints": ["tp"]}, "compare it with something"),
        M({"constraints": ["tensor_parallel <= 8"]}, "Write `tp`"),
        M({"constraints": ["same_stage(embedding, head)"]}, "quoted layer names"),
        M({"constraints": ['same_stage("embeding", "head")']}, "'embedding'"),
        M({"constraints": ["max(tp, cp) <= 8"]}, "see docs/reference/constraints.md"),
        M({"constraints": ["replicas > 16"]}, "replicas can only be 1, 2, 4, 8, 16", exit=1),
        M({"constraints": ["tp / 0 == 1"]}, "division by zero"),
    ),
    "Files": (
        M("", "the file is empty"),
        M("nest: 1\n\tmodel: gpt2\n", "indent with spaces"),
        M("nest:1\nmodel:gpt2\n", "found"),
        M("nest: 1\nmodel: gpt2\nmodel: gpt2-xl\n", "keep one"),
        M("- nest: 1\n", "expected keys and values at the top of the file, found a list"),
        M("nest: 1\nmodel: {transformer: {layers: 2}\n", "this is not YAML"),
        M({}, "there is no such file", ("solve", "problme.yaml")),
        M({}, "this is a problem, not a plan", ("check", FILE)),
        M('{"stages": [], "problem": {}}', "this is a plan, not a problem"),
        M({"nest": 2}, "must be 1"),
    ),
}


ALIKE = frozenset(
    """\
cluster.levels[0].bandwidth: "450 GBps"
cluster.levels[0].bandwidth: "400G"
cluster.levels[0].bandwidth: "900 GB/s"
cluster.levels[1].latency: "6 ms"
cluster.levels[0].latency: 3
cluster.levels[0].latency: "3 sec"
cluster.memory: 80
cluster.memory: "80 gb"
cluster.reserve: 4
cluster.levels[1].link: infiniband-ndr, cluster.levels[1].bandwidth: "50 Gbit/s"
cluster.memory: "80,5 GB"
training.global_batch: 64.5
training.micro_batch: 128
training.uneven_batch: "yes"
model: {transformer: {num_layers: 32, hidden: 4096, heads: 32, ffn: 11008, vocab: 32000}}
training.tensor_model_parallel_size: 8
tp: 8
no training.sequence_length
no model
cluster.levels[1].link: ndr400
model: llama/config.json
nest evaluate problem.yaml --fix TP=8
fixed.tp: 8, fixed.pp: 4
fixed.recompute_layers: 5, fixed.recompute_rest: full
fixed.recompute_layers: 5, search.recompute_layers: false
constraints: ["tensor_parallel <= 8"]
{"stages": [], "problem": {}}
nest: 2
- nest: 1
cluster.reserve: "100 GiB"
fixed.recompute_layers: 5, fixed.recompute: none
training.global_batch: -64
training.sequence_length: "8 kB"
cluster.levels[0].fanout: 0
training.memory_margin: 80
training.micro_batch: []
training.global_batch: 60, with cluster.levels[1].fanout: 8
training.seq_len: 8192
training.micro_batch_size: 2
training.dtype: bfloat16
cluster.gpu: h100-sxm
training.overlap.tp: true
cluster.levels[0].bw: "450 GB/s"
search.zero_stage: 3
cluster.device: A100-80GB
model: llama3-70b
model: {hidden_size: 4096}
model: {model_type: rwkv7}
training.optimizer: adamw_torch
training.schedule: dual-pipe
search.recompute: selectiv
search.target: megatron-lm
training.stack: torchtitan
fixed.fsdp: true
fixed.vpp: 2
fixed.tp: 64
fixed.ep: 2
fixed.ep: 3, with model: mixtral-8x7b
fixed.cp: 3
fixed.micro_batch: 128
fixed.devices: 20
fixed.zero: 5
fixed.recompute: all
fixed.recompute_num_layers: 5
fixed.recompute_layers: 0
fixed.chunks: 2, training.schedule: "1f1b"
fixed.zero: 3, fixed.pp: 2, search.target: megatron
training.global_batch: 15
fixed.tp: 0
cluster.memory: "80G"
constraints: ["tp <= 8 and"]
constraints: ["same_stage(\\"embeding\\", \\"head\\")"]
constraints: ["replicas > 16"]
nest:1 model:gpt2
""".splitlines()
)
"""Mistakes, as the page would write them, with answers of a kind that it shows once already."""


def is_shown(mistake: Mistake) -> bool:
    """Whether the page has this mistake."""
    return _shown(mistake).replace("`", "") not in ALIKE


def rows() -> Iterator[tuple[str, Mistake]]:
    """Every mistake with the heading it stands under."""
    for heading, found in GROUPS.items():
        for each in found:
            yield heading, each


def answer(mistake: Mistake) -> tuple[int, str]:
    """What nest answers, in this process: the exit code, and what it prints that is no plan."""
    with tempfile.TemporaryDirectory() as folder:
        before, arguments = Path.cwd(), sys.argv
        os.chdir(folder)
        Path(FILE).write_text(mistake.written if isinstance(mistake.written, str) else _text(mistake))
        printed, told, code = io.StringIO(), io.StringIO(), 0
        output._noted.clear()  # A note is told once a process.
        sys.argv = ["nest", *mistake.command]
        try:
            with redirect_stdout(printed), redirect_stderr(told):
                app.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            sys.argv = arguments
            os.chdir(before)
    return code, told.getvalue() if code != 1 else printed.getvalue()


def _text(mistake: Mistake) -> str:
    assert not isinstance(mistake.written, str)
    problem = deepcopy(PROBLEM)
    for path, value in {**mistake.beside, **mistake.written}.items():
        steps: list[Any] = [int(index) if index else key for index, key in re.findall(r"\[(\d+)\]|([^.\[]+)", path)]
        place: Any = problem
        for step in steps[:-1]:
            place = place[step] if isinstance(step, int) else place.setdefault(step, {})
        if value is None:
            del place[steps[-1]]
        else:
            place[steps[-1]] = value
    return yaml_text(problem)


NOTES = ("Usage: ", "Try ", "Searching only ", "Assuming ", "Llama 3 8B on ", "Next: ")


def row(mistake: Mistake, told: str) -> str:
    """A row of the page's tables."""
    lines = [re.sub(rf"^(nest: )?({re.escape(FILE)}:(\d+:)? )?", "", line) for line in told.splitlines()]
    kept = [line for line in lines if line.strip() and not line.startswith(NOTES)]
    text = " ".join(kept).replace("|", "\\|")
    shown = re.sub("(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)  # Code has no entities.
    return f"| {_shown(mistake)} | {re.sub(r'Known: .*?[.](?= |$)', 'Known: ...', shown)} |"


def _shown(mistake: Mistake) -> str:
    if isinstance(mistake.written, str):
        text = mistake.written.replace("\t", "→").strip().replace("\n", "` `")
        return f"`{text}`" if text else "nothing"
    parts = [
        f"`{path}: {_value(value)}`" if value is not None else f"no `{path}`" for path, value in mistake.written.items()
    ]
    if mistake.beside:
        parts += [f"with `{path}: {_value(value)}`" for path, value in mistake.beside.items()]
    if mistake.command != SOLVE:
        parts.append(f"`nest {' '.join(mistake.command)}`")
    return ", ".join(parts)


def _value(value: Any) -> str:
    return yaml_text({"v": value}).removeprefix("v:").strip() if not isinstance(value, (list, dict)) else _flow(value)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]"


def _table(found: Sequence[Mistake]) -> list[str]:
    return ["| written | answered |", "|---|---|", *(row(each, answer(each)[1]) for each in found if is_shown(each))]


def _base() -> list[str]:
    return ["```yaml", *yaml_text(PROBLEM).rstrip().splitlines(), "```"]


def refreshed(page: str) -> str:
    """`page` with its tables made anew."""
    parts = {heading: (lambda found=found: _table(found)) for heading, found in GROUPS.items()}
    return with_parts(page, "mistakes", {"problem": _base, **parts})


BEGIN = begin("mistakes", "problem")
