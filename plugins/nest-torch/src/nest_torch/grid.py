"""The default grid: sizes of transformers, and sizes that show tiles, waves and latency."""

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest

from nest.units import Bytes
from nest_torch.experiments import Experiment

WIDTHS = (4096, 2048, 8192, 1024, 5120, 12288, 512, 256)
"""Model widths: those of GPT-3's sizes (arXiv 2005.14165, table 2.1) and Llama's (arXiv 2302.13971, table 2)."""

TOKENS = (4096, 1024, 8192, 256, 2048, 16384, 64)
"""Rows of products: tokens of a micro-batch on one device."""

SPLITS = (1, 8)
"""Ways a width is split by tensor parallelism: not at all, over a node."""

SEQUENCES = (2048, 4096, 1024, 8192, 512, 16384, 256)
HEADS = ((32, 8, 128), (32, 32, 128), (16, 16, 64), (40, 40, 96), (8, 8, 256), (4, 4, 64))
"""Query heads, key-value heads and channels: Llama 3's, Llama 2's, GPT-2's, and other widths."""

VOCABULARY = 32_000
"""Rows of Llama 2's vocabulary (arXiv 2307.09288)."""


def default_grid(most_flops: float, most_bytes: float, itemsize: int) -> tuple[Experiment, ...]:
    """Experiments of every kind, taking turns, what tells most first; without those too large for the device.

    Args:
        most_flops: FLOP that one run may take.
        most_bytes: bytes that one run may need.
        itemsize: bytes of an element.
    """
    kinds = (_products(), _attention(), _memory_bound(), _batched(), _others(), _quantisation())

    def small(each: Experiment) -> bool:
        return each.flops <= most_flops and each.held(itemsize) <= most_bytes

    turns = chain.from_iterable(zip_longest(*(filter(small, kind) for kind in kinds)))
    return tuple(_distinct(each for each in turns if each is not None))


def _distinct(experiments: Iterable[Experiment]) -> Iterator[Experiment]:
    seen: set[str] = set()
    for each in experiments:
        if str(each) not in seen:
            seen.add(str(each))
            yield each


def _product(rows: int, columns: int, contracted: int, batch: int = 1) -> Experiment:
    shape: dict[str, int | bool] = {"batch": batch, "rows": rows, "columns": columns, "contracted": contracted}
    return Experiment("matmul", shape)


def _products() -> Iterator[Experiment]:
    """Projections of a block: up, down, square, whole and split, and the vocabulary's."""
    for tokens in TOKENS:
        for width in WIDTHS:
            for split in SPLITS:
                if width // split >= 128:
                    yield _product(tokens, 4 * width // split, width)
                    yield _product(tokens, width, 4 * width // split)
                    yield _product(tokens, width // split, width)
            yield _product(tokens, VOCABULARY, width)


def _batched() -> Iterator[Experiment]:
    """Scores and weighted sums of attention that stores them, and products of experts."""
    for sequence in (1024, 2048, 512, 4096, 256):
        for batch in (32, 8):
            yield _product(sequence, sequence, 128, batch)
            yield _product(sequence, 128, sequence, batch)
    for rows in (512, 2048, 128):
        yield _product(rows, 2048, 1024, 8)


def _attention() -> Iterator[Experiment]:
    for sequence in SEQUENCES:
        for heads, kv_heads, head in HEADS:
            for causal in (True, False):
                shape: dict[str, int | bool] = {"batch": 1, "heads": heads, "kv_heads": kv_heads, "head": head}
                shape |= {"sequence": sequence, "causal": causal}
                yield Experiment("attention", shape, "forward")
                yield Experiment("attention", shape, "backward")


def _memory_bound() -> Iterator[Experiment]:
    for rows in (4096, 1024, 16384, 256):
        for width in (4096, 8192, 1024, 16384):
            shape: dict[str, int | bool] = {"rows": rows, "width": width}
            yield Experiment("norm", shape)
            yield Experiment("elementwise", shape)
            yield Experiment("activation", shape)
            yield Experiment("activation", {**shape, "branches": 2})
            yield Experiment("softmax", shape)
            yield Experiment("embedding", {**shape, "vocab": VOCABULARY})
            yield Experiment("norm", shape, "backward")
            yield Experiment("activation", shape, "backward")


def _others() -> Iterator[Experiment]:
    """Launches, copies from what caches hold to what they do not, optimizer steps."""
    yield Experiment("launch")
    for power in (24, 28, 20, 30, 16, 32):
        yield Experiment("copy", bytes=Bytes(2.0**power))
        yield Experiment("update", {"parameters": 2 ** (power - 4)})


def _quantisation() -> Iterator[Experiment]:
    """Sizes on and off multiples of the tiles of matrix kernels, and tiles on and off multiples of processors."""
    for columns in (4096, 4224, 3968, 4100, 4160, 2112, 1920, 128, 64):
        yield _product(4096, columns, 4096)
    for contracted in (64, 128, 192, 256, 512, 1000, 16384):
        yield _product(4096, 4096, contracted)
    for rows in (16, 128, 192, 1000, 1152, 3000, 6144):
        yield _product(rows, 4096, 4096)
