"""What the backward pass keeps."""

import pytest

from nest.formulate.model import saved_bytes


def test_unfused_gpt_blocks_keep_what_korthikanti_counts(gpt2, load):
    """arXiv 2205.05198, equation 1: sbh(34 + 5as/h) per block, of which dropout masks are 2sbh + as^2b.

    nest models no dropout. The masks go, and the dropout output that multiplies the values is the softmax
    output itself: another 2as^2b that need not be kept. What remains is sbh(32 + 2as/h).
    """
    s, h, a = 32, 24, 6
    graph = load(gpt2, s, attention="unfused")
    published = s * h * (34 + 5 * a * s / h)
    dropout = 2 * s * h + a * s * s + 2 * a * s * s
    for name in graph.blocks:
        kept = saved_bytes(graph.by_layer[graph.layer_index[name]])
        assert kept == published - dropout == s * h * (32 + 2 * a * s / h)


def test_flash_gpt_blocks_keep_the_context_and_statistics_instead_of_the_probabilities(gpt2, load):
    """Korthikanti's selective recomputation leaves 34sbh; flash attention adds the fp32 log-sum-exp, 4as."""
    s, h, a = 32, 24, 6
    graph = load(gpt2, s)
    kept = [saved_bytes(graph.by_layer[graph.layer_index[name]]) for name in graph.blocks]
    assert kept == [32 * s * h + 4 * a * s] * len(graph.blocks)


def test_gated_blocks_keep_both_branches(llama, load):
    s, h, f, a, g, d = 32, 24, 40, 6, 2, 4
    graph = load(llama, s)
    kept = saved_bytes(graph.by_layer[1])
    streams, normed, rotated = 2 * h, 2 * h, a * d + 2 * g * d
    context, branches, activated = a * d, 2 * f, f
    assert kept == 2 * s * (streams + normed + rotated + context + branches + activated) + 4 * a * s


def test_eager_kernels_keep_wide_norms_and_what_the_gate_gives(llama, gpt2, load):
    """Of a norm its input in single precision and the quotient in place of the input; of a gated network a branch more.

    With `f = 4 h` that is `16 h` bytes a token, what PyTorch 2.11 saved more of an uncompiled Llama than of a compiled
    one (benchmarks/results/2026-11-27/one_device). LayerNorm and a plain activation are one kernel each.
    """
    s, h, f = 32, 24, 40
    fused, eager = (saved_bytes(load(llama, s, kernels=kernels).by_layer[1]) for kernels in ("fused", "eager"))
    assert eager - fused == s * (2 * (4 + 2 - 2) * h + 2 * f)
    stored = [saved_bytes(load(llama, s, kernels=each, attention="unfused").by_layer[1]) for each in ("fused", "eager")]
    assert stored[1] - stored[0] == eager - fused + 4 * 6 * s * s  # The softmax in single precision, of six heads.
    assert saved_bytes(load(gpt2, s, kernels="eager").by_layer[1]) == saved_bytes(load(gpt2, s).by_layer[1])


def test_an_eager_loss_keeps_logits_beside_their_logarithmic_softmax(gpt2, load):
    """2 + 4 bytes a logit are kept, and the gradients of both take 4 each: 14, where PyTorch needed 13.7."""
    s, h, v = 32, 24, 96
    head = load(gpt2, s, loss="eager").by_layer[-1]
    assert saved_bytes(head) == 4 * s * h + 6 * s * v + 8 * s
    loss = next(operator for operator in head if operator.kind == "loss")
    alive = [each for each in (*loss.inputs, *loss.outputs) if each.differentiable]
    assert sum(each.bytes for each in alive) == 8 * s * v + 4 * s


def test_experts_keep_every_visit(deepseek, load):
    s, h, k, e, w, shared = 32, 24, 3, 8, 7, 14
    graph = load(deepseek, s)
    experts = graph.by_layer[2]
    dense = graph.by_layer[1]
    routed = k * (h + 3 * w) + 3 * shared
    assert saved_bytes(experts) - saved_bytes(dense) == 2 * s * (routed - 3 * 40) + 4 * s * (e + k)


