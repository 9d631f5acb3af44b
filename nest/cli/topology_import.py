"""`nest topology import`: files of other tools to `cluster:` sections."""

from pathlib import Path

import typer

from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import tell_assumed, to_json, warn, write
from nest.cli.progress import waiting


def import_file(
    file: str = typer.Argument(
        ...,
        metavar="FILE",
        help="A file that describes a network, as other tools write it; FILE#NAME is one part of it.",
    ),
    link_profile: str | None = typer.Option(
        None,
        "--link-profile",
        metavar="NAME|FILE",
        help="What the file leaves out: a name `nest topology profiles` lists, or a file of figures.",
    ),
    importer: str | None = typer.Option(
        None, "--format", metavar="NAME", help="The importer to read it with; left out, the first that knows the file."
    ),
    hosts: int = typer.Option(
        1,
        "--hosts",
        metavar="N",
        min=1,
        help="Where the file describes one machine: how many there are, joined by their network adapters.",
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file instead of printing."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write the network in a file of another tool as the `cluster:` section of a problem, in YAML.

    What the file does not say, and where it was taken from, is told on standard error, a line each. Exit code 0: done;
    2: bad input.
    """
    from nest.formulate.topology import from_file
    from nest.hooks.registry import registry
    from nest.io import check_writable
    from nest.report.cluster_section import section, section_text
    from nest.spec import ClusterSpec

    if output is not None:
        check_writable(output, file, file.partition("#")[0])
        check_kind(output, ".toml")
    spec = ClusterSpec(topology=file, link_profile=link_profile)
    with waiting(f"reading {file}"):
        found = registry().run(lambda: from_file(spec, registry(), None, importer, hosts))
    warn(registry().warnings)
    tell_assumed(found.assumed or ())
    comments = [f"From {file}, as `nest topology import` read it.", *(found.assumed or ())]
    content = {"cluster": section(found), "assumed": list(found.assumed or ())}
    text = to_json(content) + "\n" if as_json else section_text(found, comments)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write(output, to_json({"cluster": content["cluster"]}) + "\n" if output.suffix.lower() == ".json" else text)


def check_kind(output: Path, *others: str) -> None:
    """Refuse a file whose name says that something else than a section in YAML is in it: nobody could read it."""
    from nest.errors import InputError

    if output.suffix.lower() in others:
        raise InputError(f"{output}: the section is not written as {output.suffix[1:].upper()}; call the file `.yaml`.")
