"""Recompute modes that a problem allows, for whole stages and first blocks (PROBLEM.md section 3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from nest.catalogue import unknown_name
from nest.deployment.deployment import ENDS
from nest.errors import InputError
from nest.instance import Candidate, Partial, modes_of
from nest.io.names import any_of
from nest.spec import Problem, ProfileSpec, StageRecord
from nest.spec.problem import OFFLOAD, RECOMPUTE_MODES

if TYPE_CHECKING:
    from nest.deployment import Limits
    from nest.formulate.options import Options

WHOLE_ONLY = ("stage", OFFLOAD)  # Recompute modes that a stage uses as a whole or not at all.


def profile_modes(profile: ProfileSpec | str | None) -> list[str]:
    """Recompute modes of the candidates of a profile, before restrictions."""
    candidates = profile.candidates if isinstance(profile, ProfileSpec) else ()
    return [name for each in candidates for name in each.recompute]


def check_modes(place: str, wanted: Iterable[str], known: Collection[str], *, modelled: bool) -> None:
    """Refuse recompute modes that no candidate has, of a model or a profile; the error names `place`."""
    for name in wanted:
        if name == OFFLOAD and name not in known and modelled:
            raise InputError(f"{place}: `{OFFLOAD}` needs `activations` in training.offload; add it.")
        if name not in known:
            raise unknown_name(place, "recompute mode", name, known)


def whole_modes(options: Options, candidates: Sequence[Candidate]) -> tuple[str, ...] | None:
    """Recompute modes for whole stages, in the order listed; None: all of a candidate's.

    Raises:
        InputError: no candidate has one that is listed, or the target has none of them.
    """
    fixed, limits, modelled = options.fixed.values.get("recompute"), options.limits, options.model is not None
    if fixed is None and "recompute_layers" in options.fixed.values:
        fixed = _heaviest(_by_weight(candidates))
    known = dict.fromkeys(mode.name for candidate in candidates for mode in candidate.recompute)
    listed, decided = options.search.recompute, None if fixed is None else (str(fixed),)
    # A target may leave out candidates; what is listed for them is no mistake.
    check_modes(
        "search.recompute", listed or (), dict.fromkeys([*profile_modes(options.profile), *known]), modelled=modelled
    )
    check_modes("fixed.recompute", decided or (), known, modelled=modelled)
    place, wanted = ("search.recompute", listed) if decided is None else ("fixed.recompute", decided)
    if wanted is None and limits is None:
        return None
    return allowed_modes(options.search.framework, limits, place, known if wanted is None else wanted)


def allowed_modes(target: str | None, limits: Limits | None, place: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """Filter the `wanted` recompute modes by the target, in their order.

    Raises:
        InputError: it has none of them.
    """
    names = tuple(dict.fromkeys(wanted))
    if limits is None:
        return names
    host = (OFFLOAD,) if "activations" in limits.offload else ()
    modes = None if limits.recompute is None else (*limits.recompute, *host)
    modes_allowed = tuple(name for name in names if (name in modes if modes is not None else name != OFFLOAD or host))
    if not modes_allowed:
        from nest.formulate.target import beyond

        raise InputError(beyond(str(target), "recompute modes", modes or (), place, names))
    return modes_allowed


def recomputes_parts(asked: Problem | Options) -> bool:
    """True if stages may recompute only some blocks (`search.recompute_layers`).

    In mixed plans and on several pools only on request: Llama 3 70B on 64 H100 and 128 A100 takes 54 s of CPU with it,
    8 s without, and gets the same plan (2026-11-29).
    """
    stated = asked.search.recompute_layers
    if stated is not None:
        return stated
    return asked.model is not None and asked.cluster.pools is None and not asked.search.mixed


def partial_modes(
    options: Options,
    candidates: Sequence[Candidate],
    allowed: Collection[str] | None,
    blocks: int,
    listed: Collection[str] | None,
) -> tuple[str, ...]:
    """Names of partial recomputation modes (`nest.instance.Partial`), preferred first.

    Args:
        allowed: from `whole_modes`.
        blocks: number in the model, or of layers of a problem without blocks.
        listed: modes in `search.recompute`; None: any.

    Raises:
        InputError: `fixed.recompute_layers` is no number of blocks, nothing is lighter than its mode, or it needs a
            mode that is not `listed`.
    """
    fixed, limits = options.fixed.values, options.limits
    known = _by_weight(candidates)
    lighter = [(mode, rest) for mode in known for rest in known[: known.index(mode)]]
    pairs = lighter if limits is None else [pair for pair in lighter if pair in limits.partial_recompute]
    if {"recompute_layers", "recompute_rest"} & fixed.keys():
        return _fixed_part(options, str(fixed.get("recompute", _heaviest(known))), lighter, pairs, blocks, listed)
    if "recompute" in fixed or not recomputes_parts(options):
        return ()
    pairs = [pair for pair in pairs if allowed is None or {*pair} <= {*allowed}]
    return tuple(Partial(mode, count, rest).name for mode, rest in pairs for count in range(1, blocks))


def keeping_modes(problem: Problem, stages: Sequence[StageRecord]) -> Problem:
    """Narrow a problem to the recompute modes of a plan's stages, and their numbers of first blocks."""
    parts = {stage.recompute_layers for stage in stages}
    modes = dict.fromkeys(mode for stage in stages for mode in modes_of(stage.recompute_name))
    counts = sorted(count for count in parts if count is not None)
    # What recomputes as many blocks as any stage has recomputes all of them; operators of one layer count once.
    most = max(len({name.partition("/")[0] for name in stage.layers} - {*ENDS}) for stage in stages)
    whole = f" or recompute_layers == 0 or recompute_layers >= {most}" if None in parts else ""
    demands = (f"recompute_layers in {counts}{whole}",) if counts else ()
    search = evolve(problem.search, recompute=tuple(modes), recompute_layers=bool(counts))
    return evolve(problem, search=search, constraints=(*problem.constraints, *demands))


