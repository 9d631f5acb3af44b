"""Nested leave-one-source-out: the source that is predicted is in no fit, and in no choice of what is fitted.

For each source the terms of `CHOSEN` are kept or dropped by what the others say, each left out in turn beside it; then
the coefficients are fitted to all others, and predict it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import get_context
from typing import Any

import numpy
from attrs import evolve, frozen

from benchmarks.fidelity.joint import Fitted, Mask, joint
from benchmarks.fidelity.own_runs import Own, own_lines, with_own_runs
from benchmarks.fidelity.ranking import split
from benchmarks.fidelity.runs import Told
from benchmarks.fidelity.spread import BELIEVED, Spreads, Strangers, apart, known_without, spread_lines, spreads
from benchmarks.fidelity.terms import TERMS, Term
from nest.hooks.protocols import CostModel
from nest.instance import Array
from nest.plan.evaluate import evaluate
from nest.public.text import time_shares
from nest_calibrate.generations import MeasuredRun, generation
from nest_calibrate.likeness import Shape, shape

CHOSEN = ("attention kernels", "host", "grace_launch", "routing_launches", "eager norms")
"""Names of the terms about which each source's others decide."""

TOUCHED = 1e-3
"""Least relative change of a prediction, per relative change of a coefficient, for a term to be about a run."""


@frozen
class Row:
    """Errors on the runs of one source.

    Attributes:
        source: its name.
        runs: of it.
        fitted: mean absolute relative error with coefficients fitted to it, too.
        nested: the same where it was left out of fits and choices.
        bias: the median of predicted over measured there, less 1.
        dropped: terms that the others chose to leave out.
        kept: `nested` with all terms; nothing is chosen there.
        without: the same with all terms of `CHOSEN` but one, by its name; `none` with none of them.
    """

    source: str
    runs: int
    fitted: float
    nested: float
    bias: float
    dropped: tuple[str, ...]
    kept: float
    without: Mapping[str, float]


@frozen
class Nested:
    """The rows by source, and all errors alike.

    Attributes:
        rows: one for each source.
        mean: of all runs, left out.
        alike: of the sources' means.
        kinds: of runs, by name: `alike` of what was fitted to every run, and left out.
        kept: `alike` with no choice: each term of `CHOSEN` always on.
        fixed: `alike` with each of the terms switched off for all, by name; `none` with none of them.
        spreads: ranges, from the errors left out.
        own: errors with own runs.
    """

    rows: tuple[Row, ...]
    mean: float
    alike: float
    kinds: Mapping[str, tuple[float, float]]
    kept: float
    fixed: Mapping[str, float]
    spreads: Spreads
    own: Own


def errors_of(off: Array) -> Array:
    """Absolute relative errors of logarithms of predicted over measured."""
    return numpy.asarray(numpy.abs(numpy.exp(off) - 1.0))


def kept(with_: Mapping[str, Array], without: Mapping[str, Array], about: Sequence[str]) -> bool:
    """Whether a term stays: sources it is about are predicted better with it, and no other worse than chance explains.

    Both by source: absolute errors of its runs. Better is the mean over the sources that it is about. Worse is a rise
    of another source's mean by more than its `standard_error`.
    """
    if not about:
        return False
    gain = numpy.mean([without[name].mean() - with_[name].mean() for name in about])
    usual = float(numpy.sqrt(numpy.mean([each.var(ddof=1) for each in without.values() if len(each) > 1] or [0.0])))
    worse = (name for name in with_ if name not in about)
    return bool(gain > 0) and all(
        with_[name].mean() - without[name].mean() <= standard_error(without[name], usual) for name in worse
    )


def standard_error(errors: Array, usual: float) -> float:
    """The standard error of a source's mean.

    A few runs tell little of their deviation: two that were published with two digits may have none. So its variance
    is pooled with `usual` squared, which counts as `BELIEVED` runs (Gelman et al., Bayesian Data Analysis, section
    2.6).
    """
    count = len(errors)
    own = (count - 1) * float(errors.var(ddof=1)) if count > 1 else 0.0
    return float(numpy.sqrt((own + BELIEVED * usual**2) / (count - 1 + BELIEVED) / count))


