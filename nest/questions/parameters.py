"""What can be varied in a problem: bandwidths, memory, peak compute, devices, the global batch."""

from collections.abc import Iterator
from math import prod

from attrs import asdict, evolve

from nest.catalogue import network_levels
from nest.formulate.cluster import build_cluster, described
from nest.formulate.model import matrix_peak
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.questions.links import bandwidths, with_levels
from nest.questions.parameter import Parameter
from nest.spec import ClusterSpec, DeviceSpec, Problem, ProfileSpec
from nest.spec.cluster import MatrixPeaks
from nest.units import Bytes

__all__ = ["Parameter", "parameters"]


def parameters(problem: Problem, known: Registry) -> tuple[Parameter, ...]:
    """What can be varied in a self-contained problem, in the order in which tables show it.

    * the bandwidth of each level that messages cross, or of each class of equal links (`nest.questions.links`);
    * the memory of a device, the reserve included;
    * the peak of a device's matrix products, of all number formats alike; its value is that of the one trained in.
      None where a profile states the times;
    * the devices of the cluster: groups of its outermost level, where levels say what the network is;
    * the global batch.

    Latencies are not among them: those of most levels are their link's, part of the lines that were measured with it.

    Args:
        problem: its files read into it (`nest.formulate.problem`).
        known: offers topology importers.

    Raises:
        InputError: its cluster cannot be used.
    """
    cluster, device = build_cluster(problem.cluster, known)
    found = [*bandwidths(problem.cluster, known)]
    found.append(Parameter("memory", cluster.device_memory, "bytes", with_memory, at_least=cluster.reserve))
    if problem.model is not None and device is not None:
        peak = matrix_peak(device, problem.training.precision)
        found.append(Parameter("peak compute", peak, "FLOP/s", _with_peak))
    found += _devices(problem.cluster)
    batch = problem.training.global_batch
    found.append(Parameter("global batch", batch, "samples", _with_batch, multiple_of=1))
    return tuple(found)


def with_memory(problem: Problem, value: float) -> Problem:
    return evolve(problem, cluster=evolve(problem.cluster, memory=Bytes(value)))


def _with_peak(problem: Problem, value: float) -> Problem:
    cluster = with_levels(problem.cluster)
    device = _device(cluster)
    scale = value / matrix_peak(device, problem.training.precision)
    peaks = {name: None if peak is None else peak * scale for name, peak in asdict(device.peak).items()}
    return evolve(problem, cluster=evolve(cluster, device=evolve(device, peak=MatrixPeaks(**peaks))))


def _device(cluster: ClusterSpec) -> DeviceSpec:
    assert cluster.device is not None
    return described(cluster.device)


def _devices(cluster: ClusterSpec) -> Iterator[Parameter]:
    levels = with_levels(cluster).levels
    if levels is not None:
        inside = prod(level.fanout for level in levels[:-1])
        yield Parameter("devices", inside * levels[-1].fanout, "devices", _with_devices, multiple_of=inside)


def _with_devices(problem: Problem, value: float) -> Problem:
    """The problem on so many devices: its outermost level has more or fewer groups, its machines have no names.

    Candidates of a profile whose blocks cannot be aligned there are left out.
    """
    cluster = with_levels(problem.cluster)
    levels = cluster.levels or ()
    size, inside = (prod(level.fanout for level in part) for part in (levels, levels[:-1]))
    outermost = evolve(levels[-1], fanout=int(value) // inside)
    each = (
        size // len(cluster.hosts) if cluster.hosts and cluster.devices_per_host is None else cluster.devices_per_host
    )
    changed = evolve(cluster, levels=(*levels[:-1], outermost), hosts=None, devices_per_host=each)
    profile = problem.profile
    if isinstance(profile, ProfileSpec):
        network = Cluster(network_levels(changed.levels or ()), memory=1.0)
        fitting = tuple(candidate for candidate in profile.candidates if network.admits(candidate.width))
        profile = evolve(profile, candidates=fitting or profile.candidates)
    return evolve(problem, cluster=changed, profile=profile)


def _with_batch(problem: Problem, value: float) -> Problem:
    """The problem with another global batch, without micro-batches that are larger."""
    batch = int(value)
    sizes, profile = problem.training.micro_batch, problem.profile
    if sizes is not None:
        sizes = tuple(size for size in sizes if size <= batch) or sizes
    if isinstance(profile, ProfileSpec):
        smaller = tuple(each for each in profile.candidates if each.samples <= batch)
        profile = evolve(profile, candidates=smaller or profile.candidates)
    training = evolve(problem.training, global_batch=batch, micro_batch=sizes)
    return evolve(problem, training=training, profile=profile)
