"""What an object of a plug-in must be to be registered."""

from keyword import iskeyword
from typing import Any

from nest.hooks.guard import KINDS


def name_of(item: Any) -> str:
    """The name of an object; empty where it has none."""
    name = getattr(item, "name", "")
    return str(name) if isinstance(name, str) else ""


def refusal(kind: str, item: Any) -> str | None:
    """What keeps `item` from being used as an object of `kind`; None: nothing."""
    from nest.hooks import protocols

    protocol = getattr(protocols, KINDS[kind])
    offered = {*getattr(protocol, "__annotations__", ()), *vars(protocol)}
    missing = sorted(name for name in offered if not name.startswith("_") and not hasattr(item, name))
    if missing:
        return f"which lacks {', '.join(missing)}"
    if not isinstance(item.name, str) or not item.name:
        return "whose name is not a word"
    after = getattr(item, "after", ())
    if kind == "strategies" and (isinstance(after, str) or not all(isinstance(name, str) for name in after)):
        return "whose `after` is not a tuple of names"
    return _misnamed(item) if kind == "strategies" else None


def taken_words() -> frozenset[str]:
    """Words that mean something else than a strategy in constraints, under `fixed` or among the ranks of a block."""
    from nest.graph.sharded_graph import COPIES
    from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES

    return frozenset({*PLAN_NAMES, *STAGE_NAMES, "stages", COPIES})


def _misnamed(strategy: Any) -> str | None:
    """What keeps constraints and `fixed` from naming a strategy, or it from following others; None: nothing."""
    name = str(strategy.name)
    if not name.isidentifier() or iskeyword(name):
        return f"whose name {name!r:.60} is no word that constraints could use"
    if name in taken_words():
        return f"whose name {name!r} means something else in constraints, under `fixed` or in blocks"
    if name in strategy.after:
        return "whose `after` names itself"
    return None
