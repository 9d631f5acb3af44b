"""How far what is measured of a plan lies from what is estimated: of memory, and of the batch time."""

from math import exp, log
from statistics import NormalDist

from attrs import field, frozen, validators


@frozen
class EstimateError:
    """What is needed over what is estimated, log-normal, as fitted to measured runs.

    Attributes:
        median: of what is needed (bytes, or seconds) over what is estimated.
        spread: the standard deviation of its logarithm.
    """

    median: float = field(validator=validators.gt(0))
    spread: float = field(validator=validators.gt(0))

    def factor(self, risk: float) -> float:
        """What is needed over what is estimated, exceeded with probability `risk`, between 0 and 1."""
        return self.median * exp(self.spread * NormalDist().inv_cdf(1 - risk))

    def within(self, share: float) -> float:
        """The probability that no more than `share` times the estimate is needed."""
        return NormalDist().cdf(log(share / self.median) / self.spread) if share > 0 else 0.0
