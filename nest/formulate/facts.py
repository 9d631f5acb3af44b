"""What reports need to know of a model beside its layers' costs."""

from nest.catalogue import precision
from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.describe import describe
from nest.formulate.sources import load_model
from nest.hooks.registry import Registry
from nest.spec import DeviceSpec, Problem


def model_facts(problem: Problem, known: Registry) -> tuple[int, float, float] | None:
    """Tokens per sample, forward model FLOP per token, a device's matrix peak (FLOP/s); None for a profile."""
    if problem.model is None:
        return None
    training = problem.training
    described = describe(load_model(problem.model, training, None, known), training)
    _, device = build_cluster(problem.cluster, known, None)
    if device is None:
        return None
    return described["sequence_length"], described["flops_per_token"], matrix_peak(device, training.precision)


def matrix_peak(device: DeviceSpec, precision_name: str) -> float:
    """Peak of the first number format of a precision that the device has, FLOP per second.

    Raises:
        InputError: the device has none of them.
    """
    for number_format in precision(precision_name).products:
        peak: float | None = getattr(device.peak, number_format)
        if peak is not None:
            return peak
    raise InputError(f"cluster.device: {device.name!r} has no matrix peak for training.precision {precision_name}.")
