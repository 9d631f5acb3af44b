"""Kinds of object in words: what people write, and what a new distribution says of itself."""

from attrs import frozen


@frozen
class Kind:
    """A kind of object that a plug-in can bring.

    Attributes:
        word: what people write.
        registered: what the registry calls it; its hook is `nest_<registered>`.
        class_name: ends the name of a class of such objects.
        summary: what a distribution with one says it is.
        use: how a problem comes to use it, `$name` standing for its name.
    """

    word: str
    registered: str
    class_name: str
    summary: str
    use: str


_ASKED = "Installed, it is asked whether it accepts what"

KINDS = (
    Kind(
        "strategy",
        "strategies",
        "Strategy",
        "A sub-graph strategy for nest.",
        "Installed, it takes part in every search; `strategies: {$name: [1, 2]}` in a problem restricts it.",
    ),
    Kind(
        "collective-model",
        "collective_models",
        "CollectiveModel",
        "A collective model for nest.",
        "Installed, it is chosen by `collectives: $name` in a problem.",
    ),
    Kind(
        "cost-model",
        "cost_models",
        "CostModel",
        "A cost model for nest.",
        "Installed, it is chosen by `costs: $name` in a problem.",
    ),
    Kind(
        "layer-times",
        "layer_times",
        "LayerTimes",
        "A model of layer times for nest.",
        "Installed, it is chosen by `layer_times: $name` in a problem.",
    ),
    Kind(
        "schedule",
        "schedules",
        "Schedule",
        "A pipeline schedule for nest.",
        "Installed, it is chosen by `training: {schedule: $name}` in a problem.",
    ),
    Kind(
        "model-importer",
        "model_importers",
        "ModelImporter",
        "A model importer for nest.",
        f"{_ASKED} `model` says: `model: {{$name: {{widths: [1024, 4096, 1024]}}}}`.",
    ),
    Kind(
        "topology-importer",
        "topology_importers",
        "TopologyImporter",
        "A topology importer for nest.",
        f"{_ASKED} `cluster.topology` says: `topology: {{$name: {{devices: 8, bandwidth: 50e9}}}}`.",
    ),
    Kind(
        "planner",
        "planners",
        "Planner",
        "A planner for nest to compare with.",
        "Installed, `nest compare --list` has it, and `nest compare PROBLEM --planner $name` compares with it.",
    ),
    Kind(
        "exporter",
        "exporters",
        "Exporter",
        "An exporter for nest.",
        "Installed, `nest export --list` has it, and `nest export PLAN --to $name --output DIR` writes its files.",
    ),
    Kind(
        "stack",
        "stacks",
        "Stack",
        "A software stack for nest.",
        "Installed, `nest stacks` has it, and it is chosen by `training: {stack: $name}` in a problem.",
    ),
)
"""Every kind."""


def kind_called(word: str) -> Kind | None:
    """The kind that people write as `word`; None: there is none."""
    return next((kind for kind in KINDS if kind.word == word), None)


def kind_registered(registered: str) -> Kind:
    """The kind that the registry calls `registered`."""
    return next(kind for kind in KINDS if kind.registered == registered)
