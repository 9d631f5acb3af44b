"""Modules that tests capture: a GPT, a Llama, a convolutional network, and what cannot be captured."""

import os
import signal

import torch
from torch import nn
from torch.nn import functional


class GptBlock(nn.Module):
    """Fused queries, keys and values, one attention kernel, an activation in place, dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.activation = nn.ReLU(inplace=True)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, source):
        batch, tokens, width = source.shape
        parts = self.qkv(self.norm(source)).split(width, dim=2)
        query, key, value = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in parts
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        source = source + self.dropout(self.out(mixed.transpose(1, 2).contiguous().view(batch, tokens, width)))
        return source + self.down(self.activation(self.up(self.norm2(source))))


class Gpt(nn.Module):
    """Learned positions and a head tied to the embedding."""

    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 3, vocabulary: int = 100) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(1, 64, width))
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        source = self.words(tokens) + self.positions[:, : tokens.shape[1]]
        for block in self.blocks:
            source = block(source)
        return self.head(self.norm(source))


class RmsNorm(nn.Module):
    """As Llama's own code has it: six kernels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, source):
        wide = source.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * normed.to(source.dtype)


def rotated(source, cosine, sine):
    half = source.shape[-1] // 2
    return source * cosine + torch.cat((-source[..., half:], source[..., :half]), -1) * sine


class LlamaLayer(nn.Module):
    """Grouped-query attention with rotary embedding and a gated feed-forward network."""

    def __init__(self, width: int, ffn: int, heads: int, kv_heads: int, repeat: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.channels, self.repeat = heads, kv_heads, width // heads, repeat
        self.norm, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, kv_heads * self.channels, bias=False)
        self.value = nn.Linear(width, kv_heads * self.channels, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, source, cosine, sine):
        batch, tokens, _ = source.shape
        normed = self.norm(source)
        query = self.query(normed).view(batch, tokens, self.heads, self.channels).transpose(1, 2)
        key, value = (
            projection(normed).view(batch, tokens, self.kv_heads, self.channels).transpose(1, 2)
            for projection in (self.key, self.value)
        )
        query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        if self.repeat:
            sizes = (batch, self.kv_heads, self.heads // self.kv_heads, tokens, self.channels)
            key, value = (
                each[:, :, None].expand(*sizes).reshape(batch, self.heads, tokens, self.channels)
                for each in (key, value)
            )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=not self.repeat)
        source = source + self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        normed = self.norm2(source)
        return source + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """With `repeat`, keys and values are repeated for the queries' heads, as older code does it."""

    def __init__(self, width=64, ffn=176, heads=8, kv_heads=2, layers=4, vocabulary=100, repeat=False) -> None:
        super().__init__()
        self.channels = width // heads
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, ffn, heads, kv_heads, repeat) for _ in range(layers))
        self.norm = RmsNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, labels=None):
        source = self.embed(tokens)
        with torch.no_grad():
            places = torch.arange(tokens.shape[1], device=source.device).float()
            channels = torch.arange(0, self.channels, 2, device=source.device).float()
            angles = torch.outer(places, 10000 ** (-channels / self.channels)).repeat(1, 2)
            cosine, sine = angles.cos().to(source.dtype), angles.sin().to(source.dtype)
        for layer in self.layers:
            source = layer(source, cosine, sine)
        logits = self.lm_head(self.norm(source))
        if labels is None:
            return logits
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Unfused(nn.Module):
    """Attention that stores its scores, with a mask kept as a buffer or made, and the vocabulary as a plain product."""

    def __init__(self, width: int = 64, heads: int = 4, kept: bool = True) -> None:
        super().__init__()
        self.heads, self.channels, self.kept = heads, width // heads, kept
        self.words = nn.Embedding(100, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(64, 64).tril())

    def forward(self, tokens):
        source = self.words(tokens)
        batch, count, width = source.shape
        parts = self.qkv(source).view(batch, count, 3, self.heads, self.channels).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = (query @ key.transpose(-2, -1)) * self.channels**-0.5
        places = torch.arange(count, device=tokens.device)
        mask = self.mask[:count, :count] if self.kept else places[None, :] <= places[:, None]
        shares = scores.masked_fill(mask == 0, float("-inf")).softmax(-1)
        source = source + self.out((shares @ value).transpose(1, 2).reshape(batch, count, width))
        return source @ self.words.weight.T


class Convolutional(nn.Module):
    """A stem, three equal blocks with grouped convolutions and residual sums, a classifier."""

    def __init__(self, groups: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, 2, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=groups), nn.BatchNorm2d(16), nn.ReLU())
            for _ in range(3)
        )
        self.classes = nn.Linear(16, 10)

    def forward(self, images):
        source = functional.max_pool2d(functional.relu(self.stem(images)), 2)
        for block in self.blocks:
            source = source + block(source)
        return self.classes(functional.adaptive_avg_pool2d(source, 1).flatten(1))


