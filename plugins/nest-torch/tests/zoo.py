"""Small modules of many kinds, some of which plans train wrongly or not at all: 16 rows of 8 token ids go in.

Each is for `nest_torch.plan`, `apply` and one process alike; `test_zoo.py` says which plans each is tried with.
"""

import random
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from modules import Gpt, Llama

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH = 32, 4, 4, 64, 8
CHANNELS = WIDTH // HEADS


class Norm(nn.Module):
    """RMS norm, plain or with the weight counted from 1, as Gemma's."""

    def __init__(self, width=WIDTH, offset=0.0):
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.empty(width)), offset
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.constant_(self.weight, 1.0 - self.offset)

    def forward(self, source):
        return source * torch.rsqrt(source.pow(2).mean(-1, keepdim=True) + 1e-6) * (self.offset + self.weight)


class Attention(nn.Module):
    """Attention with what makes trouble: a `kind` of its own."""

    def __init__(self, kind=""):
        super().__init__()
        self.kind, self.heads = kind, HEADS
        self.kv_heads = 2 if kind == "grouped" else HEADS
        if kind == "fused":
            self.qkv, self.size = nn.Linear(WIDTH, 3 * WIDTH), WIDTH
        else:
            self.query = nn.Linear(WIDTH, WIDTH)
            self.key = nn.Linear(WIDTH, self.kv_heads * CHANNELS)
            self.value = nn.Linear(WIDTH, self.kv_heads * CHANNELS)
        self.out = nn.Linear(WIDTH, WIDTH)
        if kind == "norms":
            self.query_norm, self.key_norm = Norm(), Norm()
        if kind == "grouped":
            self.query_norm = Norm(CHANNELS)
        if kind == "scaled":
            self.scale = nn.Parameter(torch.ones(()))

    def forward(self, source, bias=None, memory=None):
        batch, tokens, width = source.shape
        if self.kind == "fused":
            query, key, value = self.qkv(source).split(self.size, dim=2)
        else:
            seen = source if memory is None else memory
            query, key, value = self.query(source), self.key(seen), self.value(seen)
        if self.kind == "norms":
            query, key = self.query_norm(query), self.key_norm(key)
        if self.kind == "literal":
            query, key, value = (each.view(batch, tokens, 4, 8).transpose(1, 2) for each in (query, key, value))
        elif self.kind == "inferred":
            query, key, value = (each.view(batch, -1, 4, 8).transpose(1, 2) for each in (query, key, value))
        else:
            query = query.view(batch, tokens, self.heads, CHANNELS).transpose(1, 2)
            key, value = (each.view(batch, -1, self.kv_heads, CHANNELS).transpose(1, 2) for each in (key, value))
        if self.kind == "grouped":
            query = self.query_norm(query)
        if self.kind == "scaled":
            query = query * self.scale
        mixed = functional.scaled_dot_product_attention(
            query, key, value, bias, is_causal=bias is None and memory is None, enable_gqa=self.kind == "grouped"
        )
        return self.out(
            mixed.transpose(1, 2).reshape(batch, tokens if self.kind != "inferred" else -1, width)
            if self.kind in ("literal", "inferred")
            else mixed.transpose(1, 2).reshape(batch, tokens, -1)
        )


