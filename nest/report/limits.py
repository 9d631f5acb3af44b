"""What a framework can run, in a line."""

from nest.deployment import Limits


def limits_text(limits: Limits | None) -> str:
    """`limits` in short; None: its exporter states none."""
    if limits is None:
        return "none stated"
    fresh = Limits()
    told = [
        _words("strategies", limits.strategies),
        _words("schedules", limits.schedules),
        "ZeRO " + ", ".join(map(str, limits.zero)) if limits.zero != fresh.zero else "",
        _words("recompute", limits.recompute),
        _words("rank orders", limits.rank_orders),
        "offload " + ", ".join(limits.offload) if limits.offload else "no offload",
        "equal stages" if limits.even_stages else "",
        "all devices" if limits.all_devices else "",
        "" if limits.mixed else "one candidate for all stages",
        "" if limits.zero_degrees else "ZeRO over all ranks",
        _rules(len(limits.constraints)),
    ]
    return "; ".join(part for part in told if part)


def _words(what: str, names: tuple[str, ...] | None) -> str:
    return "" if names is None else f"{what} {', '.join(names) or 'none'}"


def _rules(count: int) -> str:
    return f"{count} rule{'s' if count > 1 else ''}" if count else ""
