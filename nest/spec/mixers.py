"""Mixers with a state, or a few tokens, in place of keys, by their widths."""

from attrs import frozen

from nest.records import Record


@frozen(repr=False)
class DeltaNet(Record):
    """Gated delta net: attention with a state that a delta rule updates (arXiv 2412.06464).

    Attributes:
        heads: heads of values, each with a state of `key` times `value` numbers.
        key_heads: heads of queries and keys, which value heads share.
        key: channels of each query and key.
        value: channels of each value.
        taps: tokens of the convolution over queries, keys and values.
        rank: rank of decays for each key channel and of output gates (Kimi Linear, arXiv 2510.26692); 0: these are
            not compressed (Ling 3); None: each head decays by one number.
    """

    heads: int
    key_heads: int
    key: int
    value: int
    taps: int
    rank: int | None = None


@frozen(repr=False)
class StateSpace(Record):
    """State space layer Mamba-2 (arXiv 2405.21060).

    Attributes:
        heads: heads, each with a state of `head` times `state` numbers.
        head: channels per head.
        groups: groups of heads that share their input and output matrices.
        state: state numbers per channel.
        taps: tokens of the convolution.
        chunk: tokens that are multiplied at once.
        bias: whether the input projection has a bias.
        output_bias: whether the output projection has one.
        taps_bias: whether the convolution has one.
        normalised: whether the gated result is normalised.
    """

    heads: int
    head: int
    groups: int
    state: int
    taps: int
    chunk: int
    bias: bool = False
    output_bias: bool = False
    taps_bias: bool = True
    normalised: bool = True


@frozen(repr=False)
class SelectiveScan(Record):
    """State space layer Mamba (arXiv 2312.00752).

    Attributes:
        inner: channels, each with a state of its own.
        state: state numbers per channel.
        rank: rank of the time steps.
        taps: tokens of the convolution.
        bias: whether the projections of input and output have biases.
        taps_bias: whether the convolution has one.
        normalised: whether time steps and matrices are normalised (Jamba, arXiv 2403.19887).
    """

    inner: int
    state: int
    rank: int
    taps: int
    bias: bool = False
    taps_bias: bool = True
    normalised: bool = False


@frozen(repr=False)
class LinearAttention(Record):
    """Attention without softmax, with decays that are not learned (Lightning attention, arXiv 2401.04658).

    Attributes:
        heads: heads, each with a state of `head` times `head` numbers.
        head: channels per head.
        chunk: tokens that are multiplied at once.
    """

    heads: int
    head: int
    chunk: int


@frozen(repr=False)
class ShortConvolution(Record):
    """Convolution over a few tokens between two gates (LFM2).

    Attributes:
        inner: channels.
        taps: tokens of the convolution.
        bias: whether the projections and the convolution have biases.
    """

    inner: int
    taps: int
    bias: bool = False


Stateful = DeltaNet | StateSpace | SelectiveScan | LinearAttention | ShortConvolution
"""Mixers with a state, or a few tokens, in place of keys."""
