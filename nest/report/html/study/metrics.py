"""What figures of a study show of a plan: its time, its speed, or what it costs."""

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from nest.report.html.study.points import Study, StudyPoint
from nest.units import format_seconds


@frozen
class Metric:
    """A figure of a plan.

    Attributes:
        name: as `--metric` takes it.
        title: heading.
        value: of a row; None: it has none.
        text: for people.
        less_is_better: whether the best is the least.
        units: names of its units with their sizes, the greatest first.
    """

    name: str
    title: str
    value: Callable[[StudyPoint], float | None]
    text: Callable[[float], str]
    less_is_better: bool = True
    units: tuple[tuple[float, str], ...] = ((1.0, ""),)

    @property
    def heading(self) -> str:
        """The title, to begin a sentence."""
        return self.title[0].upper() + self.title[1:]

    def unit_of(self, values: Sequence[float]) -> tuple[float, str]:
        """The size and the name of the unit that suits the greatest of some values."""
        most = max(values, default=0.0)
        return next((each for each in self.units if most >= each[0]), self.units[-1])

    def times_best(self, value: float, best: float) -> float:
        """How many times worse than the best a value is, from 1."""
        better, worse = (best, value) if self.less_is_better else (value, best)
        return worse / better if better > 0 else 1.0

    def best(self, values: Sequence[float]) -> float:
        """The best of some values."""
        return min(values) if self.less_is_better else max(values)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


_TIMES = ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_MANY = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))

METRICS: Mapping[str, Metric] = {
    each.name: each
    for each in (
        Metric("step-time", "step time", lambda point: point.batch_time, format_seconds, units=_TIMES),
        Metric("samples", "samples/s", lambda point: point.throughput, _plain, less_is_better=False, units=_MANY),
        Metric("tokens", "tokens/s", lambda point: point.tokens, _plain, less_is_better=False, units=_MANY),
        Metric(
            "tokens-per-device",
            "tokens/s per device",
            lambda point: point.tokens / point.devices if point.tokens and point.devices else None,
            _plain,
            less_is_better=False,
            units=_MANY,
        ),
        Metric(
            "mfu",
            "model FLOP utilisation",
            lambda point: point.mfu,
            lambda value: f"{value:.1%}",
            less_is_better=False,
            units=((0.01, "%"),),
        ),
        Metric("cost", "cost to train", lambda point: point.cost, _plain, units=_MANY),
    )
}
"""By name."""


def usual_metric(study: Study) -> Metric:
    """The step time; where the batch varies, how many tokens, or else samples, there are in a second."""
    batch = ("training.global_batch", "training.sequence_length")
    if not any(study.axes[index].name in batch for index in study.varying):
        return METRICS["step-time"]
    return METRICS["tokens" if any(point.tokens is not None for point in study.points) else "samples"]