class Feed(nn.Module):
    """A feed-forward network, plain, gated in one product, with a norm inside, or a mixture."""

    def __init__(self, kind=""):
        super().__init__()
        self.kind = kind
        if kind == "mixture":
            self.router = nn.Linear(WIDTH, 3)
            self.ups = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(3))
            self.downs = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(3))
            return
        self.up = nn.Linear(WIDTH, (4 if kind == "gated" else 2) * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        if kind == "norm":
            self.norm = Norm(2 * WIDTH)
        self.dropout = nn.Dropout(0.2 if kind == "dropout" else 0.0)

    def forward(self, source):
        if self.kind == "mixture":
            shares = self.router(source).softmax(-1)
            rows = (down(functional.gelu(up(source))) for up, down in zip(self.ups, self.downs, strict=True))
            return sum(shares[..., index : index + 1] * each for index, each in enumerate(rows))
        if self.kind == "gated":
            gate, up = self.up(source).chunk(2, -1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.gelu(self.up(source))
        if self.kind == "norm":
            inner = self.norm(inner)
        return self.dropout(self.down(inner))


class Block(nn.Module):
    def __init__(self, attention="", feed="", offset=0.0):
        super().__init__()
        self.norm, self.norm2 = Norm(offset=offset), Norm(offset=offset)
        self.attention, self.feed = Attention(attention), Feed(feed)

    def forward(self, source, bias=None):
        source = source + self.attention(self.norm(source), bias)
        return source + self.feed(self.norm2(source))


class Decoder(nn.Module):
    """An embedding, blocks, a norm and a head."""

    Layer = Block

    def __init__(self, attention="", feed="", offset=0.0):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(self.Layer(attention, feed, offset) for _ in range(LAYERS))
        self.norm = Norm(offset=offset)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        source = self.embed(tokens)
        for layer in self.layers:
            source = layer(source)
        return self.head(self.norm(source))


def tied():
    model = Gpt(WIDTH, HEADS, LAYERS, VOCABULARY)
    for block in model.blocks:
        block.dropout.p = 0.0
    return model


class Skips(Decoder):
    """The first two outputs are added again behind the last two layers, as in a U-Net."""

    def forward(self, tokens):
        source, kept = self.embed(tokens), []
        for index, layer in enumerate(self.layers):
            source = layer(source) + (kept.pop() if index >= LAYERS // 2 else 0)
            kept += [source] if index < LAYERS // 2 else []
        return self.head(self.norm(source))


class Held(Decoder):
    """The embedding is kept as an attribute, and added in front of the head."""

    def forward(self, tokens):
        self.kept = source = self.embed(tokens)
        for layer in self.layers:
            source = layer(source)
        return self.head(self.norm(source + self.kept))


class InPlace(Decoder):
    """Skips are added in place, also to a part of what a block returned."""

    def forward(self, tokens):
        source, kept = self.embed(tokens), []
        for layer in self.layers:
            source = layer(source)
            kept.append(torch.tanh(source))
            source.mul_(0.5)
            source[:, 1:] += kept[0][:, 1:]
        return self.head(self.norm(source.relu_()))


class Shared(Decoder):
    """The embedding is called again in front of the head, beside parameters of the module itself."""

    def __init__(self, *kinds):
        super().__init__(*kinds)
        self.late, self.early = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(1, LENGTH, WIDTH))

    def forward(self, tokens):
        early = self.early + 1
        source = self.embed(tokens) * early
        for layer in self.layers:
            source = layer(source) + source
        return self.head(self.norm(source * self.late + self.embed(tokens.flip(1)) * early))


class Everywhere(Decoder):
    """Each block is given the embedding beside what the block before returns."""

    class Layer(Block):
        def forward(self, source, first):
            return super().forward(source + 0.5 * first)

    def forward(self, tokens):
        first = source = self.embed(tokens)
        for layer in self.layers:
            source = layer(source, first)
        return self.head(self.norm(source))


class Tuples(Decoder):
    """Blocks return their input beside their output, the module its logits and the last input."""

    class Layer(Block):
        def forward(self, source, before):
            return super().forward(source) + 0.1 * before, source

    def forward(self, tokens):
        source = before = self.embed(tokens)
        for layer in self.layers:
            source, before = layer(source, before)
        return self.head(self.norm(source)), before


class Alibi(Decoder):
    """A bias of positions, a buffer, is handed through all blocks: one row for each head."""

    def __init__(self, *kinds):
        super().__init__(*kinds)
        places = torch.arange(LENGTH)
        distances = (places[None, :] - places[:, None]).float()
        slopes = torch.tensor([2.0**-index for index in range(1, HEADS + 1)])
        self.register_buffer("bias", (distances * slopes[:, None, None]).masked_fill(distances > 0, -1e4))

    def forward(self, tokens):
        source = self.embed(tokens)
        for layer in self.layers:
            source = layer(source, self.bias.to(source.dtype))
        return self.head(self.norm(source))


class EncoderDecoder(nn.Module):
    """Each decoder layer looks at what the encoder made."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.norm2, self.norm3 = Norm(), Norm(), Norm()
            self.attention, self.crossing, self.feed = Attention(), Attention(), Feed()

        def forward(self, source, memory):
            source = source + self.attention(self.norm(source))
            source = source + self.crossing(self.norm2(source), memory=memory)
            return source + self.feed(self.norm3(source))

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.ModuleList(Block() for _ in range(2))
        self.decoder = nn.ModuleList(self.Layer() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        memory = source = self.embed(tokens)
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            source = layer(source, memory)
        return self.head(source)


class Statistics(nn.Module):
    """Batch norms, whose running statistics are saved, and residual sums around blocks or none."""

    def __init__(self, around=False):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm1d(WIDTH), nn.ReLU())
            for _ in range(LAYERS)
        )
        self.around = around
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        source = self.embed(tokens).transpose(1, 2)
        for layer in self.layers:
            source = layer(source) + (source if self.around else 0)
        return self.head(source.transpose(1, 2))


class Average(Decoder):
    """A moving average that no rank of data parallelism shares."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(WIDTH))

    def forward(self, tokens):
        source = self.embed(tokens)
        if self.training:
            with torch.no_grad():
                self.average.lerp_(source.mean((0, 1)), 0.1)
        for layer in self.layers:
            source = layer(source)
        return self.head(self.norm(source))


class WithoutRule(Average):
    """A moving average that DTensor has no rule for, and literal sizes."""

    def __init__(self):
        super().__init__()
        for layer in self.layers:
            layer.attention = Attention("literal")


class Noisy(Decoder):
    """Random numbers in every forward pass."""

    def forward(self, tokens):
        source = self.embed(tokens)
        source = source + 0.1 * torch.randn_like(source)
        for layer in self.layers:
            source = layer(source)
        return self.head(self.norm(source))


class OwnLoss(Decoder):
    """Returns a loss."""

    def forward(self, tokens):
        return super().forward(tokens).pow(2).mean()


class Features(Decoder):
    """Takes features beside token ids, is given them again in front of the head, and returns several tensors."""

    def forward(self, tokens, features):
        source = self.embed(tokens) + features
        for layer in self.layers:
            source = layer(source)
        return {"logits": self.head(self.norm(source + features.flip(1))), "last": source}


BASES = (Decoder, Skips, Held, InPlace, Shared, Everywhere, Tuples, Alibi)
ATTENTIONS = ("", "fused", "norms", "grouped", "scaled", "literal", "inferred")
FEEDS = ("", "gated", "norm", "mixture")


def drawn(seed):
    """A module of random parts: each of two kinds of layers has its own attention and feed-forward network."""
    draw = random.Random(seed)
    base, offset = draw.choice(BASES), draw.choice((0.0, 1.0))
    kinds = [(draw.choice(ATTENTIONS), draw.choice(FEEDS)) for _ in range(2)]
    model = base(*kinds[0], offset)
    for index in range(0, LAYERS, draw.choice((2, LAYERS))):
        model.layers[index] = base.Layer(*kinds[1], offset)
    if draw.random() < 0.5:
        model.head.weight = model.embed.weight
    return model


TOKENS = {"tokens": torch.zeros(1, LENGTH, dtype=torch.long)}
INPUTS = {"features": {**TOKENS, "features": torch.zeros(1, LENGTH, WIDTH)}}
"""One sample of what a module is called with, where that is not token ids alone."""

ZERO = {"dp": 4, "zero": 2, "zero_degree": 2}
PLANS = {
    "pp": {
        "pp": (2, {"pp": 2, "schedule": "1f1b"}), "recompute": (2, {"pp": 2, "recompute": "full"}),
        "pp4": (4, {"pp": 4}), "interleaved": (4, {"pp": 2, "zero": 1, "schedule": "interleaved", "chunks": 2}),
    },
    "tp": {
        "tp": (2, {"tp": 2}), "sp": (2, {"tp": 2, "sp": True}), "tp4": (4, {"tp": 4}),
        "tp_zero": (4, {"tp": 2, "dp": 2, "zero": 2}),
    },
    "both": {
        "tp_pp": (4, {"tp": 2, "pp": 2}), "tp_pp_dp": (8, {"tp": 2, "pp": 2, "dp": 2, "zero": 1}),
        "sp_pp": (4, {"tp": 2, "sp": True, "pp": 2, "schedule": "gpipe"}),
    },
    "data": {
        "zero1": (4, {"dp": 4, "zero": 1}), "zero": (2, {"dp": 2, "zero": 3}), "hybrid": (4, ZERO),
        "free": (2, {}), "free4": (4, {}), "free8": (8, {}),
    },
    "experts": {
        "ep": (2, {"ep": 2, "zero": 0}), "ep_zero": (4, {"ep": 2, "dp": 4, "zero": 3}),
        "ep_tp": (4, {"ep": 2, "tp": 2, "etp": 2}), "ep_pp": (4, {"ep": 2, "pp": 2, "zero": 1}),
    },
    "context": {"cp": (2, {"cp": 2}), "cp_pp": (4, {"cp": 2, "pp": 2})},
}  # fmt: skip
"""By kind and name the ranks of a plan and what is fixed of it."""

OF_KINDS = {
    "plain": (), "offset_norms": ("", "", 1.0), "fused_qkv": ("fused",), "gated": ("", "gated"),
    "inner_norm": ("", "norm"), "query_norms": ("norms",), "grouped": ("grouped",), "scaled_queries": ("scaled",),
    "literal_views": ("literal",), "inferred_views": ("inferred",), "mixture": ("", "mixture"),
}  # fmt: skip
TRAINED = {
    **{name: partial(Decoder, *kinds) for name, kinds in OF_KINDS.items()},
    "llama": partial(Llama, WIDTH, 48, HEADS, 2, LAYERS, VOCABULARY), "tied": tied, "skips": Skips, "held": Held,
    "in_place": InPlace, "shared": Shared, "everywhere": Everywhere, "tuples": Tuples, "alibi": Alibi,
    "encoder_decoder": EncoderDecoder, "statistics": Statistics, "residual_around": partial(Statistics, True),
    "average": Average, "noisy": Noisy, "own_loss": OwnLoss, "without_rule": WithoutRule, "features": Features,
}  # fmt: skip
"""Every kind but dropout, which no two runs draw alike."""
