"""Topologies of the ns-3 simulations under ASTRA-sim and SimAI: nodes by number, and a line for each link.

The first line says how many nodes, switches and links there are, the second which nodes are switches, each further one
`node node rate delay error-rate` (astra-sim/astra-network-ns3@8fd3604 scratch/common.h, `SetupNetwork`). SimAI's first
line has `nodes gpus-per-server nvswitches switches links gpu`, its second line NVSwitches before switches
(aliyun/ns-3-alibabacloud, same function). Rates and delays are as ns-3 writes them: src/network/utils/data-rate.cc and
src/core/model/time.cc of ns-3.
"""

import re
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.network.graph import NetworkBuilder, check_size
from nest.network.imported import Imported
from nest_networks.files import beginning, text_of

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_RATE = re.compile(rf"({_NUMBER})(?:([kKMGT]?)(i?)(bps|Bps|b/s|B/s))?")
_TIME = re.compile(rf"[+]?({_NUMBER})(h|min|s|ms|us|ns|ps|fs)?")
_SECONDS = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12, "fs": 1e-15}
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}

_HEADER = re.compile(r"\s*\d+\s+\d+\s+\d+(?:\s+\d+\s+\d+\s+[A-Za-z]\w*(?:\s+\d+)?)?\s*\n[\d\s]*\n?")
_LINK = re.compile(
    rf"^[ \t]*\d+[ \t]+\d+[ \t]+{_NUMBER}[kKMGT]?i?(?:bps|Bps|b/s|B/s)\s+{_NUMBER}[a-z]*\s+\S+\s*$", re.MULTILINE
)

DEVICES = {"A100": "a100-sxm-80g", "H100": "h100-sxm"}
"""SimAI's names of GPUs that the catalogue has; which A100 it is, SimAI does not say."""


class Ns3Importer:
    """Reads the topology file of ASTRA-sim's ns-3 backend."""

    name = "ns-3"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a text that begins with counts and has lines of links."""
        text = beginning(source)
        return bool(_HEADER.match(text) and _LINK.search(text))

    def load(self, source: Path, profile: object = None) -> Imported:
        """Every node that is no switch as a device, called by its number, and the links.

        Raises:
            InputError: counts and lines do not agree, a rate or delay cannot be read, or nodes are not connected.
        """
        words = _Words(text_of(source))
        header = _header(words)
        check_size(header.nodes - header.switches, header.nodes, 0)
        switches = {words.node(header.nodes, "switch") for _ in range(header.switches)}
        network = NetworkBuilder()
        for node in range(header.nodes):
            (network.switch if node in switches else network.device)(_called(node, header, switches))
        lossy = 0
        for _ in range(header.links):
            one, two = words.node(header.nodes, "link"), words.node(header.nodes, "link")
            bandwidth, latency = words.read(rate, "a rate"), words.read(delay, "a delay")
            lossy += words.number("an error rate") > 0
            network.link(one, two, bandwidth, latency)
        words.end(header.links)
        return Imported(
            network.built(),
            device=header.device,
            assumptions=(f"{lossy} links lose packets; nest plans as if they lost none.",) if lossy else (),
            devices_per_host=header.devices_per_host,
        )


def rate(text: str) -> float:
    """Bytes per second of a rate such as `400Gbps`, `25GB/s` or `1e9` (bits per second).

    Raises:
        InputError: it is no rate above 0.
    """
    match = _RATE.fullmatch(text)
    value = 0.0
    if match:
        base = 1024.0 if match[3] else 1000.0
        bits = 8.0 if (match[4] or "b").startswith("B") else 1.0
        value = float(match[1]) * base ** _POWERS[match[2] or ""] * bits / 8
    if not value or not isfinite(value):
        raise InputError(f"{text!r:.40} is no rate above 0; ns-3 writes rates as `400Gbps`.")
    return value


def delay(text: str) -> float:
    """Seconds of a delay such as `0.0005ms` or `1e-6` (seconds).

    Raises:
        InputError: it is no delay.
    """
    match = _TIME.fullmatch(text)
    if not match or not isfinite(float(match[1])):
        raise InputError(f"{text!r:.40} is no delay; ns-3 writes delays as `0.0005ms`.")
    return float(match[1]) * _SECONDS[match[2] or "s"]


@frozen
class _Header:
    """The first line; NVSwitches count as switches."""

    nodes: int
    switches: int
    links: int
    device: str | None = None
    devices_per_host: int | None = None


class _Words:
    """The words of a text with their lines, one after the other; line breaks mean nothing to the simulation."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        self.first = next((line.split() for line in lines if line.strip()), [])
        self._words = self._all(lines)
        self.line = 1

    def _all(self, lines: list[str]) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(lines, 1):
            for word in line.split():
                yield number, word

    def next(self, what: str) -> str:
        """The next word, which should be `what`.

        Raises:
            InputError: there is none.
        """
        self.line, word = next(self._words, (self.line, ""))
        if not word:
            raise InputError(f"the file ends where {what} should be; its first line promises more.")
        return word

    def read(self, reader: Callable[[str], float], what: str) -> float:
        """Apply `reader` to the next word.

        Raises:
            InputError: there is none, or it cannot be read; the text names the line.
        """
        word = self.next(what)
        try:
            return reader(word)
        except InputError as error:
            raise InputError(f"line {self.line}: {error}") from None

    def number(self, what: str) -> float:
        """The next word as a number."""
        word = self.next(what)
        try:
            return float(word)
        except ValueError:
            raise InputError(f"line {self.line} has {word!r:.40} where {what} should be.") from None

    def node(self, count: int, what: str) -> int:
        """The next word as the number of a node."""
        word = self.next(f"the node of a {what}")
        if not word.isascii() or not word.isdigit() or len(word) > 9 or int(word) >= count:
            raise InputError(f"line {self.line} has {word!r:.40} as the node of a {what}; nodes are 0 to {count - 1}.")
        return int(word)

    def end(self, links: int) -> None:
        """Make sure that no link is left: what the format is may stand behind them, in words.

        So scripts write it that make networks for forks of alibaba-edu/High-Precision-Congestion-Control.
        """
        last = self.line
        for line, word in self._words:
            if line > last and word[0].isdigit():
                raise InputError(f"line {line} has more than the {links} links that the first line counts.")
            last = line


def _header(words: _Words) -> _Header:
    numbers = [words.next("a count") for _ in words.first]
    counts = [int(word) for word in numbers if word.isdecimal() and len(word) <= 9]
    if len(numbers) == 3 == len(counts):
        nodes, switches, links = counts
        header = _Header(nodes, switches, links)
    elif len(numbers) in (6, 7) and len(counts) == len(numbers) - 1:
        nodes, per_host, nvswitches, switches, links = counts[:5]
        header = _Header(nodes, nvswitches + switches, links, DEVICES.get(numbers[5].upper()), per_host or None)
    else:
        raise InputError("the first line must say how many nodes, switches and links there are.")
    if header.switches > header.nodes:
        raise InputError(f"the first line has {header.switches} switches among {header.nodes} nodes.")
    return header


def _called(node: int, header: _Header, switches: set[int]) -> str:
    """Devices by their number; where hosts are known, by the host's number and the device's in it."""
    if node in switches or not header.devices_per_host:
        return str(node)
    host, index = divmod(node, header.devices_per_host)
    return f"host{host}.{index}"
