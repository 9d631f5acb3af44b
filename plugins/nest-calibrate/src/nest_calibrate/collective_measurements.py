"""Measured collectives: tables of NVIDIA's aiconfigurator, output of nccl-tests, and lines of nest's own format."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from attrs import evolve, field, frozen, validators

from nest.catalogue import link as link_entry
from nest.errors import InputError
from nest.instance.cluster import PHASES
from nest.io import there_is
from nest.spec import CollectiveMeasurement
from nest_calibrate.lines import Doubt, Line, check_once, doubt_contradictions, no_doubt, read_lines

LINKS = {"V100": "nvlink2", "A100": "nvlink3", "H100": "nvlink4", "H200": "nvlink4", "B200": "nvlink5"}
"""Link inside a machine by what the name of its devices contains (GB200 among them)."""

WIDTHS = {"half": 2, "bfloat16": 2, "float": 4}
"""Bytes of an element by aiconfigurator's `nccl_dtype`. Integers are left out: training sums none, and NCCL neither
sums them in the switch nor as fast."""

KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
"""Kinds by the names that NCCL's tools use."""

MILLISECOND, MICROSECOND = 1e-3, 1e-6

NOISE = 0.05
"""Relative error expected of a measurement: two tables of one machine and library differ by as much in the median."""

TIMES = (-8, -4)
"""Columns of a row of nccl-tests with its times, out-of-place and in-place, each before two bandwidths and a count."""


@frozen
class Measurement:
    """Seconds that a collective took.

    Attributes:
        table: what it was read from, for reports.
        kind: `all_reduce`, `all_gather`, `reduce_scatter` or `all_to_all`.
        bytes: as PROBLEM.md section 1 counts them: the full buffer; for an all-to-all what each member holds.
        shape: members per group of each level, innermost first.
        seconds: of one call.
        links: of the catalogue, one for each level; the last is what the measurement tells something about.
        bandwidths: nominal bytes per second of each level; None: the link's own.
        place: where it stands, for people.
    """

    table: str
    kind: str = field(validator=validators.in_(PHASES))
    bytes: float = field(validator=validators.gt(0))
    shape: tuple[int, ...] = field(validator=validators.min_len(1))
    seconds: float = field(validator=validators.gt(0))
    links: tuple[str, ...]
    bandwidths: tuple[float | None, ...]
    place: str = field(default="", eq=False)

    @property
    def link(self) -> str:
        """The outermost link."""
        return self.links[-1]


def read_collectives(paths: Sequence[Path], link: str | None = None, doubt: Doubt = no_doubt) -> list[Measurement]:
    """The collectives in tables (`.parquet`), JSON lines (`.jsonl`) and outputs of nccl-tests (anything else).

    `link` is one of the catalogue, for measurements that do not say; in tables and outputs, in place of what they say.
    `doubt` is told of contradictory and of repeated ones.

    Raises:
        InputError: a file cannot be read or used, is given twice, or none has a collective.
    """
    check_once(paths)
    lines = read_lines([path for path in paths if path.suffix == ".jsonl"], doubt)
    measurements = [each for path in paths for each in _read(path, link, lines)]
    if not measurements:
        raise InputError(f"{', '.join(map(str, paths)):.200}: no measured collective in here.")
    doubt_contradictions(((evolve(each, seconds=1.0), each.place, each.seconds) for each in measurements), NOISE, doubt)
    return _merged(measurements)


def _read(path: Path, link: str | None, lines: Sequence[Line[Any]]) -> Iterator[Measurement]:
    if path.suffix == ".parquet":
        return _table(path, link)
    if path.suffix == ".jsonl":
        return _lines([line for line in lines if line.path == path], link)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    return _output(path, text, link)


def _merged(measurements: Iterable[Measurement]) -> list[Measurement]:
    """One of each table, set of devices, kind and size: the median of those that were repeated."""
    merged: dict[Measurement, list[float]] = {}
    for each in measurements:
        merged.setdefault(evolve(each, seconds=1.0), []).append(each.seconds)
    return [evolve(each, seconds=median(seconds)) for each, seconds in merged.items()]


def _link_of(text: str) -> str | None:
    """The link between devices whose name is in `text`, if it is known."""
    return next((link for device, link in LINKS.items() if device in text.upper()), None)


