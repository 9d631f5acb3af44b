"""What leaves the device for its host, and what the way there and back costs (`training.offload`)."""

from attrs import frozen

from nest.catalogue import Optimizer, Precision
from nest.errors import InputError
from nest.spec import DeviceSpec, Training

OPTIMIZER, ACTIVATIONS = "optimizer", "activations"
"""What `training.offload` may list."""

LINK_SHARE = "host"
"""The key of a device's `efficiency` for its link to the host."""


@frozen
class Host:
    """The host as one device sees it.

    Attributes:
        bandwidth: bytes per second that the link reaches in one direction while the other is idle or busy.
        memory_bandwidth: bytes per second of host memory, the device's share; None: not needed.
        holds: what is kept there.
    """

    bandwidth: float
    memory_bandwidth: float | None
    holds: frozenset[str]

    @property
    def holds_optimizer(self) -> bool:
        """Whether the optimizer's state is kept there and its step is taken there."""
        return OPTIMIZER in self.holds

    @property
    def holds_activations(self) -> bool:
        """Whether stages may keep activations there."""
        return ACTIVATIONS in self.holds

    def update_seconds(self, precision: Precision, optimizer: Optimizer) -> float:
        """Seconds per parameter of a step taken on the host.

        The gradients come down, the host's memory moves what a step reads and writes, and the weights go up
        (ZeRO-Offload, arXiv 2101.06840, sections 3 and 5), one after the other: an upper bound, since frameworks let
        them overlap. As in the paper every rank brings its share only, so that ZeRO divides all three.
        """
        assert self.memory_bandwidth is not None
        moved = (precision.gradients + precision.weights) / self.bandwidth
        return moved + optimizer.update_bytes(precision) / self.memory_bandwidth

    def exposed_seconds(self, saved: float, forward: float, backward: float) -> float:
        """Seconds that a layer waits for its activations: what does not hide under its own two passes.

        They leave while the next layers run forward, and come back while the layers in front of them run backward
        (vDNN, arXiv 1602.08124, section 3); in a run of equal layers that is as long as the layer itself.

        Args:
            saved: bytes that the layer keeps for the backward pass.
            forward: seconds of the layer's forward pass.
            backward: seconds of its backward pass.
        """
        transfer = saved / self.bandwidth
        return max(0.0, transfer - forward) + max(0.0, transfer - backward)


def host(device: DeviceSpec, training: Training) -> Host | None:
    """The host of `device`; None when nothing is kept there.

    Raises:
        InputError: a figure of the device that is needed is missing.
    """
    if not training.offload:
        return None
    needed = {"host_bandwidth": device.host_bandwidth}
    if OPTIMIZER in training.offload:
        needed["host_memory_bandwidth"] = device.host_memory_bandwidth
    for key, value in needed.items():
        if value is None:
            raise InputError(
                f"training.offload needs cluster.device.{key}, which is not known of {device.name!r}; write the "
                f"device's figures in place, with `{key}`, or leave training.offload out."
            )
    assert device.host_bandwidth is not None
    share = device.efficiency.get(LINK_SHARE, 1.0)
    return Host(device.host_bandwidth * share, device.host_memory_bandwidth, frozenset(training.offload))
