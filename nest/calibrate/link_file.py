"""Entries of `nest/library/links` as text."""

from nest.catalogue import Link
from nest.catalogue.entries import LinkLine

FITTED = "lines: "
"""How a source begins that tells of the lines."""


def link_text(link: Link) -> str:
    """The file of the catalogue that describes `link`, in TOML."""
    rows = [f"# {link.description or link.name}", ""]
    if link.description:
        rows.append(f"description = {_text(link.description)}")
    if link.generations:
        rows.append(f"generations = [{', '.join(map(_text, link.generations))}]")
    if link.scale_up:
        rows.append("scale_up = true")
    if link.bandwidth is not None:
        rows.append(f"bandwidth = {_number(link.bandwidth)}")
    rows += [f"latency = {_number(link.latency)}", f"efficiency = {_number(link.efficiency)}", "sources = ["]
    rows += [f"    {_text(source)}," for source in link.sources] + ["]"]
    for line in link.lines:
        rows += ["", "[[lines]]", *_line(line)]
    return "\n".join(rows) + "\n"


def _line(line: LinkLine) -> list[str]:
    rows = [
        f"protocol = {_text(line.protocol)}",
        f"kinds = [{', '.join(map(_text, line.kinds))}]",
        f"base = {_number(line.base)}",
        f"step = {_number(line.step)}",
        f"efficiency = {_number(line.efficiency)}",
    ]
    if line.own:
        rows.append(f"own = {_number(line.own)}")
    if line.in_switch:
        rows.append("in_switch = true")
    if line.members != 2:
        rows.append(f"members = {line.members}")
    return rows


def _number(value: float) -> str:
    """As written by hand: `300e9`, `6.3e-06`."""
    if value >= 1e9 and value % 1e6 == 0:
        return f"{value / 1e9:g}e9"
    return f"{value:.12g}"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
