"""Clusters of usual machines of a device, from command-line options."""

import math
import re
from collections.abc import Mapping
from typing import Any

from nest.catalogue import clusters, link, links, profiles, unknown_name
from nest.errors import InputError
from nest.formulate.cluster import MOST_DEVICES
from nest.io.names import plain
from nest.spec import LinkProfile, TierSpec
from nest.tolerances import AGREEMENT, LINKS_EACH
from nest.units import BytesPerSecond, displayed, parse

EACH = {"gpu": False, "device": False, "accelerator": False, "node": True, "host": True, "machine": True}
"""Units of a bandwidth, and whether their devices share it."""


def machines(device: str, nodes: int, per_node: int | None, network: str | None) -> Mapping[str, Any]:
    """The `cluster` section of `nodes` usual machines of a device of the catalogue.

    `assumed` has the assumptions in one sentence.

    Args:
        device: its name.
        per_node: devices of each; None: the usual number.
        network: bandwidth between machines, per device and direction, or `per node`; or a link of the catalogue; None:
            the usual one.

    Raises:
        InputError: the links of the device's machines are unknown, or `network` cannot be read.
    """
    usual = next((each for each in profiles().values() if each.device == device), None)
    if usual is None or usual.host is None or not usual.tiers or usual.devices_per_host is None:
        raise InputError(f"--device: nest knows no usual node of {device}; use --cluster or a problem file.")
    count = per_node or usual.devices_per_host
    if nodes * count > MOST_DEVICES:
        raise InputError(
            f"--nodes: {nodes} nodes of {count} devices are too many; nest plans at most {MOST_DEVICES} devices."
        )
    given = None if network is None else _between(network, count, usual.tiers[0])
    within = _level("node", count, usual.host)
    levels = [within, *_outside(nodes, count, usual, given or usual.tiers[0])]
    words = [f"{nodes} node{'s' * (nodes > 1)} of {count} {device}"]
    words += [f"usually {usual.devices_per_host}"] * (count > max(usual.devices_per_host, _domain(usual)))
    if count > 1:
        words.append(f"{_rate(within)} per GPU and direction inside a node ({within['link']})")
    words += [f"{_rate(each)} between {_BETWEEN[each['name']]} ({each['link']})" for each in levels[1:]]
    if given is not None:
        joined = levels[-1]["name"] == "network"
        words.append(_far(levels[-1], usual) if joined else "no further network; leave --network out")
    return {"device": device, "levels": levels, "assumed": [", ".join(filter(None, words)) + "."]}


_BETWEEN = {"rack": "nodes of a rack", "network": "nodes"}  # Members of levels, by the levels' names.


def _outside(nodes: int, count: int, usual: LinkProfile, between: TierSpec) -> list[dict[str, Any]]:
    """Levels outside a machine: the rest of its scale-up domain, if it has several machines; the network."""
    if nodes == 1:
        return []
    together = 1 if usual.domain is None else _domain(usual) // count
    if usual.domain is None or together < 2:
        return [_level("network", nodes, between)]
    if nodes <= together:
        return [_level("rack", nodes, usual.domain)]
    if nodes % together:
        raise InputError(
            f"--nodes is {nodes}, but a rack has {together} nodes of {count} {usual.device}; give a multiple of "
            f"{together}, or a problem file."
        )
    racks = nodes // together
    return [_level("rack", together, usual.domain), _level("network", racks, between)]


def _domain(usual: LinkProfile) -> int:
    """Devices of one scale-up domain, such as the 72 of an NVL72, from the catalogue's clusters."""
    return max((each.levels[0].fanout for each in clusters().values() if each.device == usual.device), default=1)


def _level(name: str, fanout: int, tier: TierSpec) -> dict[str, Any]:
    bandwidth = tier.bandwidth or link(str(tier.link)).bandwidth or 0.0
    return {"name": name, "fanout": fanout, "bandwidth": f"{bandwidth / 1e9:.12g} GB/s", "link": tier.link}


def _rate(level: Mapping[str, Any]) -> str:
    return str(level["bandwidth"])


def _between(text: str, count: int, usual: TierSpec) -> TierSpec:
    """Links between machines of `count` devices from `--network`."""
    named = next((each for each in links().values() if plain(each.name) == plain(text)), None)
    if named is not None:
        if named.bandwidth is None:
            raise InputError(f"--network: {named.name} has no fixed rate; give a bandwidth, such as '400 Gbit/s'.")
        return TierSpec(named.name)
    written = re.fullmatch(
        r"(?P<rate>.*?)(?:(?:\s+per\s+|(?<=s)/)(?P<each>.*))?", text.strip(), re.DOTALL | re.IGNORECASE
    )
    rate, each = (written["rate"], written["each"]) if written else (text, None)
    one = "gpu" if each is None else each.strip().lower().removesuffix("s")
    if one not in EACH:
        raise InputError(
            f"--network: 'per {each:.40}' is neither per GPU nor per node; write '400 Gbit/s' (per GPU) or '400 "
            "Gbit/s per node'."
        )
    if not re.search("[A-Za-z]", rate):
        raise InputError(f"--network is {displayed(text)}; give a bandwidth with its unit, such as '400 Gbit/s'.")
    try:
        bandwidth = parse(rate, BytesPerSecond)
    except ValueError as error:
        if re.search("[0-9]", rate) is None:
            raise unknown_name("--network", "link", text, links(), otherwise="Or give a bandwidth.") from None
        raise InputError(f"--network {error}.") from None
    if bandwidth <= 0:
        raise InputError(f"--network is {displayed(text)}; it must be above 0.")
    shared = bandwidth / count if EACH[one] else bandwidth
    return TierSpec(_made_of(str(usual.link), shared), BytesPerSecond(shared))


def _made_of(usual: str, bandwidth: float) -> str:
    """Link of the usual one's family with this bandwidth, else the family's without a rate."""
    family = usual.partition("-")[0]
    members = [each for each in links().values() if each.name.partition("-")[0] == family]
    same = [each for each in members if math.isclose(each.bandwidth or 0.0, bandwidth, rel_tol=AGREEMENT)]
    return next((each.name for each in (*same, *members) if each in same or each.bandwidth is None), usual)


def _far(level: Mapping[str, Any], usual: LinkProfile) -> str:
    """Note on a bandwidth far from the usual one."""
    nominal = _level("", 1, usual.tiers[0])
    given, expected = (parse(each["bandwidth"], BytesPerSecond) for each in (level, nominal))
    return "" if 1 / LINKS_EACH < given / expected < LINKS_EACH else f"usually {_rate(nominal)} ({nominal['link']})"