def nested(
    runs: Sequence[MeasuredRun],
    bare: Array,
    costs: CostModel,
    told: Told,
    names: Sequence[str] = CHOSEN,
    processes: int = 1,
) -> Nested:
    """Leave out each source of `runs`; `bare` are seconds predicted from published figures of their devices.

    `names` are those of terms with unknowns or figures of devices. The answer is the same with any number of
    `processes`.
    """
    terms = [next(each for each in TERMS if each.name == name) for name in names]
    sources = numpy.array([each.run.group or "runs" for each in runs])
    held = {name: sources == name for name in sorted(set(sources.tolist()))}
    told("fitting")
    everything = joint(runs, costs).fitted()
    fits = _Fits(everything, told, processes)
    switched: dict[str, Sequence[Term]] = {"": [], **{term.name: [term] for term in terms}, "none": terms}
    fits.make(switched.values())
    off: dict[str, Sequence[Term]] = {}
    for name, its in held.items():
        told(f"choosing without {name}")
        others = {each: own for each, own in held.items() if each != name}
        on = _inner(everything, its, others)
        off[name] = [
            term for term in terms if not kept(on, _inner(fits([term]), its, others), _about(everything, term, others))
        ]
    fits.make(off.values())
    outer = dict(zip(held, fits.outer([(off[name], its) for name, its in held.items()]), strict=True))
    every = iter(fits.outer([(without, its) for without in switched.values() for its in held.values()]))
    fixed = {name: dict(zip(held, every, strict=False)) for name in switched}
    always = fixed.pop("")
    rows = tuple(
        Row(
            source=name,
            runs=int(its.sum()),
            fitted=float(errors_of(everything.off[its]).mean()),
            nested=float(errors_of(outer[name]).mean()),
            bias=float(numpy.exp(numpy.median(outer[name])) - 1.0),
            dropped=tuple(term.name for term in off[name]),
            kept=float(errors_of(always[name]).mean()),
            without={term: float(errors_of(each[name]).mean()) for term, each in fixed.items()},
        )
        for name, its in held.items()
    )
    found, own = _spreads(runs, bare, everything.off, outer)
    return Nested(
        rows=rows,
        mean=float(errors_of(numpy.concatenate(list(outer.values()))).mean()),
        alike=_alike(outer),
        kinds=_kinds(runs, held, everything.off, outer),
        kept=_alike(always),
        fixed={name: _alike(each) for name, each in fixed.items()},
        spreads=found,
        own=own,
    )


def _spreads(
    runs: Sequence[MeasuredRun], bare: Array, fitted: Array, outer: Mapping[str, Array]
) -> tuple[Spreads, Own]:
    """Ranges and own runs; plans of one task are told apart by the fit to all runs."""
    sources = [each.run.group or "runs" for each in runs]
    measured = numpy.array([each.run.measured.batch_time for each in runs])
    left_out = numpy.zeros(len(runs))
    for name, off in outer.items():
        left_out[numpy.array(sources) == name] = off
    tasks = [f"{source}: {split(each.run.problem)[0]}" for source, each in zip(sources, runs, strict=True)]
    told_apart = apart(measured * numpy.exp(fitted), measured, tasks, sources)
    seen = strangers(runs, -left_out)
    others = known_without(seen, told_apart[0])
    found = spreads(seen, evolve(seen, off=numpy.log(measured / bare)), told_apart, others)
    return found, with_own_runs(seen, others)


def strangers(runs: Sequence[MeasuredRun], off: Array) -> Strangers:
    """Describe `runs` with logarithms `off` of measured over predicted seconds."""
    sources = [each.run.group or "runs" for each in runs]
    return Strangers(
        off=off,
        sources=sources,
        clusters=[f"{source} on {each.device.name}" for source, each in zip(sources, runs, strict=True)],
        generations=[generation(each.device) for each in runs],
        experts=[kind(each).endswith("experts") for each in runs],
        shapes=[_shape(each) for each in runs],
    )


def _shape(run: MeasuredRun) -> Shape:
    """Describe the plan of a run as the catalogue prices it."""
    parts = run.breakdown
    used = [parts.instance.candidates[stage.candidate] for stage in parts.solution.stages]
    widest = max(used, key=lambda each: each.width)
    priced = evaluate(parts.instance, parts.solution)
    return shape(time_shares(priced), dict(widest.degrees), parts.problem.training.sequence_length)


