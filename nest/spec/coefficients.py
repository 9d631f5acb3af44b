"""How far operators on a device stay below its roofs: the coefficients that a calibration fits.

Every coefficient has bounds it never leaves, and a prior to which a fit returns where measurements say nothing. Left
out, each has the value that switches its term off, and the cost model is the plain roofline.
docs/explanation/cost-model.md has the formulas.
"""

from typing import Any

from attrs import field, frozen
from attrs import fields as attributes

from nest.spec.validators import between


@frozen
class Range:
    """What a calibration may make of a number.

    Attributes:
        low: the least it can physically be.
        high: the most.
        prior: what it is taken to be where nothing was measured.
        spread: how far from the prior it may be expected to lie: the standard deviation of its logarithm.
    """

    low: float
    high: float
    prior: float
    spread: float


def _coefficient(off: float, low: float, high: float, prior: float, spread: float) -> Any:
    """A coefficient that is `off` when left out."""
    least, most = min(low, off), max(high, off)
    return field(default=off, validator=between(least, most), metadata={"range": Range(low, high, prior, spread)})


@frozen
class Coefficients:
    """Terms of the cost model beside the roofs (docs/explanation/cost-model.md).

    Attributes:
        sustained: share of the matrix peaks that clocks and power of this very device allow, relative to others of its
            generation; above 1 for one that runs faster.
        contracted_half: contracted elements that take as long as filling and draining a tile of a matrix product: a
            product of that depth takes twice as long as its FLOP alone.
        rows_half: rows (tokens) at which a matrix product takes twice as long as its FLOP alone.
        grouped: share of a matrix product's speed that products with one matrix per expert reach.
        attention_backward: speed of the backward pass of a fused attention kernel over that of the forward pass.
        head_half: channels per head at which fused attention runs at half its speed.
        sequence_half: keys at which it does.
        shared_keys: exponent by which fused attention runs faster where several query heads share a key-value head:
            speed grows by `(heads / key-value heads) ** shared_keys`.
        cast: times the operands of a product in 8 or 4 bits pass through memory once more to be converted.
        host_launch: seconds the host takes to launch an operator's kernels, in each direction: a layer takes no less
            than its operators together.
        tensor_exposed: share of a layer's collectives that `training.overlap.tensor` does not hide.
        experts_exposed: share of what experts exchange that `training.overlap.experts` does not hide.
        dispatch_exposed: the same with `training.dispatch: per-node`, whose kernels keep fewer multiprocessors busy.
        ring_exposed: share of what rings under attention send that attention does not hide.
        data_exposed: share of what data parallelism sends once per batch that `training.overlap.data` does not hide.
        gathers_exposed: share of what ZeRO 2 and 3 send in every micro-batch that it does not hide.
        synchronisation: seconds that gradients and weights take once per batch, where `training.overlap.data` hides
            none, over those of the collective model: ranks out of step, many small buckets, several groups on one link.
        sharded_synchronisation: what it is multiplied by where the optimizer's state is sharded (ZeRO 1 and up):
            frameworks then exchange parameters one by one, or gradients in single precision.
    """

    sustained: float = _coefficient(1.0, 0.7, 1.3, 1.0, 0.08)
    contracted_half: float = _coefficient(0.0, 1.0, 2000.0, 150.0, 1.2)
    rows_half: float = _coefficient(0.0, 1.0, 1000.0, 50.0, 1.0)
    grouped: float = _coefficient(1.0, 0.2, 1.0, 0.75, 0.3)
    attention_backward: float = _coefficient(1.0, 0.3, 1.5, 0.75, 0.1)
    head_half: float = _coefficient(0.0, 1.0, 128.0, 10.0, 0.7)
    sequence_half: float = _coefficient(0.0, 1.0, 2048.0, 100.0, 1.0)
    shared_keys: float = _coefficient(0.0, 0.01, 0.4, 0.1, 0.1)
    cast: float = _coefficient(0.0, 0.1, 8.0, 2.0, 0.5)
    host_launch: float = _coefficient(0.0, 1e-6, 1e-4, 1e-5, 0.5)
    tensor_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.2, 0.7)
    experts_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.55, 0.4)
    dispatch_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.2, 0.7)
    ring_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.1, 0.7)
    data_exposed: float = _coefficient(0.0, 0.005, 1.0, 0.1, 0.7)
    gathers_exposed: float = _coefficient(0.0, 0.005, 1.0, 0.1, 0.7)
    synchronisation: float = _coefficient(1.0, 0.5, 6.0, 1.3, 0.6)
    sharded_synchronisation: float = _coefficient(1.0, 0.5, 6.0, 1.2, 0.6)


def ranges() -> dict[str, Range]:
    """The range of each coefficient, by name, in the order of `Coefficients`."""
    return {each.name: each.metadata["range"] for each in attributes(Coefficients)}
