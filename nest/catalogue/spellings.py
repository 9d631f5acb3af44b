"""Common spellings of models, devices and clusters, and the catalogue's names for them.

Files use nest's own names; the command line also takes these spellings.
"""

import re
from functools import cache
from pathlib import Path

from nest.catalogue.load import clusters, devices, known_cluster, library_models
from nest.io import there_is
from nest.io.names import plain

_TWINS = re.compile(r"\b(meta|instruct|chat|base|pretrain|hf|it|pt)\b|(?<=qwen2\.5)-(coder|math)")
"""Words that distinguish names of models with the same widths."""

_RELEASE = re.compile(r"(-\d{4})?(-(fp8|fp16|bf16))?$")
"""Ends of names that do so, too: the month of a release, and the format of its weights."""


def _key(name: str) -> str:
    """Return the common part of the names of models with the same widths."""
    words = re.sub(r"[\s_]+", "-", name.strip().rstrip("/").rpartition("/")[2].lower())
    return re.sub(r"[-.]", "", _RELEASE.sub("", re.sub("--+", "-", _TWINS.sub("", words)).strip("-")))


def published(name: str) -> str:
    """Return the published name of a model of the catalogue (huggingface.co); empty: none."""
    for source in library_models()[name].sources:
        place, _, file = source.partition(" ")
        if place.startswith("huggingface.co/") and file == "config.json":
            return place.partition("/")[2]
    return ""


@cache
def _models() -> dict[str, str]:
    return {_key(each): name for name in library_models() for each in (published(name), name) if each}


def catalogued(name: str) -> str | None:
    """Return the catalogue's name of a model; None: it has none of these widths."""
    return _models().get(_key(name))


def model_called(text: str) -> str:
    """Return the catalogue's name of the model called `text`; `text` itself if it is a file or unknown."""
    is_path = text.count("/") > 1 or text.startswith(("/", ".", "~")) or bool(there_is(Path(text)))
    return text if is_path or text in library_models() else catalogued(text) or text


_SAID_OF_ALL = frozenset("nvidia amd google cloud tesla instinct gpu hbm3 hbm3e oam nvl72".split())  # noqa: SIM905
"""Words of products that do not distinguish devices of the catalogue; other forms with other links, such as `NVL` and
`PCIe`, are absent."""

_SIZE, CLOSE = re.compile(r"(\d+)g"), 0.05
"""Memory in a name, and the share by which a round number of gigabytes may differ from a device's."""


def device_called(text: str) -> str | None:
    """Return the catalogue's name of the device called `text`, such as `H100 SXM5 80GB`; None: none or several."""
    apart = re.sub(r"sxm\d*|tpu", lambda match: f" {match[0][:3]} ", text.lower())
    words = set(re.split(r"[^a-z0-9.]+", re.sub(r"(\d+)\s*gi?b\b", r" \1g ", apart))) - {""} - _SAID_OF_ALL
    found = [name for name in devices() if _is_called(name, words)]
    return found[0] if len(found) == 1 else None


def _is_called(name: str, words: set[str]) -> bool:
    """Return whether `words` name the product of a device without contradicting it."""
    own = name.split("-")
    product = own[1] if own[0] == "tpu" else own[0]
    return product in words and all(word in own or _is_memory(word, name) for word in words)


def _is_memory(word: str, name: str) -> bool:
    size = _SIZE.fullmatch(word)
    memory = devices()[name].memory
    return size is not None and any(abs(memory / (unit * int(size[1])) - 1) < CLOSE for unit in (1e9, 2**30))


def cluster_called(text: str) -> str:
    """Return the catalogue's name (also NAME-N) of the cluster called `text` in any case; `text` itself if unknown."""
    if known_cluster(text) is not None:
        return text
    for name in clusters():
        size = re.fullmatch(rf"{re.escape(plain(name))}([0-9]*)", plain(text))
        called = size and (f"{name}-{size[1]}" if size[1] else name)
        if called and known_cluster(called) is not None:
            return called
    return text
