"""`nest topology`: a network reduced to levels."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import to_json, warn, write

if TYPE_CHECKING:
    from nest.instance import Cluster
    from nest.network import Reduced
    from nest.spec import ClusterSpec

FILE = typer.Argument(
    ...,
    metavar="FILE",
    help="A topology (GraphML, node-link JSON, a generator or a matrix in YAML, JSON or TOML), or a problem.",
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command("show")(show)
    group.command("levels")(levels)
    app.add_typer(group, name="topology", help="Reduce a network of devices and switches to levels.")


def show(
    file: Path = FILE,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    message: str = typer.Option(
        "1 MiB", "--message", metavar="SIZE", help="Size of the message that distortion is measured with."
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Print the levels of a network, their groups, and the distortion of each reduction.

    Exit code 0: done; 2: bad input.
    """
    from nest.hooks.registry import registry
    from nest.report.topology import topology_figures, topology_text

    size = _size(message)
    found = registry().run(lambda: _network(_cluster(file), file, size))
    warn(registry().warnings)
    typer.echo(to_json({"source": str(file), **topology_figures(found)}) if as_json else topology_text(found))


def levels(
    file: Path = FILE,
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file instead of printing."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write the levels of a network as the `cluster:` section of a problem, in YAML.

    Exit code 0: done; 2: bad input.
    """
    from nest.files import check_writable
    from nest.hooks.registry import registry
    from nest.report.topology import cluster_text

    if output is not None:
        check_writable(output)
    spec = _cluster(file)
    text = cluster_text(spec, registry().run(lambda: _network(spec, file)))
    warn(registry().warnings)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write(output, text)


def _cluster(file: Path) -> "ClusterSpec":
    """The cluster section of a problem, or one of nothing but the topology in `file`."""
    from nest.errors import InputError
    from nest.files import read_mapping, structure_source
    from nest.files.source import SUFFIXES
    from nest.spec import ClusterSpec, Problem

    if not file.exists():
        raise InputError(f"{file}: there is no such file.")
    if file.suffix.lower() in SUFFIXES:
        source = read_mapping(file)
        if "cluster" in source.mapping and "training" in source.mapping:
            return structure_source(source, Problem).cluster
    return ClusterSpec(topology=file.name)


def _network(spec: "ClusterSpec", file: Path, message: float | None = None) -> "Cluster | Reduced":
    """The network of a cluster section, reduced; a `Cluster` where it is given by levels."""
    from nest.errors import InputError
    from nest.files import placed
    from nest.formulate.topology import network
    from nest.hooks.registry import registry
    from nest.network import REFERENCE_MESSAGE

    try:
        return network(spec, registry(), file.parent, message or REFERENCE_MESSAGE)
    except InputError as error:
        raise placed(file, error) from None


def _size(text: str) -> float:
    from nest.errors import InputError
    from nest.units import Bytes, parse

    try:
        size = parse(text, Bytes)
    except ValueError as error:
        raise InputError(f"--message {error}.") from None
    if size <= 0:
        raise InputError(f"--message must be above 0, is {text}.")
    return size
