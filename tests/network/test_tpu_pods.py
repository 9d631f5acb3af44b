"""All-reduces over TPU slices against the all-reduce bandwidth that Google publishes for whole pods.

That figure is the sum over the chips of a pod of what each sends (or receives) per second: for v5e it is 256 chips
times 4 links times 50 GB/s, the chip's 1,600 Gbit/s of the same page. So a slice has its part of the pod's.

* v4: 1.1 PB/s of 4,096 chips, https://docs.cloud.google.com/tpu/docs/v4, key specifications. That is 269 GB/s a chip:
  six links at the 45 of 50 GB/s that the catalogue has from measurements (`ici-v4`).
* v5e: 51.2 TB/s of 256 chips, https://cloud.google.com/tpu/docs/v5e, pod specifications.
* v5p: no figure of a pod; 4,800 Gbit/s a chip, https://cloud.google.com/tpu/docs/v5p, key specifications.
"""

from math import prod

import pytest

from nest.catalogue import link
from nest.network import network_model
from nest.network.graph import grid

BUFFER = 16e9


@pytest.mark.parametrize(
    ("shape", "ici", "of_nominal", "published"),
    [
        ((8, 8, 8), "ici-v4", link("ici-v4").efficiency, 1.1e15 * 512 / 4096),
        ((4, 4, 4), "ici-v4", link("ici-v4").efficiency, 1.1e15 * 64 / 4096),
        ((16, 16), "ici-v5e", 1.0, 51.2e12),
        pytest.param((8, 8, 16), "ici-v5p", 1.0, 1024 * 4800e9 / 8, marks=pytest.mark.slow),
    ],
)
def test_an_all_reduce_over_a_slice_has_its_part_of_the_pods(
    shape: tuple[int, ...], ici: str, of_nominal: float, published: float
) -> None:
    bandwidth, latency = link(ici).bandwidth, link(ici).latency
    assert bandwidth is not None
    assert latency is not None
    each = bandwidth * of_nominal / (2 * len(shape))
    slice_ = network_model(grid(shape, [True] * len(shape), each, latency), all_ports=True)
    count = prod(shape)
    ring = max(slice_.rings(range(count)), key=lambda found: found.bandwidth)
    seconds = 2 * ((count - 1) * ring.latency + (count - 1) / count * BUFFER / ring.bandwidth)
    sent = count * 2 * (count - 1) / count * BUFFER
    assert sent / seconds == pytest.approx(published, rel=0.1)
    alone = network_model(grid(shape, [True] * len(shape), each, latency))
    (ring,) = alone.rings(range(count))
    assert sent / (2 * BUFFER / ring.bandwidth) < 0.5 * published  # One port at a time does not come near.
