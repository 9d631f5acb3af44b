"""Operator costs from a table of measurements."""

import os
from functools import lru_cache
from pathlib import Path

from attrs import evolve

from nest.catalogue import precision
from nest.errors import InputError
from nest.graph import Operator
from nest.hooks.protocols import CostModel, MeasuredOperator, OperatorCost
from nest.spec import DeviceSpec, Training
from nest_measured.sizes import sizes_of
from nest_measured.table import Table, read_table

VARIABLE = "NEST_MEASURED_TABLE"
"""The environment variable with the path of the table."""


class Measured:
    """Times of a table where it has them, else those of the default cost model.

    The table is the file that the environment variable `NEST_MEASURED_TABLE` names. `Table.nearest` says what counts as
    measured. Times of the optimizer step and bytes are always the default model's.
    """

    name = "measured"
    from_measurements = True

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        """Cost of `operator` on `device`, seconds and bytes per micro-batch.

        Raises:
            InputError: there is no table, it cannot be read, or it is another device's or of other precisions.
        """
        table = _table()
        if table.device not in (None, device.name):
            raise InputError(
                f"the table of {VARIABLE} was measured on {table.device!r}, but the device is {device.name!r}; "
                "name a table of this device, or choose other `costs`."
            )
        if table.precisions and training.precision not in table.precisions:
            known = ", ".join(sorted(table.precisions))
            raise InputError(
                f"the table of {VARIABLE} was measured in {known}, but training.precision is "
                f"{training.precision}; name a table of this precision, or choose other `costs`."
            )
        usual = _default().price(operator, device, training)
        sums = _sums(operator, table, training)
        sizes = sizes_of(operator)
        found = None if sizes is None else table.nearest(operator.kind, sizes, training.precision)
        if sizes is None or found is None:
            return evolve(usual, backward=usual.backward + sums) if sums else usual
        row, factor = found
        forward = row.forward * factor
        if row.backward is not None:
            backward = row.backward * factor
        else:
            backward = forward * usual.backward / usual.forward if usual.forward else usual.backward
        measured = MeasuredOperator(
            tuple(sizes.items()), tuple((name, row.whole_sizes[name]) for name in sizes), row.backward is not None
        )
        return evolve(usual, forward=forward, backward=backward + sums if usual.backward else 0.0, measured=measured)


def _sums(operator: Operator, table: Table, training: Training) -> float:
    """Seconds to add the gradients of a micro-batch to those before it, if kernels of their own do so."""
    if training.kernels != "eager":
        return 0.0
    moved = 3.0 * precision(training.precision).trained(training).gradients  # Two are read, their sum is written.
    sizes = [{"bytes": round(moved * each.count)} for each in operator.parameters if not each.frozen]
    found = [table.nearest("elementwise", each, training.precision) for each in sizes]
    return sum(row.forward * factor for row, factor in filter(None, found))


def _default() -> CostModel:
    """The cost model used where a problem names none."""
    from nest.hooks.registry import registry

    return next(iter(registry().cost_models().values()))


def _table() -> Table:
    path = os.environ.get(VARIABLE, "")
    if not path:
        raise InputError(
            f"costs is `measured`, but the environment variable {VARIABLE}, the path of the table, is not set."
        )
    try:
        state = Path(path).stat()
    except OSError as error:
        raise InputError(f"{VARIABLE}: {path!r:.200} cannot be read: {error.strerror}.") from None
    return _read(path, state.st_mtime_ns, state.st_size)


# Every operator of every candidate asks for it; a file that changed is read again.
@lru_cache(maxsize=8)
def _read(path: str, changed: int, size: int) -> Table:
    return read_table(Path(path))
