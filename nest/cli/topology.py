"""`nest topology`: a network reduced to levels."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.cli.catalogue import profiles
from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import screen, tell_assumed, to_json, warn, write
from nest.cli.progress import waiting
from nest.cli.topology_import import check_kind, import_file

if TYPE_CHECKING:
    from nest.instance import Cluster
    from nest.network import Reduced
    from nest.spec import ClusterSpec

FILE = typer.Argument(
    ...,
    metavar="FILE",
    help="A topology (of another tool, GraphML, node-link JSON, a generator or a matrix in YAML, JSON or TOML), a "
    "`cluster:` section, or a problem.",
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command("show")(show)
    group.command("levels")(levels)
    group.command("import")(import_file)
    group.command("profiles")(profiles)
    app.add_typer(group, name="topology", help="Reduce a network of devices and switches to levels.")


def show(
    file: Path = FILE,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    message: str = typer.Option(
        "1 MiB", "--message", metavar="SIZE", help="Size of the message that stretch is measured with."
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Print the levels of a network, their groups, and the stretch of each reduction.

    Exit code 0: done; 2: bad input.
    """
    from nest.hooks.registry import registry
    from nest.report.topology import topology_figures, topology_text

    size = _size(message)
    with waiting(f"reducing {file.name} to levels"):
        spec, found = registry().run(lambda: _read_in(file, size))
    warn(registry().warnings)
    tell_assumed(spec.assumed or ())
    if as_json:
        typer.echo(to_json({"source": str(file), **topology_figures(found)}))
    else:
        typer.echo(topology_text(found, screen()))


def levels(
    file: Path = FILE,
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file instead of printing."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write the levels of a network as the `cluster:` section of a problem, in YAML.

    Exit code 0: done; 2: bad input.
    """
    from nest.hooks.registry import registry
    from nest.io import check_writable
    from nest.report.cluster_section import section_text
    from nest.report.topology import cluster_text

    if output is not None:
        check_writable(output, file)
        check_kind(output, ".toml", ".json")
    with waiting(f"reducing {file.name} to levels"):
        spec, found = registry().run(lambda: _read_in(file))
    warn(registry().warnings)
    tell_assumed(spec.assumed or ())
    named = any(level.link is not None for level in spec.levels or ())  # What collectives do goes by the links' names.
    text = section_text(spec) if named else cluster_text(spec, found)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write(output, text)


def _cluster(file: Path) -> "ClusterSpec":
    """The cluster section of a problem, or one of nothing but the topology in `file`."""
    from nest.errors import InputError
    from nest.io import read_mapping, structure_source, there_is
    from nest.io.source import SUFFIXES
    from nest.spec import ClusterOfFile, ClusterSpec, Problem

    if not there_is(file):
        raise InputError(f"{file}: there is no such file.")
    if file.suffix.lower() in SUFFIXES:
        source = read_mapping(file)
        if "cluster" in source.mapping and "training" in source.mapping:
            return structure_source(source, Problem).cluster
        if set(source.mapping) == {"cluster"}:
            return structure_source(source, ClusterOfFile).cluster
    return ClusterSpec(topology=file.name)


def _read_in(file: Path, message: float | None = None) -> "tuple[ClusterSpec, Cluster | Reduced]":
    """The cluster section of a file with its topology read, and the network; a `Cluster` where levels give it."""
    from nest.errors import InputError
    from nest.formulate.topology import in_place, network
    from nest.hooks.registry import registry
    from nest.io import placed
    from nest.network import REFERENCE_MESSAGE

    try:
        spec = in_place(_cluster(file), registry(), file.parent)
        return spec, network(spec, registry(), file.parent, message or REFERENCE_MESSAGE)
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
