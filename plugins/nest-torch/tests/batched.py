"""Modules whose products have several dimensions side by side: head by head, in every form, and sample by sample."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS = 64, 4


class Headed(nn.Module):
    """Attention without a softmax, by one of the forms that PyTorch has for its two products."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, source):
        batch, tokens, width = source.shape
        query, key, value = (
            made(source).view(batch, tokens, HEADS, width // HEADS).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        mixed = getattr(self, self.form)(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def matmul(self, query, key, value):
        return query @ key.transpose(2, 3) @ value

    def keys_first(self, query, key, value):
        return query @ (key.transpose(2, 3) @ value)

    def bmm(self, query, key, value):
        query, key, value = (each.flatten(0, 1) for each in (query, key, value))
        return torch.bmm(torch.bmm(query, key.transpose(1, 2)), value).unflatten(0, (-1, HEADS))

    def baddbmm(self, query, key, value):
        query, key, value = (each.flatten(0, 1) for each in (query, key, value))
        bias = torch.zeros(query.shape[0], 1, key.shape[1], device=query.device)
        scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=0.5)
        return torch.bmm(scores, value).unflatten(0, (-1, HEADS))

    def einsum(self, query, key, value):
        return torch.einsum("bhij, bhjd -> bhid", torch.einsum("bhid,bhjd->bhij", query, key), value)

    def dots(self, query, key, value):
        return torch.einsum("...ij,...jd->...id", torch.einsum("...id,...jd", query, key), value)

    def several(self, query, key, value):
        return torch.einsum("bhid,bhjd,bhjk->bhik", query, key, value)

    def turned(self, query, key, value):
        return query @ torch.einsum("bhjd->bhdj", key) @ value


FORMS = ("matmul", "keys_first", "bmm", "baddbmm", "einsum", "dots", "several", "turned")


class WeightsByHead(nn.Module):
    """A product of each head's channels with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.weight = nn.Parameter(torch.zeros(HEADS, WIDTH // HEADS, 2 * WIDTH // HEADS))

    def forward(self, source):
        batch, tokens, width = source.shape
        heads = self.into(source).view(batch, tokens, HEADS, width // HEADS)
        return self.out(torch.einsum("bthd,hdk->bthk", heads, self.weight).reshape(batch, tokens, 2 * width))


class Summed(nn.Module):
    """One tensor alone, of which a dimension is summed over."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, source):
        return self.out(torch.einsum("btw->bw", source))


class Diagonal(nn.Module):
    """A letter twice in one tensor."""

    def forward(self, source):
        return torch.einsum("bii->bi", source)


class Contrastive(nn.Module):
    """Two towers, each sample of one compared with each of the other (CLIP, arXiv 2103.00020)."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32)

    def forward(self, left, right):
        logits = self.left(left) @ self.right(right).T
        return functional.cross_entropy(logits, torch.arange(left.shape[0], device=left.device))
