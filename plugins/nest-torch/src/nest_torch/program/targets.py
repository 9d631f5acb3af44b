"""PyTorch's names of operators, by what they are to nest."""

NORMS = (
    "layer_norm", "rms_norm", "_fused_rms_norm", "group_norm", "batch_norm", "instance_norm", "native_layer_norm",
    "native_batch_norm", "_native_batch_norm_legit", "native_group_norm", "cudnn_batch_norm", "_batch_norm_with_update",
)  # fmt: skip
"""Norms."""

SOFTMAXES = ("softmax", "log_softmax", "_softmax", "_log_softmax", "_safe_softmax")
"""Softmaxes."""

ACTIVATIONS = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "selu", "celu", "mish", "softplus", "glu",
    "hardtanh", "hardswish", "hardsigmoid", "relu6", "prelu", "log_sigmoid", "logsigmoid", "rrelu",
)  # fmt: skip
"""Activations, one tensor to one."""

LOSSES = (
    "cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss_forward", "mse_loss", "l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "smooth_l1_loss", "kl_div", "soft_margin_loss",
)  # fmt: skip
"""Losses."""

EMBEDDINGS = ("embedding", "embedding_bag", "_embedding_bag")
"""Look-ups."""

DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "native_dropout")
"""Dropout."""

REDUCTIONS = (
    "sum", "mean", "amax", "amin", "prod", "var", "std", "logsumexp", "norm", "linalg_vector_norm", "any", "all",
    "argmax", "argmin", "max", "min", "var_mean", "std_mean", "median",
)  # fmt: skip
"""Operators that remove dimensions."""

LINEAR = (
    "add", "sub", "rsub", "neg", "cat", "concat", "stack", "sum", "mean", "copy", "copy_", "to", "_to_copy", "type_as",
    "add_", "sub_", "neg_", "repeat", "repeat_interleave", "pad", "constant_pad_nd", "roll", "flip", "cumsum",
    "masked_fill", "masked_fill_", "index_select", "float", "half", "bfloat16", "tril", "triu", "fill_", "zero_",
)  # fmt: skip
"""Operators whose backward pass needs no tensor of the forward pass."""

PRODUCTS_OF_NUMBERS = ("mul", "mul_", "div", "div_", "multiply", "true_divide", "addcmul", "lerp", "where")
"""Operators whose backward pass needs an operand where another has a gradient."""

OPAQUE = (
    *("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell"),
    *("bilinear", "cdist", "_cdist_forward", "_native_multi_head_attention", "_transformer_encoder_layer_fwd"),
)
"""Calls that hide products, of which nothing here knows the FLOP."""

GROUPED_PRODUCTS = ("_grouped_mm", "grouped_mm", "grouped_mm_fallback")
"""Products of rows with the matrix of the group each belongs to; the last is transformers' own."""
