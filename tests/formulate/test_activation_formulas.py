"""Activation bytes of GPT blocks, against Korthikanti et al., arXiv 2205.05198, term by term, for many sizes.

The paper counts per layer, in bytes, with `s` tokens, `b` samples, `h` channels, `a` heads and `t` ranks:

    attention     2sbh input of the products for queries, keys and values; 4sbh queries and keys; 2sbh values;
                  2as^2b result of the softmax; as^2b mask of its dropout; 2as^2b result of its dropout;
                  2sbh input of the output projection; sbh mask of the dropout behind it
    feed-forward  2sbh input of the first product; 8sbh input of the activation; 8sbh input of the second product;
                  sbh mask of the dropout behind it
    norms         4sbh inputs of the two

nest models no dropout, as the models of the last years have none. The masks go. So does the result of the softmax's
dropout: without it the softmax's own result multiplies the values, and is kept once. Nothing else differs.
"""

import doctest
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.formulate import recompute
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import RecomputeMode
from nest.spec import ClusterSpec, LevelSpec, Problem, Training
from tests.bare_devices import bare


@frozen
class Size:
    """A GPT block and how it is split: `s`, `b`, `h`, `a`, `t` of the paper."""

    s: int
    b: int
    h: int
    a: int
    t: int

    @property
    def stream(self) -> float:
        """`sbh`."""
        return float(self.s * self.b * self.h)

    @property
    def scores(self) -> float:
        """`as^2b`."""
        return float(self.a * self.s**2 * self.b)


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    t = draw(st.sampled_from([1, 2, 4, 8]))
    heads = t * draw(st.integers(1, 4))
    width = heads * draw(st.sampled_from([8, 24, 64]))
    return Size(t * draw(st.integers(1, 40)), draw(st.integers(1, 4)), width, heads, t)


def block_modes(size: Size, sequence_parallel: bool, **training: Any) -> dict[str, RecomputeMode]:
    """What the candidate split over `t` ranks says; the second layer is the first transformer block."""
    config = {
        "model_type": "gpt2",
        "vocab_size": 128,
        "n_embd": size.h,
        "n_layer": 2,
        "n_head": size.a,
        "n_positions": size.s,
        "n_inner": None,
    }
    asked = Problem(
        nest=1,
        model=config,
        training=Training(
            global_batch=size.b, sequence_length=size.s, micro_batch=(size.b,), **{"attention": "unfused", **training}
        ),
        cluster=ClusterSpec(device=bare("a100-sxm-80g"), levels=(LevelSpec(fanout=8, link="nvlink3"),)),
        strategies={"tp": (size.t,), "sp": (size.t if sequence_parallel else 1,)},
    )
    (found,) = build_instance(asked, registry()).candidates
    return {mode.name: mode for mode in found.recompute}


def dropout(size: Size, shared: float, split: float) -> float:
    """What the paper counts for dropout: two masks of the stream, and mask and result of the attention's."""
    return 2 * size.stream / shared + 3 * size.scores / split


def test_the_published_form_beside_the_code_holds() -> None:
    assert doctest.testmod(recompute) == (0, 8)


@settings(max_examples=16)
@given(size=sizes())
def test_tensor_parallelism_keeps_what_table_2_counts(size: Size) -> None:
    """`sbh(10 + 24/t + 5as/(ht))`; with one rank `sbh(34 + 5as/h)`."""
    published = size.stream * (10 + 24 / size.t) + 5 * size.scores / size.t
    modes = block_modes(size, sequence_parallel=False)
    assert modes["none"].first[1] == published - dropout(size, 1, size.t)
    assert modes["none"].more[1] == modes["none"].first[1]


@settings(max_examples=16)
@given(size=sizes())
def test_sequence_parallelism_keeps_what_table_2_counts(size: Size) -> None:
    """`sbh(34/t + 5as/(ht))`."""
    published = size.stream * 34 / size.t + 5 * size.scores / size.t
    assert block_modes(size, sequence_parallel=True)["none"].first[1] == published - dropout(size, size.t, size.t)


@pytest.mark.longer
@settings(max_examples=16)
@given(size=sizes(), sequence_parallel=st.booleans())
def test_selective_recomputation_keeps_what_table_2_counts(size: Size, sequence_parallel: bool) -> None:
    """`34sbh/t` with sequence parallelism (and `sbh(10 + 24/t)` without): all of the core goes, its dropout too."""
    shared = size.t if sequence_parallel else 1
    published = size.stream * (10 / shared + 24 / size.t)
    masks = 2 * size.stream / shared
    selective = block_modes(size, sequence_parallel)["selective"]
    assert selective.first[1] == published - masks
    # While the block runs backward the result of the softmax is back.
    assert selective.peak[1] >= 2 * size.scores / size.t


@settings(max_examples=16)
@given(size=sizes(), sequence_parallel=st.booleans())
def test_full_recomputation_keeps_the_input_of_the_layer(size: Size, sequence_parallel: bool) -> None:
    """`2sbh` (section 5), divided by sequence parallelism, and no dropout in it."""
    full = block_modes(size, sequence_parallel)["full"]
    assert full.first[1] == 2 * size.stream / (size.t if sequence_parallel else 1)


@settings(max_examples=16)
@given(size=sizes(), sequence_parallel=st.booleans())
def test_a_stage_keeps_nothing_per_layer_for_micro_batches_that_wait(size: Size, sequence_parallel: bool) -> None:
    modes = block_modes(size, sequence_parallel)
    assert modes["stage"].first[1] == modes["none"].first[1]
    assert modes["stage"].more[1] == 0
    assert modes["stage"].stash_inputs


@settings(max_examples=8)
@given(size=sizes())
def test_norms_run_again_by_name_spare_the_inputs_of_the_products_behind_them(size: Size) -> None:
    """Megatron-LM's `--recompute-modules layernorm`: `2sbh` in front of the attention and of the feed-forward part."""
    by_name = block_modes(size, True, selective=("attention_norm", "mlp_norm"))
    assert by_name["none"].first[1] - by_name["selective"].first[1] == 4 * size.stream / size.t


@settings(max_examples=8)
@given(size=sizes())
def test_the_feed_forward_part_run_again_keeps_its_input_only(size: Size) -> None:
    """Megatron-LM's `--recompute-modules mlp`: `8sbh + 8sbh` go, whether its last product is named or not."""
    kept = [
        block_modes(size, True, selective=names)["selective"].first[1]
        for names in (("mlp_up", "mlp_activated", "mlp_down"), ("mlp_up", "mlp_activated"))
    ]
    whole = size.stream * 32 / size.t + 2 * size.scores / size.t
    assert kept == [whole - 16 * size.stream / size.t] * 2
