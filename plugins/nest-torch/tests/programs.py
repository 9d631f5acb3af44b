"""Small programs as scripts write them down of `torch.export`: decoders, node by node."""

from typing import Any

Row = dict[str, Any]


class Program:
    """Rows of a program under construction; every method returns the name of a node."""

    def __init__(self, nested: bool = True, flops: bool = True) -> None:
        self.rows: list[Row] = []
        self.nested = nested
        self.flops = flops
        self._counts: dict[str, int] = {}

    def add(self, op: str, inputs: list[str], shape: Any, module: str, dtype: str = "bfloat16", flops: int = 0) -> str:
        """A node called like its operator, with a number as tracers give it."""
        base = op.split(".")[0]
        count = self._counts.get(base, 0)
        self._counts[base] = count + 1
        name = f"{base}_{count}" if count else base
        several = bool(shape) and isinstance(shape[0], list)
        written = shape if several or not self.nested else [shape]
        target = "<built-in function getitem>" if base == "getitem" else f"aten.{op}"
        row = {"name": name, "op": target, "inputs": inputs, "shape": written, "dtype": f"torch.{dtype}"}
        if self.flops:
            row["flops"] = flops
        self.rows.append({**row, "module": module, "cls": "torch.nn.Module"})
        return name

    def linear(self, source: str, rows: list[int], inner: int, columns: int, module: str, split: bool) -> str:
        """A projection, as one call or as decompositions write it."""
        weight = f"p_{module.replace('.', '_')}_weight"
        flops = 2 * inner * columns
        for length in rows:
            flops *= length
        if not split:
            return self.add("linear.default", [source, weight], [*rows, columns], module, flops=flops)
        flat = rows[0] * rows[1]
        turned = self.add("permute.default", [weight], [inner, columns], module)
        viewed = self.add("view.default", [source], [flat, inner], module)
        made = self.add("mm.default", [viewed, turned], [flat, columns], module, flops=flops)
        return self.add("view.default", [made], [*rows, columns], module)

    def norm(self, source: str, shape: list[int], module: str) -> str:
        """A root-mean-square norm in single precision, written out."""
        weight = f"p_{module.replace('.', '_')}_weight"
        wide = self.add("_to_copy.default", [source], shape, module, "float32")
        squared = self.add("pow.Tensor_Scalar", [wide], shape, module, "float32")
        mean = self.add("mean.dim", [squared], [*shape[:-1], 1], module, "float32")
        raised = self.add("add.Tensor", [mean], [*shape[:-1], 1], module, "float32")
        root = self.add("rsqrt.default", [raised], [*shape[:-1], 1], module, "float32")
        scaled = self.add("mul.Tensor", [wide, root], shape, module, "float32")
        narrow = self.add("_to_copy.default", [scaled], shape, module)
        return self.add("mul.Tensor", [weight, narrow], shape, module)


def decoder(
    *,
    layers: int = 2,
    samples: int = 1,
    sequence: int = 32,
    hidden: int = 24,
    heads: int = 6,
    kv_heads: int = 2,
    ffn: int = 40,
    vocab: int = 96,
    split: bool = True,
    fused_projection: bool = False,
    prefix: str = "model.layers",
    **form: Any,
) -> list[Row]:
    """A pre-norm decoder with a gated feed-forward network and no rotary embedding.

    Args:
        layers: blocks.
        samples: the batch it is exported with.
        sequence: tokens of a sample.
        hidden, heads, kv_heads, ffn, vocab: widths.
        split: decomposed, with attention written out; else one call for each product and for attention.
        fused_projection: queries, keys and values made by one product and split.
        prefix: the list of modules the blocks are in.
        form: of the rows, as `Program` takes it.
    """
    program = Program(**form)
    head, rows = hidden // heads, [samples, sequence]
    wide = [*rows, hidden]
    stream = program.add("embedding.default", ["p_embed_tokens_weight", "input_ids"], wide, "embed_tokens")
    mask = _mask(program, sequence)
    for index in range(layers):
        at = f"{prefix}.{index}"
        normed = program.norm(stream, wide, f"{at}.input_norm")
        if fused_projection:
            made = _fused_projection(program, normed, rows, hidden, heads, kv_heads, f"{at}.attn.qkv", split)
        else:
            made = [
                program.linear(normed, rows, hidden, count * head, f"{at}.attn.{name}", split)
                for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
            ]
        turned = []
        for source, count in zip(made, (heads, kv_heads, kv_heads), strict=True):
            viewed = program.add("view.default", [source], [*rows, count, head], f"{at}.attn")
            operand = program.add("permute.default", [viewed], [samples, count, sequence, head], f"{at}.attn")
            if count < heads:
                operand = _repeated(program, operand, [samples, count, sequence, head], heads, f"{at}.attn")
            turned.append(operand)
        attend = _written_attention if split else _called_attention
        context = attend(program, turned, [samples, heads, sequence, head], mask, f"{at}.attn")
        back = program.add("permute.default", [context], [samples, sequence, heads, head], f"{at}.attn")
        joined = program.add("view.default", [back], [*rows, heads * head], f"{at}.attn")
        change = program.linear(joined, rows, heads * head, hidden, f"{at}.attn.o", split)
        stream = program.add("add.Tensor", [stream, change], wide, at)
        normed = program.norm(stream, wide, f"{at}.post_norm")
        gate = program.linear(normed, rows, hidden, ffn, f"{at}.mlp.gate", split)
        up = program.linear(normed, rows, hidden, ffn, f"{at}.mlp.up", split)
        active = program.add("silu.default", [gate], [*rows, ffn], f"{at}.mlp.act")
        scaled = program.add("mul.Tensor", [active, up], [*rows, ffn], f"{at}.mlp")
        change = program.linear(scaled, rows, ffn, hidden, f"{at}.mlp.down", split)
        stream = program.add("add.Tensor", [stream, change], wide, at)
    normed = program.norm(stream, wide, f"{prefix.rpartition('.')[0]}.norm".removeprefix("."))
    program.linear(normed, rows, hidden, vocab, "lm_head", split)
    return program.rows


