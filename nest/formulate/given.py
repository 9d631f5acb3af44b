"""What people hand over, a path, a mapping or a record, as a record."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from attrs import evolve

from nest.errors import FieldError, FieldErrors, InputError
from nest.hooks.registry import Registry
from nest.spec import PlanDocument, Problem
from nest.spec.missing_units import refuse_missing_units

Source = str | Path | Mapping[str, Any]
Changes = Mapping[str, Mapping[str, Any]]
"""Keys by section, to stand in place of what is written."""

Record = TypeVar("Record", Problem, PlanDocument)


@contextmanager
def naming(source: object, below: str = "") -> Iterator[None]:
    """Let errors name the file that `source` is, when it is one, and the line of what they speak of, `below` a key."""
    from nest.files import placed

    try:
        yield
    except (InputError, FieldError, FieldErrors) as error:
        # A decision may make a record that cannot be, such as a micro-batch above the batch.
        told = error if isinstance(error, InputError) else InputError(f"{error}.")
        raise placed(Path(source), told, below) if isinstance(source, (str, Path)) else told from None


def read_record(
    source: Source | Record, cls: type[Record], changes: Changes | None = None
) -> tuple[Record, Mapping[str, Any]]:
    """What `source` says, as a record and as a mapping without what nobody wrote, with `changes` in its place.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    from nest.files import read_mapping, structure, structure_source

    if isinstance(source, cls):
        if not changes:
            return source, source.to_dict()
        source = source.to_dict()
    if isinstance(source, (str, Path)):
        found = read_mapping(Path(source))
        _check_kind(found.mapping, cls)
        found = evolve(found, mapping=_changed(found.mapping, changes))
        return structure_source(found, cls), found.mapping
    if isinstance(source, Mapping):
        _check_kind(source, cls)
        source = _changed(source, changes)
        return structure(source, cls), source
    raise InputError(f"expected a path or a mapping, not {type(source).__name__}.")


def _changed(mapping: Mapping[str, Any], changes: Changes | None) -> dict[str, Any]:
    """A copy of `mapping` with keys of its sections in place of its own; a section that is none is left for errors."""
    found = dict(mapping)
    for section, keys in (changes or {}).items():
        written = found.get(section) or {}
        if isinstance(written, Mapping):
            found[section] = {**written, **keys}
    return found


def _check_kind(mapping: Mapping[str, Any], cls: Any) -> None:
    """Tell a plan given for a problem, and the other way round, in one sentence."""
    is_plan = "stages" in mapping and "problem" in mapping
    if is_plan and cls is Problem:
        raise InputError("this is a plan, not a problem; its problem is what stands under `problem`.")
    if not is_plan and cls is PlanDocument and "training" in mapping:
        raise InputError("this is a problem, not a plan; `nest solve PROBLEM --output FILE` writes a plan.")


def whole_problem(
    source: Source | Problem,
    known: Registry,
    fix: Mapping[str, Any] | None = None,
    changes: Changes | None = None,
) -> tuple[Problem, Mapping[str, Any]]:
    """The problem with `changes` in it, `fix` decided, and every file it refers to read into it for plans to carry.

    Returns:
        It, and what was written of it.

    Raises:
        InputError: something cannot be read.
    """
    from nest.formulate.fixed_plan import with_decisions
    from nest.formulate.self_contained import self_contained

    read, written = read_record(source, Problem, changes)
    base = Path(source).parent if isinstance(source, (str, Path)) else None
    whole = self_contained(with_decisions(read, fix) if fix else read, base, known)
    if not isinstance(source, Problem):
        refuse_missing_units(whole)
    return whole, written