def test_experts_of_gpt_oss_clamp_and_add_biases_in_kernels_of_their_own(llama, load):
    """Megatron Core moves 18 elements of a branch and 68 bytes of a result for these, beside 9 of the activation."""
    s, h, f, visits = 32, 24, 40, 3
    config = {**llama, "model_type": "gpt_oss", "architectures": None, "num_local_experts": 8, "num_experts_per_tok": 3}
    plain, fused = (load(config, s, kernels=kernels).by_layer[1] for kernels in (None, "fused"))
    assert saved_bytes(plain) - saved_bytes(fused) == 2 * s * visits * 2 * f
    each = {operator.name.rpartition("/")[2]: operator for operator in plain}
    moved = {name: 3 * of.passes * (of.bytes_read + of.bytes_written - 4 * s * visits) for name, of in each.items()}
    assert moved["expert_activated"] == pytest.approx((9 + 18) * 2 * s * visits * f, rel=0.12)
    assert moved["expert_biased"] == pytest.approx(68 * s * visits * h, rel=0.06)


def test_head_keeps_single_precision_logits(gpt2, load):
    """arXiv 2205.05198, section 4.3: 4sbh(1 + v/h), and the labels."""
    s, h, v = 32, 24, 96
    graph = load(gpt2, s)
    assert saved_bytes(graph.by_layer[-1]) == 4 * s * h * (1 + v / h) + 8 * s


def test_a_fused_loss_keeps_the_logits_as_they_are_and_moves_as_much(gpt2, load):
    s, h, v = 32, 24, 96
    heads = [load(gpt2, s, loss=loss).by_layer[-1] for loss in ("fused", "unfused")]
    assert saved_bytes(heads[0]) == 4 * s * h + 2 * s * v + 8 * s
    logits = {"head/logits", "head/wide_logits"}
    moved = [[o.passes * t.bytes for o in each for t in (*o.inputs, *o.outputs) if t.name in logits] for each in heads]
    assert sum(moved[0]) == sum(moved[1])


def test_a_chunked_loss_keeps_no_more_logits_than_its_input_and_reads_as_many(gpt2, load):
    s, h = 32, 24
    head, fused = (load(gpt2, s, loss=loss).by_layer[-1] for loss in ("chunked", "fused"))
    assert saved_bytes(head) == 6 * s * h + 8 * s
    moved = [[o.passes * t.bytes for o in of for t in o.inputs if t.name == "head/logits"] for of in (head, fused)]
    assert sum(moved[0]) == sum(moved[1])
    assert sum(each.flops for each in head) == sum(each.flops for each in fused)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp8", "mxfp8", "nvfp4"])
def test_narrow_matrix_formats_keep_two_byte_activations(small, load, precision):
    graph = load(small.config, precision=precision)
    assert {t.itemsize for o in graph.operators for t in o.outputs} <= {2.0, 4.0}
    hidden = [each.tensor for each in graph.layer_tensors]
    assert {t.itemsize for t in hidden} == {2.0}


def test_caps_keep_their_result(llama, load):
    """Gemma 2: the backward pass of a hyperbolic tangent needs what it made, of logits and of stored scores."""
    s, v, layers, heads = 32, 96, 3, 6
    config = {**llama, "model_type": "gemma2", "architectures": None, "head_dim": 4}
    plain = {**config, "attn_logit_softcapping": None, "final_logit_softcapping": None}

    def kept(source, **training):
        return sum(saved_bytes(layer) for layer in load(source, s, **training).by_layer)

    assert kept(config) - kept(plain) == 2 * s * v
    stored = kept(config, attention="unfused") - kept(plain, attention="unfused")
    assert stored == 2 * s * v + layers * 2 * heads * s * s
