"""How to run a plan: the files of the frameworks that can, and what starts their processes."""

from collections.abc import Callable, Mapping, Sequence

from nest.errors import InputError
from nest.formulate.target import reasons
from nest.report.html.records import Cell, Fold, Listing, Section, Subject, Table
from nest.units import format_bytes, listed

PREFERRED = ("megatron", "torchtitan", "deepspeed")
"""Frameworks whose files come first where they can run the plan; others follow by name."""

LAUNCHERS = ("torchrun", "slurm")
"""Exporters whose scripts start the processes."""

LONGEST = 20_000
"""Characters of a file that is shown; of longer ones only the command that writes them."""


Files = tuple[Mapping[str, str], Sequence[str]]
"""Contents by file name, and what to think of before they are used."""

Export = Callable[[tuple[str, ...]], Files]
"""Gives the files of exporters for the plan; raises InputError where one refuses it."""


def launch(subject: Subject, export: Export) -> Section:
    """The first framework's flags; folded away its other files, launchers, other frameworks; reasons of the rest."""
    plan, known = subject.plan, subject.known
    against = dict(reasons(plan, known))
    made: dict[str, Files] = {}
    for name in sorted(against, key=_rank):
        if against[name]:
            continue
        try:
            made[name] = export((name,))
        except InputError as error:
            against[name] = (str(error).rstrip("."),)
    first = next(iter(made), None)
    listings = [] if first is None else _files(first, made[first][0])
    more = [] if first is None else [_fold(first, listings[1:])]
    for name in LAUNCHERS:
        if name in known.exporters():
            more.append(_fold(name, _launcher(export, name, first, made[first][0] if first is not None else {})))
    more += [_fold(name, _files(name, made[name][0])) for name in made if name != first]
    return Section(
        "launch",
        "Launch",
        paragraphs=_told(first, made),
        listings=tuple(listings[:1]),
        more=(*(fold for fold in more if fold.listings), *_refusals(against)),
        more_title="Other files, launchers and frameworks",
    )


def _fold(exporter: str, listings: Sequence[Listing]) -> Fold:
    """What an exporter writes, under the names of its files."""
    names = [each.name.removeprefix(f"{exporter}: ") for each in listings]
    return Fold(exporter if names == [exporter] else f"{exporter}: {', '.join(names)}", tuple(listings))


def _rank(name: str) -> tuple[int, str]:
    return (PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)), name


def _told(first: str | None, made: Mapping[str, Files]) -> tuple[str, ...]:
    if first is None:
        return (
            "No framework that nest writes files for can run this plan as it is. `nest export PLAN --to NAME "
            "--nearest` exports the nearest plan that one can run; `search.target: NAME` in the problem plans for it.",
        )
    return (
        f"Runs as it is on {listed(tuple(made))}.",
        f"Files of {first} and of launchers, as `nest export PLAN --to {first} --to torchrun -o DIR` writes them.",
        *dict.fromkeys(warning[0].upper() + warning[1:] for warning in made[first][1]),
    )


def _files(exporter: str, files: Mapping[str, str], framework: str | None = None) -> list[Listing]:
    """A listing for each file, whole or not at all; a launcher's are for the ranks of a framework."""
    to = "".join(f" --to {name}" for name in (framework, exporter) if name is not None)
    found = []
    for name, text in files.items():
        title = f"{exporter}: {name}"
        if len(text) <= LONGEST:
            found.append(Listing(title, text))
        else:
            size = f"{text.count(chr(10)):,} lines, {format_bytes(len(text.encode()))}"
            found.append(Listing(title, "", f"{size}, too long to be shown; `nest export PLAN{to}` writes it."))
    return found


def _launcher(export: Export, name: str, framework: str | None, others: Mapping[str, str]) -> list[Listing]:
    """Its files for the ranks of the framework, whose own are `others`; of a launcher that refuses, the reason."""
    to = (name,) if framework is None else (framework, name)
    try:
        files, _ = export(to)
    except InputError as error:
        return [Listing(name, "", str(error))]
    return _files(name, {file: text for file, text in files.items() if file not in others}, framework)


def _refusals(against: Mapping[str, tuple[str, ...]]) -> tuple[Fold, ...]:
    refused = sorted((name for name, told in against.items() if told), key=_rank)
    if not refused:
        return ()
    rows = tuple((Cell(name), Cell("; ".join(against[name]))) for name in refused)
    table = Table("Frameworks that cannot run this plan", ("framework", "why not"), rows, (0, 1))
    return (Fold(f"cannot run this plan: {', '.join(refused)}", tables=(table,)),)
