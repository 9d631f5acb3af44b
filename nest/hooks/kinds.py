"""Kinds of objects in plug-ins: their words, and required members."""

from collections.abc import Callable
from inspect import Parameter, signature
from keyword import iskeyword
from typing import Any

from attrs import field, frozen

from nest.records import Record


class InvalidResult(ValueError):  # noqa: N818 - says what a value is
    """Unusable result of a plug-in; the text says why, without naming the plug-in."""


@frozen(eq=False, repr=False)
class Kind(Record):
    """A kind of object that a plug-in can bring.

    Attributes:
        registered: its name in the registry; its hook is `nest_<registered>`.
        word: its name for `--kind`.
        use: how a problem uses it; `$name` stands for the object's name.
        phrase: one such object, for people.
        summary: of a distribution with one.
    """

    registered: str
    word: str
    use: str
    phrase: str = field()
    summary: str = field()

    @phrase.default
    def _usual_phrase(self) -> str:
        return self.word.replace("-", " ")

    @summary.default
    def _usual_summary(self) -> str:
        return f"A{'n' if self.phrase[0] in 'aeiou' else ''} {self.phrase} for nest."

    @property
    def class_name(self) -> str:
        """Name of its protocol in `nest.hooks.protocols`, and suffix of class names of such objects."""
        return self.word.title().replace("-", "")

    @property
    def members(self) -> tuple[str, ...]:
        """Required members of each object."""
        from nest.hooks import protocols

        bases = getattr(protocols, self.class_name).__mro__
        return tuple(dict.fromkeys(name for base in reversed(bases) for name in vars(base) if not name.startswith("_")))


_CHOSEN = "Once installed, choose it with"
_ASKED = "Once installed, nest asks whether it accepts the value of"

_KINDS = (
    Kind(
        "strategies",
        "strategy",
        "Once installed, every search uses it; restrict it with `strategies: {$name: [1, 2]}` in a problem.",
        summary="A sub-graph strategy for nest.",
    ),
    Kind(
        "model_importers",
        "model-importer",
        f"{_ASKED} `model`, such as `model: {{$name: {{widths: [1024, 4096, 1024]}}}}`.",
    ),
    Kind(
        "topology_importers",
        "topology-importer",
        f"{_ASKED} `cluster.topology`, such as `topology: {{$name: {{devices: 8, bandwidth: 50e9}}}}`.",
    ),
    Kind("cost_models", "cost-model", f"{_CHOSEN} `costs: $name` in a problem."),
    Kind("collective_models", "collective-model", f"{_CHOSEN} `collectives: $name` in a problem."),
    Kind("layer_times", "layer-times", f"{_CHOSEN} `layer_times: $name` in a problem.", "model of layer times"),
    Kind(
        "schedules",
        "schedule",
        f"{_CHOSEN} `training: {{schedule: $name}}` in a problem.",
        summary="A pipeline schedule for nest.",
    ),
    Kind(
        "planners",
        "planner",
        (
            "Once installed, `nest compare --list` lists it, and `nest compare PROBLEM --planner $name` compares with "
            "it."
        ),
        summary="A planner for nest to compare with.",
    ),
    Kind(
        "exporters",
        "exporter",
        (
            "Once installed, `nest export --list` lists it, and `nest export PLAN --to $name --output DIR` writes its "
            "files."
        ),
    ),
    Kind(
        "plan_readers",
        "plan-reader",
        "Once installed, `nest evaluate --from $name FILE PROBLEM` prices what FILE runs.",
        "reader of plans",
    ),
    Kind(
        "stacks",
        "stack",
        "Once installed, `nest stacks` lists it; choose it with `training: {stack: $name}` in a problem.",
        "software stack",
    ),
    Kind(
        "engines",
        "engine",
        "Once installed, `nest sweep STUDY --output FILE --engine $name` runs the points of a study on it.",
    ),
)

KINDS = {kind.registered: kind for kind in _KINDS}
"""Kinds of registered objects by their name in the registry."""

MEMBERS = "members"

OPTIONAL = {("collective_models", "time"): MEMBERS, ("collective_models", "times"): MEMBERS}
"""Optional keyword of a member, by kind and member, passed by newer versions of nest. As with pluggy's hooks, an
implementation names only the arguments it needs."""


def called_with(method: Callable[..., Any], optional: str) -> Callable[..., Any]:
    """Wrap `method` to drop the keyword `optional` if it does not take it."""
    if takes(method, optional):
        return method

    def without(*arguments: Any, **named: Any) -> Any:
        return method(*arguments, **{name: value for name, value in named.items() if name != optional})

    return without


def takes(method: Callable[..., Any], name: str) -> bool:
    """True if `method` takes the keyword; False if its parameters cannot be read, as for C functions."""
    try:
        parameters = signature(method).parameters
    except (TypeError, ValueError):
        return False
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return True
    return name in parameters and parameters[name].kind is not Parameter.POSITIONAL_ONLY


def name_of(item: Any) -> str:
    """Name of an object; empty if it has none."""
    name = getattr(item, "name", "")
    return str(name) if isinstance(name, str) else ""


def refusal(kind: str, item: Any) -> str | None:
    """Reason why `item` cannot be used as an object of `kind`; None: it can."""
    missing = sorted(name for name in KINDS[kind].members if not hasattr(item, name))
    if missing:
        return f"which lacks {', '.join(missing)}"
    if not isinstance(item.name, str) or not item.name:
        return "whose name is not a word"
    if kind != "strategies":
        return None
    if isinstance(item.after, str) or not all(isinstance(name, str) for name in item.after):
        return "whose `after` is not a tuple of names"
    # Constraints and `fixed` name strategies, others follow them.
    name = str(item.name)
    if not name.isidentifier() or iskeyword(name):
        return f"whose name {name!r:.60} is no word that constraints could use"
    if name in reserved_names():
        return f"whose name {name!r} means something else in constraints, under `fixed` or in blocks"
    return "whose `after` names itself" if name in item.after else None


def reserved_names() -> frozenset[str]:
    """Words with another meaning than a strategy in constraints, under `fixed` or among the ranks of a block."""
    from nest.graph.sharded_graph import COPIES
    from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES

    return frozenset({*PLAN_NAMES, *STAGE_NAMES, "stages", COPIES})


def listed(answers: list[Any]) -> list[Any]:
    """Yield the objects in a plug-in's answers one by one; `list` might never end.

    Raises:
        InvalidResult: there is no answer.
    """
    if not answers:  # pluggy leaves None out.
        raise InvalidResult("None is no list")
    return [item for answer in answers for item in answer]
