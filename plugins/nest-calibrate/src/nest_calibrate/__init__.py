"""Calibration: coefficients of the catalogue, and corrections for a cluster, from measured runs.

Belongs here: readers of logs and measurements, and fits. Does not: the cost model that they fit.
"""

from typing import Any

from nest.hooks import hook


@hook
def nest_commands(app: Any) -> None:
    """`nest measure`, `nest shortlist`, and the commands of `nest calibrate`."""
    from nest_calibrate.commands.calibrate import register
    from nest_calibrate.commands.measure import measure
    from nest_calibrate.commands.shortlist import shortlist

    app.command("measure")(measure)
    app.command("shortlist")(shortlist)
    register(app)
