"""`nest topology`: a network reduced to levels, and files of other tools as `cluster:` sections."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.errors import InputError
from nest.hooks.registry import registry
from nest.public.commands import JSON, STRICT_PLUGINS, note_assumed, profiles, show, spinner, to_json, warn_of_plugins
from nest.units import Bytes, parse
from nest_networks.commands import doctor
from nest_networks.spooled import spooled

if TYPE_CHECKING:
    from nest.instance import Cluster
    from nest.network import Reduced
    from nest.spec import ClusterSpec

FILE = typer.Argument(..., metavar="FILE", help="Topology file (any importer's), `cluster:` section or problem.")

OUTPUT = typer.Option(None, "--output", "-o", help="Write to this file.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command("show")(show_levels)
    group.command("levels")(levels)
    group.command("import")(import_file)
    group.command("profiles")(profiles)
    group.command("doctor")(doctor)
    app.add_typer(group, name="topology", help="Import networks and reduce them to levels.")


def show_levels(
    file: Path = FILE,
    as_json: bool = JSON,
    message: str = typer.Option("1 MiB", "--message", metavar="SIZE", help="Message size of the stretch."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Print the levels of a network and the stretch of each reduction.

    Exit code 0: done; 2: bad input.
    """
    from nest_networks.levels_text import topology_figures, topology_text

    _, network = _read(file, _size(message))
    document = {"source": str(file), **topology_figures(network)}
    show(as_json, document, lambda screen: topology_text(network, screen))


def levels(file: Path = FILE, output: Path | None = OUTPUT, strict_plugins: bool = STRICT_PLUGINS) -> None:
    """Write the levels of a network as a `cluster:` section in YAML.

    Exit code 0: done; 2: bad input.
    """
    from nest.io import check_writable
    from nest_networks.levels_text import cluster_text, section_text

    if output is not None:
        check_writable(output, file)
        _check_suffix(output, ".toml", ".json")
    spec, network = _read(file)
    named = any(level.link is not None for level in spec.levels or ())  # What collectives do goes by the links' names.
    _print_or_write(section_text(spec) if named else cluster_text(spec, network), output)


def import_file(
    file: str = typer.Argument(
        ..., metavar="FILE", help="Topology file of another tool, or - for standard input; FILE#NAME for one part."
    ),
    link_profile: str | None = typer.Option(
        None, "--link-profile", metavar="NAME|FILE", help="Figures the file lacks (`nest topology profiles`)."
    ),
    importer: str | None = typer.Option(None, "--format", metavar="NAME", help="Importer; default: detected."),
    hosts: int = typer.Option(1, "--hosts", metavar="N", min=1, help="Number of nodes, if the file describes one."),
    tier_label: list[str] = typer.Option(
        [],
        "--tier-label",
        metavar="LABEL",
        help="Kubernetes node label that names a switch; repeat it, outermost first.",
    ),
    output: Path | None = OUTPUT,
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Convert a topology file of another tool to a `cluster:` section.

    Assumptions and their sources are printed on standard error. Exit code 0: done; 2: bad input.
    """
    from attrs import evolve

    from nest.io import check_writable
    from nest.public.planning import from_file, link_profile_of
    from nest.spec import ClusterSpec, LinkProfile
    from nest_networks.levels_text import section, section_text

    if output is not None:
        check_writable(output, file, file.partition("#")[0])
        _check_suffix(output, ".toml")
    spec = ClusterSpec(topology=file, link_profile=link_profile)
    if tier_label:
        spec = evolve(spec, link_profile=evolve(link_profile_of(spec) or LinkProfile(), tier_labels=tuple(tier_label)))
    with spinner(f"reading {file}"), spooled(file) as source:
        spec = evolve(spec, topology=source)
        imported = registry().run(lambda: from_file(spec, registry(), None, importer, hosts))
    warn_of_plugins()
    assumed, name = imported.assumed or (), "standard input" if file == "-" else file
    note_assumed(assumed)
    if output is not None and output.suffix.lower() == ".json":
        text = to_json({"cluster": section(imported)}) + "\n"
    elif as_json:
        text = to_json({"cluster": section(imported), "assumed": list(assumed)}) + "\n"
    else:
        text = section_text(imported, [f"From {name}, as `nest topology import` read it.", *assumed])
    _print_or_write(text, output)


def _print_or_write(text: str, output: Path | None) -> None:
    from nest.io import write_text

    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)


def _check_suffix(output: Path, *others: str) -> None:
    """Refuse a file whose ending contradicts YAML, so that nest could not read it."""
    if output.suffix.lower() in others:
        raise InputError(f"{output}: the section is not written as {output.suffix[1:].upper()}; call the file `.yaml`.")


def _read(file: Path, message: float | None = None) -> "tuple[ClusterSpec, Cluster | Reduced]":
    """Read the cluster section of a file with its topology, and the network; a `Cluster` if levels are given."""
    from nest.io import placed
    from nest.network import REFERENCE_MESSAGE
    from nest.public.planning import in_place, network

    known = registry()

    def read() -> "tuple[ClusterSpec, Cluster | Reduced]":
        try:
            spec = in_place(_cluster(file), known, file.parent)
            return spec, network(spec, known, file.parent, message or REFERENCE_MESSAGE)
        except InputError as error:
            raise placed(file, error) from None

    with spinner(f"reducing {file.name} to levels"):
        spec, topology = known.run(read)
    warn_of_plugins()
    note_assumed(spec.assumed or ())
    return spec, topology


def _cluster(file: Path) -> "ClusterSpec":
    """Read the cluster section of a problem, or one of only the topology in `file`."""
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


def _size(text: str) -> float:
    try:
        size = parse(text, Bytes)
    except ValueError as error:
        raise InputError(f"--message {error}.") from None
    if size <= 0:
        raise InputError(f"--message must be above 0, is {text}.")
    return size