def _table(path: Path, link: str | None = None) -> Iterator[Measurement]:
    """The rows of a table of aiconfigurator (parquet; `op_name`, `nccl_dtype`, `num_gpus`, `message_size`, `latency`).

    `message_size` counts elements, `latency` milliseconds. The elements are those of the full buffer, which an
    all-gather fills and a reduce-scatter reads, and for an all-to-all what each member holds: with any other reading
    the larger sizes would travel faster than the links.
    """
    rows = list(_parquet_rows(path))
    missing = {"op_name", "nccl_dtype", "num_gpus", "message_size", "latency"} - set(rows[0] if rows else ())
    if missing:
        raise InputError(f"{path}: this is no table of collectives; it has no column {sorted(missing)[0]}.")
    for number, row in enumerate(rows, 1):
        if row["op_name"] in KINDS and row["nccl_dtype"] in WIDTHS:
            inside = _known_link(_link_of(f"{row.get('device') or path.name}"), link, path)
            yield Measurement(
                path.name,
                KINDS[row["op_name"]],
                float(row["message_size"] * WIDTHS[row["nccl_dtype"]]),
                (row["num_gpus"],),
                row["latency"] * MILLISECOND,
                (link or inside,),
                (_nominal(inside),),
                f"{path}, row {number}",
            )


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError(
            f"{path}: reading parquet needs pyarrow; install it with `pip install 'nest-planner[calibrate]'`."
        ) from None
    if there_is(path) != "file":
        raise InputError(f"{path}: there is no such file.")
    try:
        yield from parquet.read_table(path).to_pylist()
    except (OSError, ArrowException) as error:
        raise InputError(f"{path}: cannot be read as parquet: {str(error).splitlines()[0].rstrip('.'):.200}.") from None


def _output(path: Path, text: str, link: str | None = None) -> Iterator[Measurement]:
    """Read the output of nccl-tests (`all_reduce_perf` and the like): a row per size, out-of-place and in-place.

    Sizes are in bytes, of the full buffer (NVIDIA/nccl-tests doc/PERFORMANCE.md), times in microseconds. Devices and
    machines are those of its list of ranks. On several machines the link between them has to be named.
    """
    program = next(iter(re.findall(r"\b(\w+)_perf\b", f"{text}\n{path.name}")), "")
    kind = KINDS.get(program)
    ranks = re.findall(r"^#\s+Rank\s+\d+\b.*?\bon\s+(\S+)\s+device\s+\d+\s+\[\S+\]\s*(.*)$", text, re.MULTILINE)
    if kind is None or not ranks:
        raise InputError(
            f"{path}: not output of nccl-tests; it must name the program, such as all_reduce_perf, and list the ranks."
        )
    machines = len({host for host, _ in ranks})
    inside = _link_of(ranks[0][1])
    shape: tuple[int, ...]
    links: tuple[str, ...]
    nominal: tuple[float | None, ...]
    if len(ranks) == 1:
        raise InputError(f"{path}: one rank sends nothing; give output of two or more.")
    if machines == 1:
        inside = _known_link(inside, link, path)
        shape, links, nominal = (len(ranks),), (link or inside,), (_nominal(inside),)
    else:
        shape = (len(ranks) // machines, machines)
        links = (_known_link(inside, None, path), _known_link(link, None, path, "between the machines"))
        nominal = (None, None)
    for number, columns in enumerate(map(str.split, text.splitlines()), 1):
        if len(columns) < 1 - min(TIMES) or (size := _number(columns[0])) is None:
            continue
        for at in TIMES:
            if (time := _number(columns[at])) is not None:
                place = f"{path}:{number}"
                yield Measurement(path.name, kind, size, shape, time * MICROSECOND, links, nominal, place)


def _number(text: str) -> float | None:
    """A size or time that was measured; None for headings, `N/A` and 0, which stands for nothing sent."""
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]*)?", text):
        return None
    return float(text) or None


def _known_link(
    stated: str | None, given: str | None, path: Path, which: str = "of its devices", key: str = "--link"
) -> str:
    """`stated`, else `given`; where neither is there, the error says by which `key` to name one."""
    if stated is None and given is None:
        raise InputError(f"{path}: the link {which} is not known; name it with {key}, such as `{key} nvlink4`.")
    return stated or given or ""


def _nominal(link: str) -> float | None:
    return link_entry(link, "--link").bandwidth


def _lines(lines: Sequence[Line[Any]], link: str | None = None) -> Iterator[Measurement]:
    """The collectives in JSON lines (docs/reference/measurements.md); other measurements, and messages, are left out.

    `link` serves lines that name neither a link nor, on one machine, a device that is known.
    """
    for line in lines:
        if isinstance(line.measurement, CollectiveMeasurement) and line.measurement.kind in PHASES:
            yield evolve(_measurement(line.path, line.measurement, link), place=line.place)


def _measurement(path: Path, row: CollectiveMeasurement, link: str | None) -> Measurement:
    table = row.source or path.name
    of_devices = _link_of(row.device or "")
    if row.nodes == 1:
        link_name = _known_link(row.link or of_devices, link, path)
        return Measurement(table, row.kind, row.bytes, (row.members,), row.seconds, (link_name,), (row.bandwidth,))
    inside = _known_link(row.inside or of_devices, None, path, "inside the machines", "inside")
    between = _known_link(row.link, link, path, "between the machines")
    shape = (row.members // row.nodes, row.nodes)
    return Measurement(table, row.kind, row.bytes, shape, row.seconds, (inside, between), (None, row.bandwidth))