def _fused_projection(
    program: Program, source: str, rows: list[int], hidden: int, heads: int, kv_heads: int, module: str, split: bool
) -> list[str]:
    head = hidden // heads
    columns = [count * head for count in (heads, kv_heads, kv_heads)]
    whole = program.linear(source, rows, hidden, sum(columns), module, split)
    several = program.add("split_with_sizes.default", [whole], [[*rows, width] for width in columns], module)
    return [program.add("getitem", [several], [*rows, width], module) for width in columns]


def _mask(program: Program, sequence: int) -> str:
    places = program.add("arange.start_step", [], [sequence], "model", "int64")
    keys = program.add("view.default", [places], [1, 1, 1, sequence], "model", "int64")
    queries = program.add("view.default", [places], [1, 1, sequence, 1], "model", "int64")
    return program.add("le.Tensor", [keys, queries], [1, 1, sequence, sequence], "model", "bool")


def _repeated(program: Program, source: str, shape: list[int], heads: int, module: str) -> str:
    samples, count, sequence, head = shape
    apart = program.add("unsqueeze.default", [source], [samples, count, 1, sequence, head], module)
    many = program.add("expand.default", [apart], [samples, count, heads // count, sequence, head], module)
    copied = program.add("clone.default", [many], [samples, count, heads // count, sequence, head], module)
    return program.add("view.default", [copied], [samples, heads, sequence, head], module)


def _called_attention(program: Program, operands: list[str], shape: list[int], mask: str, module: str) -> str:
    samples, heads, sequence, head = shape
    flops = 4 * samples * heads * sequence * sequence * head
    op = "scaled_dot_product_attention.default"
    return program.add(op, [*operands, mask], shape, module, flops=flops)


def _written_attention(program: Program, operands: list[str], shape: list[int], mask: str, module: str) -> str:
    samples, heads, sequence, head = shape
    flops = 2 * samples * heads * sequence * sequence * head
    square, flat = [samples, heads, sequence, sequence], samples * heads
    query = program.add("_to_copy.default", [operands[0]], shape, module, "float32")
    query = program.add("mul.Scalar", [query], shape, module, "float32")
    key = program.add("_to_copy.default", [operands[1]], shape, module, "float32")
    key = program.add("permute.default", [key], [samples, heads, head, sequence], module, "float32")
    query = program.add("view.default", [query], [flat, sequence, head], module, "float32")
    key = program.add("view.default", [key], [flat, head, sequence], module, "float32")
    scores = program.add("bmm.default", [query, key], [flat, sequence, sequence], module, "float32", flops)
    scores = program.add("view.default", [scores], square, module, "float32")
    hidden = program.add("where.self", [mask], [1, 1, *square[2:]], module, "float32")
    masked = program.add("add.Tensor", [scores, hidden], square, module, "float32")
    shares = program.add("_softmax.default", [masked], square, module, "float32")
    shares = program.add("view.default", [shares], [flat, sequence, sequence], module, "float32")
    value = program.add("_to_copy.default", [operands[2]], shape, module, "float32")
    value = program.add("view.default", [value], [flat, sequence, head], module, "float32")
    context = program.add("bmm.default", [shares, value], [flat, sequence, head], module, "float32", flops)
    context = program.add("view.default", [context], shape, module, "float32")
    return program.add("_to_copy.default", [context], shape, module)