def _by_weight(candidates: Sequence[Candidate]) -> list[str]:
    """Modes that stages may use partially, lightest first: nest's own, then those of a profile as listed."""
    has = dict.fromkeys(mode.name for candidate in candidates for mode in candidate.recompute)
    weights = {name: place for place, name in enumerate(RECOMPUTE_MODES)}
    return sorted((name for name in has if name not in WHOLE_ONLY), key=lambda name: weights.get(name, len(weights)))


def _heaviest(known: Sequence[str]) -> str:
    return known[-1] if known else RECOMPUTE_MODES[0]


Pairs = Sequence[tuple[str, str]]


def _fixed_part(
    options: Options, mode: str, lighter: Pairs, pairs: Pairs, blocks: int, listed: Collection[str] | None
) -> tuple[str, ...]:
    """Partial mode that `fixed` decides with a `mode`; empty: all blocks recompute.

    `lighter` are all pairs of modes, `pairs` those of the target.
    """
    count, rest = (options.fixed.values.get(name) for name in ("recompute_layers", "recompute_rest"))
    if count is None:
        raise InputError("fixed.recompute_rest needs fixed.recompute_layers; add it, or leave both out.")
    if type(count) is not int or count < 1:
        raise InputError(f"fixed.recompute_layers is {count!r}; it must be a whole number of at least 1.")
    if mode in WHOLE_ONLY:
        raise InputError(f"fixed.recompute_layers: mode {mode!r} is for whole stages only; leave it out.")
    rests = [other for heavier, other in lighter if heavier == mode]
    if not rests:
        raise InputError(f"fixed.recompute_layers: no recompute mode is lighter than {mode!r}; leave it out.")
    if rest not in (None, *rests):
        raise InputError(f"fixed.recompute_rest is {rest!r}; lighter than {mode!r} is {any_of(rests)}.")
    # Frameworks keep everything of the other blocks, unless told otherwise.
    found = [pair for pair in pairs if pair[0] == mode and rest in (None, pair[1])]
    needed = (mode,) if count >= blocks else next(iter(found), (mode,))
    if listed is not None and not {*needed} <= {*listed}:
        raise InputError(
            f"fixed.recompute_layers is {count}, which needs {' and '.join(needed)}, but search.recompute allows "
            f"{', '.join(listed)} only; change one of them."
        )
    if count >= blocks:
        return ()
    if not found:
        others = "" if rest is None else f" and {rest!r} for the others"
        raise InputError(
            f"fixed.recompute_layers: {options.search.framework} cannot use {mode!r} for some blocks of a "
            f"stage{others}; leave it out, or choose another target."
        )
    return (Partial(mode, count, found[0][1]).name,)