class _Fits:
    """Fits to all runs without some of the terms, each made once, several at a time in forked processes."""

    def __init__(self, whole: Fitted, told: Told, processes: int) -> None:
        self._told, self._processes = told, processes
        self._known: dict[tuple[str, ...], Fitted] = {(): whole}

    def __call__(self, off: Sequence[Term]) -> Fitted:
        return self._known[_key(off)]

    def make(self, wanted: Iterable[Sequence[Term]]) -> None:
        """Make the fits without each of `wanted`."""
        new = [off for key, off in {_key(off): off for off in wanted}.items() if key not in self._known]
        self._told(f"fitting without {len(new)} choices of terms")
        whole = self._known[()]
        for off, (at, here, slopes) in zip(new, self._each(self._made, new), strict=True):
            self._known[_key(off)] = Fitted(whole.joint.less(off), at, here, slopes)

    def _made(self, off: Sequence[Term]) -> tuple[Array, Array, Array]:
        whole = self._known[()]
        fit = whole.joint.less(off).fitted(whole)
        return fit.at, fit.off, fit.slopes

    def outer(self, wanted: Sequence[tuple[Sequence[Term], Mask]]) -> list[Array]:
        """Return errors of the runs of each mask, left out of the fit without the terms beside it."""
        self._told(f"leaving out sources of {len(wanted)} fits")
        return self._each(self._left_out, wanted)

    def _left_out(self, task: tuple[Sequence[Term], Mask]) -> Array:
        off, its = task
        return self(off).without(its)[1][its]

    def _each(self, made: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """Apply `made` to `tasks`, in forked processes, since prices cannot be sent."""
        if self._processes < 2:
            return [made(task) for task in tasks]
        _SHARED[:] = [made, tasks]
        with get_context("fork").Pool(self._processes) as pool:
            return pool.map(_do, range(len(tasks)), chunksize=1)


_SHARED: list[Any] = []
"""Work of forked processes: a function and its arguments."""


def _do(index: int) -> Any:
    made, tasks = _SHARED
    return made(tasks[index])


def _key(off: Sequence[Term]) -> tuple[str, ...]:
    return tuple(sorted(term.name for term in off))


def _inner(fit: Fitted, outer: Mask, others: Mapping[str, Mask]) -> dict[str, Array]:
    return {name: errors_of(fit.nearly(outer | its)[its]) for name, its in others.items()}


def _about(fit: Fitted, term: Term, held: Mapping[str, Mask]) -> list[str]:
    """The sources some of whose predictions change with the term's unknowns."""
    columns = [place for place, name in enumerate(fit.joint.names) if term.unknown(name)]
    touched = numpy.abs(fit.slopes[:, columns]).max(axis=1, initial=0.0) > TOUCHED
    return [name for name, its in held.items() if touched[its].any()]


def _kinds(
    runs: Sequence[MeasuredRun], held: Mapping[str, Mask], fitted: Array, outer: Mapping[str, Array]
) -> dict[str, tuple[float, float]]:
    """Sources alike by kind of run."""
    left_out = numpy.zeros(len(runs))
    for name, its in held.items():
        left_out[its] = outer[name]
    kinds = numpy.array([kind(each) for each in runs])
    found = {"all": numpy.full(len(runs), True), "GPU": kinds != "TPU"}
    found |= {each: kinds == each for each in sorted(set(kinds.tolist()))}
    return {
        name: (
            _alike({source: fitted[its & of_kind] for source, its in held.items() if (its & of_kind).any()}),
            _alike({source: left_out[its & of_kind] for source, its in held.items() if (its & of_kind).any()}),
        )
        for name, of_kind in found.items()
    }


def kind(run: MeasuredRun) -> str:
    """Name the kind of a run: TPU, GPU with experts, or dense GPU."""
    if generation(run.device).startswith("tpu"):
        return "TPU"
    rows = (row for layer in run.breakdown.layers for row in layer.rows)
    experts = any(each.group == "expert" for row in rows for each in row.operator.parameters)
    return "GPU, experts" if experts else "GPU, dense"


def _alike(off: Mapping[str, Array]) -> float:
    return float(numpy.mean([errors_of(each).mean() for each in off.values()]))


def text(found: Nested) -> list[str]:
    """All figures, as lines."""
    names = list(found.fixed)
    columns = "".join(f"{each:>9}" for each in ("fitted", "nested", "one own", "bias"))
    own = found.own.plan[1].sources if 1 in found.own.plan else {}
    lines = [f"{'mean error of step time':24}{'runs':>5}{columns}  dropped by the others"]
    for row in found.rows:
        one = f"{own[row.source]:9.1%}" if row.source in own else f"{'-':>9}"
        figures = f"{row.fitted:9.1%}{row.nested:9.1%}{one}{row.bias:+9.1%}"
        lines.append(f"{row.source:24}{row.runs:5}{figures}  {', '.join(row.dropped)}".rstrip())
    lines.append(f"{'mean of all runs':38}{found.mean:9.1%}")
    for name, (fitted, left_out) in found.kinds.items():
        lines.append(f"{'sources alike: ' + name:29}{fitted:9.1%}{left_out:9.1%}")
    lines += ["", f"{'left out, nothing chosen':24}{'all on':>9}" + "".join(f"{'no ' + each:>21}" for each in names)]
    for row in found.rows:
        lines.append(f"{row.source:24}{row.kept:9.1%}" + "".join(f"{row.without[each]:21.1%}" for each in names))
    lines.append(f"{'sources alike':24}{found.kept:9.1%}" + "".join(f"{found.fixed[each]:21.1%}" for each in names))
    return [*lines, "", *spread_lines(found.spreads), *own_lines(found.own)]
