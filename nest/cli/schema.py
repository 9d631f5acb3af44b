"""`nest schema`: JSON schemas of the files nest reads and writes."""

from pathlib import Path

import typer

from nest.cli.output import to_json
from nest.errors import InputError
from nest.hooks.registry import registry

NAMES = {
    ("Problem", "strategies"): "strategies",
    ("Problem", "costs"): "cost_models",
    ("Problem", "collectives"): "collective_models",
    ("Problem", "layer_times"): "layer_times",
    ("Training", "schedule"): "schedules",
    ("Training", "stack"): "stacks",
    ("Search", "target"): "exporters",
}
"""Records and keys that hold names of registered objects, with their kinds (`nest.hooks.kinds`)."""


def schema(
    name: str | None = typer.Argument(
        None,
        metavar="[NAME]",
        help="problem, profile, plan, topology, graph, measurement, cluster, link-profile, stack or study.",
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="Write NAME.schema.json, or all schemas, into this folder."
    ),
) -> None:
    """Write the JSON schemas of the file formats.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import unknown_name
    from nest.catalogue.formats import FORMATS
    from nest.io import there_is, write_text

    if name is not None and name not in FORMATS:
        raise unknown_name("nest schema", "file format", name, FORMATS)
    if name is not None and output is None:
        typer.echo(text(name), nl=False)
        return
    output = output or Path("schemas")
    if there_is(output) != "folder":
        raise InputError(f"{output}: there is no such folder; create it first.")
    for each in FORMATS if name is None else (name,):
        path = output / f"{each}.schema.json"
        write_text(path, text(each))
        typer.echo(str(path))


def text(name: str) -> str:
    """Return the schema of the format `name` as text; names of registered objects are examples."""
    from nest.catalogue.formats import FORMATS
    from nest.io.schema import schema as schema_of

    result = schema_of(FORMATS[name], f"nest {name}")
    records = {name.capitalize(): result, **result["$defs"]}
    for (record, key), kind in NAMES.items():
        if record in records:
            rule = records[record]["properties"][key]
            # Editors offer examples; other names stay possible. Strategies are keys, the others values.
            rule = rule.setdefault("propertyNames", {}) if rule.get("type") == "object" else rule
            rule["examples"] = list(getattr(registry(), kind)())
    return to_json(result) + "\n"
