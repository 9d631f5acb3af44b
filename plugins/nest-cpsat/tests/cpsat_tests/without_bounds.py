"""What a test puts in place of the cheapest bounds, so that models settle what these would."""

import numpy
import pytest

from nest_cpsat import compute_bound, room_bound


def leave_cases_to_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds from what layers compute, and from what stages have room for, say nothing."""
    monkeypatch.setattr(compute_bound.ComputeBound, "of", lambda *_: 0.0)
    monkeypatch.setattr(compute_bound.ComputeBound, "of_rows", lambda _, family: numpy.zeros(len(family.rows)))
    monkeypatch.setattr(room_bound.RoomBound, "excludes", lambda *_: False)
