"""Hypothesis strategies for the records of problem and plan files."""

from typing import Any

from hypothesis import strategies as st

from nest.spec import (
    ClusterSpec,
    DeviceSpec,
    Fixed,
    LevelSpec,
    MatrixPeaks,
    MlaSpec,
    Overlap,
    Problem,
    ProfileCandidate,
    ProfileGroup,
    ProfileRecompute,
    ProfileSpec,
    Search,
    Training,
    TransformerSpec,
)
from nest.spec.device import ENGINES
from nest.spec.problem import RANK_ORDERS
from nest.spec.training import MOST_SAMPLES, PRECISIONS

words = st.text("abc xyz.0-_é'\"#:\\", min_size=1, max_size=8)
"""Names, some of which need quotes in YAML and TOML."""

counts = st.integers(1, 2**53)
small = st.integers(1, 16)
sizes = st.just(0.0) | st.floats(1e-30, 1e30)
positive = st.floats(1e-30, 1e30)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def some(strategy: st.SearchStrategy[Any], most: int = 3, **more: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=1, max_size=most, **more).map(tuple)


levels = st.builds(
    LevelSpec, counts, bandwidth=optional(positive), latency=optional(sizes), name=optional(words), link=optional(words)
)
engines = st.sampled_from([("matrix",), ("communication", "matrix"), ENGINES])
devices = st.builds(
    DeviceSpec,
    name=words,
    memory=positive,
    memory_bandwidth=positive,
    peak=st.builds(MatrixPeaks, fp32=optional(positive), bf16=optional(positive)),
    efficiency=st.dictionaries(words, st.floats(0.1, 1), max_size=2),
    launch_overhead=sizes,
    sources=st.lists(words, max_size=2).map(tuple),
    engines=engines,
)
clusters = st.builds(
    ClusterSpec,
    levels=optional(some(levels)),
    device=optional(words | devices),
    memory=optional(positive),
    reserve=sizes,
    topology=optional(words),
    name=optional(words),
    engines=optional(engines),
)
transformers = st.builds(
    TransformerSpec,
    layers=counts,
    hidden=counts,
    ffn=counts,
    heads=counts,
    vocab=counts,
    kv_heads=optional(counts),
    gated_mlp=st.booleans(),
    mla=optional(st.builds(MlaSpec, optional(counts), counts, counts, counts, counts)),
)
configurations = st.dictionaries(
    words.filter(lambda word: word != "transformer"),
    st.integers() | words | st.booleans() | st.lists(small),
    max_size=3,
)


@st.composite
def profiles(draw: st.DrawFn) -> ProfileSpec:
    layers = draw(some(words, unique=True))
    count = len(layers)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = tuple(draw(st.lists(st.sampled_from(pairs), max_size=3, unique=True))) if pairs else ()

    def array(length: int) -> st.SearchStrategy[tuple[float, ...]]:
        return st.lists(sizes, min_size=length, max_size=length).map(tuple)

    per_layer = array(count)
    group = st.builds(ProfileGroup, some(st.integers(0, 7), unique=True), *[per_layer] * 4)
    mode = st.builds(ProfileRecompute, *[per_layer] * 4, st.booleans())
    candidate = st.builds(
        ProfileCandidate,
        name=words,
        width=counts,
        samples=st.just(1),
        forward=per_layer,
        backward=per_layer,
        state=st.dictionaries(words, group, max_size=2),
        recompute=st.dictionaries(words, mode, min_size=1, max_size=2),
        edge_bytes=array(len(edges)),
        degrees=st.dictionaries(words, small, max_size=2),
    )
    return ProfileSpec(layers, edges, draw(some(candidate, 2)))


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    batch = draw(st.integers(1, MOST_SAMPLES))
    return Training(
        global_batch=batch,
        sequence_length=draw(counts),
        micro_batch=draw(optional(some(st.integers(1, batch)))),
        precision=draw(st.sampled_from(PRECISIONS)),
        optimizer=draw(words),
        schedule=draw(some(words)),
        uneven_batch=draw(st.booleans()),
        exposed=draw(optional(st.floats(0, 1))),
        hiding=draw(optional(st.booleans())),
        overlap=draw(st.builds(Overlap, st.booleans(), st.booleans(), st.booleans())),
        attention=draw(st.sampled_from(["flash", "unfused"])),
        selective=tuple(draw(st.lists(words, max_size=2))),
    )


searches = st.builds(
    Search,
    rank_order=some(st.sampled_from(RANK_ORDERS)),
    zero=some(st.integers(0, 3)),
    recompute=optional(some(words)),
    mixed=st.booleans(),
    zero_degree=some(small | st.just("all")),
)
stages = some(some(words)) | some(st.integers(0, 99))
fixed = st.builds(
    Fixed,
    st.dictionaries(words.filter(lambda word: word != "stages"), small | st.booleans() | words | positive, max_size=3),
    optional(stages),
)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    measured = draw(st.booleans())
    return Problem(
        nest=1,
        training=draw(trainings()),
        cluster=draw(clusters),
        model=None if measured else draw(words | transformers | configurations),
        profile=draw(words | profiles()) if measured else None,
        strategies=draw(st.dictionaries(words, some(small | st.booleans()), max_size=2)),
        search=draw(searches),
        constraints=tuple(draw(st.lists(words, max_size=2))),
        fixed=draw(optional(fixed)),
        costs=draw(optional(words)),
        collectives=draw(optional(words)),
        layer_times=draw(optional(words)),
    )
