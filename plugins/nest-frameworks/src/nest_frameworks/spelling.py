"""Settings of an exported file as the user's own launch file spells them: flags, overrides, or keys of a map."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nest.errors import InputError
from nest.io import read_mapping_text

_SCRIPT = re.compile(r"\A#!|(^|\s)--?[A-Za-z][\w-]*([ =]|$)|^\s*[\w.+]+=\S+ *\\$|\\$", re.MULTILINE)
_MAP = re.compile(r"^ *(?P<dashes>--)?[a-z][\w.-]*: *\S", re.MULTILINE)
_FLAG = re.compile(r"--(?P<name>[\w-]+)[ =]*(?P<value>.*)")
_SETTING = re.compile(r"(?P<name>[a-z]\w*)=(?P<value>.*)")

BY_TOKENS = re.compile(r"(?<!critic\.)\buse_dynamic_bsz\W+true\b", re.IGNORECASE)
_MICRO_BATCH = re.compile(r"\bppo_micro_batch_size_per_gpu: (\d+)")
"""verl's switch with which it bounds the tokens of a micro-batch, and the key that it then ignores."""

FORKS = {
    "megatron": (
        r"--(deepspeed|zero-stage)\b",
        r"--(?!((tensor|pipeline)-model-parallel|micro-batch|global-batch)-size\b)|fixed\.",
    ),
    "verl": (r"\A(?!.*megatron)", r"actor_rollout_ref\.actor\.megatron\.|fixed\."),
}
"""By framework, the launch of a fork or back end and settings it lacks: of Megatron-DeepSpeed, and of verl on FSDP.

`fixed.NAME` is a decision of which nest knows no setting.
"""


def lacks(framework: str, lines: Sequence[str], text: str) -> bool:
    """Return whether what `text` launches lacks a setting of `lines`, and `text` has none of its name."""
    launched, settings = FORKS.get(framework, ("(?!)", ""))
    names = [re.split("[ =:]", line)[0] for line in lines if re.match(settings, line)]
    return re.search(launched, text, re.DOTALL) is not None and any(name not in text for name in names)


def spelled(content: str, text: str) -> str:
    """Lines of `content`, the exported file, each as `text`, the user's file for the same framework, would have it."""
    if BY_TOKENS.search(text):
        content = _MICRO_BATCH.sub(lambda match: _in_tokens(int(match[1]), content), content)
    keys = _MAP.search(text)
    script = keys is None or (_SCRIPT.search(text) is not None and not keys["dashes"])
    if text.lstrip().startswith("{"):
        return content
    if keys is not None and not script:
        return "\n".join(_as_key(line.strip(), keys["dashes"] or "") for line in content.splitlines())
    if not script or not _MAP.search(content.replace('"', "")):
        return content
    try:
        values = dict(_leaves(read_mapping_text(content, "plan.yaml")))
    except InputError:
        return content
    truth = str if re.search(r"\bTrue\b", text) else lambda value: str(value).lower()
    joint = "{}={}" if any(re.search(rf"(^|[\s+]){re.escape(path)}=", text) for path in values) else "--{} {}"
    said = {path: truth(value) if isinstance(value, bool) else value for path, value in values.items()}
    return "\n".join(joint.format(path, value) for path, value in said.items())


def _in_tokens(samples: int, content: str) -> str:
    """The key of so many tokens a rank (verl's `rearrange_micro_batches`), for the lengths in the exported file."""
    length = sum(map(int, re.findall(r"\bmax_(?:prompt|response)_length: (\d+)", content)))
    ranks = max(map(int, re.findall(r"\bcontext_parallel_size: (\d+)", content)), default=1)
    return f"ppo_max_token_len_per_gpu: {-(-samples * length // ranks)}"


def _as_key(line: str, dashes: str) -> str:
    """A line as a map of the user has it: `--name value` and `name=value` as keys, `"name": value` without quotes."""
    if (flag := _FLAG.fullmatch(line)) is not None:
        name = flag["name"] if dashes else flag["name"].replace("-", "_")
        return f"{dashes}{name}: {flag['value'] or 'true'}"
    if (setting := _SETTING.fullmatch(line)) is not None:
        return f"{setting['name']}: {setting['value']}"
    return re.sub(r'^"([\w.-]+)":', r"\1:", line)


def _leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", " ".join(map(str, value)) if isinstance(value, list) else value
