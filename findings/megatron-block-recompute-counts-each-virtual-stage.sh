#!/usr/bin/env bash
# megatron-core 0.19.2 (PyPI).
# Question: 16 layers, 2 pipeline stages of 2 virtual stages each, --recompute-method block --recompute-num-layers 3.
# How many layers of a pipeline stage run again in the backward pass?
# Expected guess: 3, as the field says: "the number of transformer layers to recompute within each pipeline stage".
# Seen: 6. A TransformerBlock is one virtual stage, and each recomputes its own first 3 layers. More than it has is no error.
# Method: the wheel's own function for the layers of a virtual stage, and its own loop over them, are run from their
# source without PyTorch; a stand-in for `checkpoint` notes which layers it is asked to run again.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 -d "$work" megatron-core==0.19.2 2> "$work/pip.log" || { cat "$work/pip.log"; exit 2; }
"$python" -m zipfile -e "$work"/*.whl "$work/src"
"$python" - "$work/src/megatron/core" <<'PY'
import ast, contextlib, pathlib, sys, types

def function(path, name, known):
    """A function of the wheel by itself, without the types of its arguments."""
    tree = ast.parse((pathlib.Path(sys.argv[1]) / path).read_text())
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    for node in ast.walk(found):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    exec(compile(ast.fix_missing_locations(ast.Module([found], [])), path, "exec"), known)
    return known[name]

Some = types.SimpleNamespace
again, inside = [], []

def checkpoint(run, _, *given):
    inside.append(True)
    result = run(*given)
    inside.pop()
    return result

def layer(number):
    def run(**given):
        again.extend([number] if inside else [])
        return given["hidden_states"]
    return run

build = function("transformer/transformer_block.py", "get_num_layers_to_build", {})
forward = function("recompute.py", "checkpointed_forward", {
    "tensor_parallel": Some(checkpoint=checkpoint), "nullcontext": contextlib.nullcontext, "TransformerLayer": type(None)})

def recomputed(virtual, count):
    """Layers of the first pipeline stage that run again, chunk by chunk."""
    split = Some(num_layers=16, pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=virtual,
                 pipeline_model_parallel_layout=None, num_layers_in_first_pipeline_stage=None,
                 num_layers_in_last_pipeline_stage=None, account_for_embedding_in_pipeline_split=False,
                 account_for_loss_in_pipeline_split=False)
    counts = []
    for chunk in range(virtual or 1):
        size = build(split, vp_stage=chunk, pp_rank=0)
        config = Some(recompute_method="block", recompute_num_layers=count, fp8=None, fp4=None, distribute_saved_activations=False)
        again.clear()
        forward(Some(config=config, layers=[layer(n) for n in range(size)], num_layers_per_pipeline_rank=size),
                1.0, *[None] * 6, use_inner_quantization_context=False)
        assert again == list(range(len(again)))
        counts.append(len(again))
    return counts

found = {case: recomputed(*case) for case in ((None, 3), (2, 3), (4, 3), (None, 99))}
for (virtual, count), counts in found.items():
    print(f"virtual stages {virtual or 1}, --recompute-num-layers {count}: {sum(counts)} of 8 layers of a pipeline stage, {counts}")
sys.exit(found != {(None, 3): [3], (2, 3): [3, 3], (4, 3): [2, 2, 2, 2], (None, 99): [8]})
PY
