"""How much of data-parallel communication shows in the times of plans."""

from attrs import frozen

from nest.spec import Coefficients, DeviceSpec, Problem


@frozen
class Exposure:
    """How much of data-parallel communication shows.

    Attributes:
        exposed: its share that shows at least.
        hiding: whether the rest hides only where it fits.
        synchronisation: seconds of what is sent once per batch over those of the collective model.
        sharded_synchronisation: what that is multiplied by with ZeRO 1 and up.
        exposed_often: that of what ZeRO 2 and 3 send in every micro-batch; None: the same.
    """

    exposed: float
    hiding: bool
    synchronisation: float
    sharded_synchronisation: float
    exposed_often: float | None = None


def data_parallel_exposure(problem: Problem, device: DeviceSpec | None) -> Exposure:
    """What the problem says of it; of a model, what it leaves out its device's calibration says.

    Where a framework is said to overlap it (`overlap.data`), a model's hides under its compute as far as that lasts,
    but for the share that a calibration found to show; where it is not, ranks wait for each other. A profile keeps the
    constants of PROBLEM.md section 4 unless it asks for others.
    """
    training = problem.training
    exposed, often, hiding, waiting, sharded = training.exposed_share, None, False, 1.0, 1.0
    if problem.model is not None and training.exposed is None:
        terms = Coefficients() if device is None else device.calibration
        hiding = bool(training.overlap.data)
        exposed = terms.data_exposed if hiding else 1.0
        often = terms.gathers_exposed if hiding else None
        if not hiding and training.synchronisation is None:
            waiting, sharded = terms.synchronisation, terms.sharded_synchronisation
    return Exposure(
        exposed,
        hiding if training.hiding is None else training.hiding,
        waiting if training.synchronisation is None else training.synchronisation,
        sharded if training.sharded_synchronisation is None else training.sharded_synchronisation,
        often,
    )
