"""Random small plans: decisions drawn freely, kept where `nest.evaluate` can price them."""

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from frameworks_tests.plans import DENSE, SPARSE, plan
from nest.errors import InputError
from nest.spec import PlanDocument

CHUNKED = ("interleaved", "interleaved-zero-bubble", "zb-v", "dualpipe-v")
"""Schedules that run two chunks on each stage."""


@st.composite
def plans(draw: st.DrawFn) -> PlanDocument:
    """Plans on at most 16 devices, of a dense model or one with experts."""
    sparse = draw(st.booleans())
    tp, cp, pp = (draw(st.sampled_from([1, 1, 2, 4])) for _ in range(3))
    assume(tp * cp * pp <= 16)
    fixed: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": draw(st.sampled_from([d for d in (1, 2, 4, 8, 16) if d * tp * cp * pp <= 16])),
        "micro_batch": draw(st.sampled_from([1, 2])),
        "zero": draw(st.integers(0, 3)),
        "recompute": draw(st.sampled_from(["none", "full", "selective"])),
    }
    if tp > 1:
        fixed["sp"] = draw(st.booleans())
    if sparse:
        fixed["ep"] = draw(st.sampled_from([1, 2, 4]))
        fixed["etp"] = draw(st.sampled_from([1, tp]))
    schedule = draw(st.sampled_from(["1f1b", "gpipe", "zero-bubble", "dualpipe", *CHUNKED])) if pp > 1 else "1f1b"
    if schedule in CHUNKED:
        fixed["chunks"] = 2
    elif pp > 1:
        fixed["stages"] = draw(st.permutations([1, 3, *[2] * (pp - 2)] if pp > 2 else [3, 5]))
        fixed["stages"] = [count + (8 - sum(fixed["stages"])) * (i == 0) for i, count in enumerate(fixed["stages"])]
    most = 8 // (pp * fixed.get("chunks", 1))  # What the largest chunk has at least.
    if fixed["recompute"] == "full" and most > 1 and draw(st.booleans()):
        fixed["recompute_layers"] = draw(st.integers(1, most - 1))
    if fixed["zero"] and draw(st.booleans()):
        fixed["zero_degree"] = 2
    try:
        return plan(fixed, SPARSE if sparse else DENSE, schedule=[schedule])
    except InputError:
        assume(False)
        raise