class Encoder(nn.TransformerEncoder):
    """PyTorch's own layers."""

    def __init__(self) -> None:
        super().__init__(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 3)


class RecurrentLayer(nn.Module):
    """A linear recurrence over the places of a sequence, step by step, with a gate."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.norm, self.states = RmsNorm(width), states
        self.both = nn.Linear(width, 2 * width)
        self.steps = nn.Linear(width, 2 * states)
        self.decay = nn.Parameter(torch.zeros(width, states))
        self.out = nn.Linear(width, width)

    def forward(self, source):
        inner, gate = self.both(self.norm(source)).chunk(2, -1)
        entering, leaving = self.steps(inner).chunk(2, -1)
        states = torch.exp(-torch.exp(self.decay))[None, None] * torch.ones_like(inner)[..., None]
        changes = inner[..., None] * entering[:, :, None, :]
        state = torch.zeros(source.shape[0], source.shape[2], self.states, device=source.device, dtype=source.dtype)
        made = []
        for place in range(source.shape[1]):
            state = states[:, place] * state + changes[:, place]
            made.append((state @ leaving[:, place, :, None])[..., 0])
        return source + self.out(torch.stack(made, 1) * functional.silu(gate))


class Recurrence(nn.Module):
    """Three recurrent layers between an embedding and a head, with one layer of attention behind the first."""

    def __init__(self, width: int = 64, states: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(100, width)
        self.layers = nn.ModuleList(
            [RecurrentLayer(width, states), GptBlock(width, 4), *(RecurrentLayer(width, states) for _ in range(2))]
        )
        self.head = nn.Linear(width, 100, bias=False)

    def forward(self, tokens):
        source = self.words(tokens)
        for layer in self.layers:
            source = layer(source)
        return self.head(source)


class Experts(nn.Module):
    """Routed experts as grouped products over tokens in the order of their experts."""

    def __init__(self, width: int = 64, inner: int = 128, experts: int = 4) -> None:
        super().__init__()
        self.experts = experts
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.zeros(experts, width, inner))
        self.down = nn.Parameter(torch.zeros(experts, inner, width))

    def forward(self, source):
        rows = source.reshape(-1, source.shape[-1])
        shares, chosen = self.router(rows).softmax(-1).topk(2, dim=-1)
        order = chosen.reshape(-1).argsort()
        counts = torch.histc(chosen.reshape(-1).float(), self.experts, 0, self.experts - 1)
        ends = counts.cumsum(0).to(torch.int32)
        repeated = rows.unsqueeze(1).expand(-1, 2, -1).reshape(-1, rows.shape[-1])
        sent = torch.gather(repeated, 0, order.unsqueeze(-1).expand_as(repeated))
        inner = functional.relu(torch._grouped_mm(sent, self.up, offs=ends))
        back = torch._grouped_mm(inner, self.down, offs=ends)
        return source + (back.view(-1, 2, rows.shape[-1]) * shares.unsqueeze(-1)).sum(1).view_as(source)


class Branching(nn.Module):
    """What it does depends on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, source):
        return self.linear(source) if source.sum() > 0 else source


class Recurrent(nn.Module):
    """An LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(8, 8, batch_first=True)

    def forward(self, source):
        return self.recurrent(source)[0]


class Unused(nn.Module):
    """A layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, source):
        return self.used(source)


def broken():
    raise RuntimeError("no such thing\nand more")


class FaultyGpt(Gpt):
    """The second of several ranks has another second block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks[1].register_forward_hook(_changed_on_second_rank)


def _changed_on_second_rank(module, inputs, made):
    there = torch.distributed
    return made * 1.01 if there.is_initialized() and there.get_rank() == 1 else made


class EndedGpt(Gpt):
    """The second of several ranks ends without a word."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks[0].register_forward_hook(_ended_on_second_rank)


def _ended_on_second_rank(module, inputs, made):
    there = torch.distributed
    if there.is_initialized() and there.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGABRT)


class LoneGpt(Gpt):
    """The second of several ranks fails in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks[1].register_full_backward_hook(_failed_on_second_rank)


def _failed_on_second_rank(module, inputs, made):
    there = torch.distributed
    if there.is_initialized() and there.get_rank() == 1:
        raise ValueError("no memory is left")


def made_by_threads():
    """A module whose code sets the number of threads."""
    torch.set_num_threads(64)
    return Gpt()
