"""By how much plans must differ for predictions to tell which one is faster."""

from nest.catalogue import time_spread
from nest.spec import PlanDocument


def apart(plan: PlanDocument) -> float:
    """The least share of the batch time by which another plan of one cluster is known to be slower; 0: any is.

    Times of measured layers are taken as they are.
    """
    return 0.0 if plan.batch_time_range is None else time_spread().apart
