#!/usr/bin/env bash
# megatron-core 0.18.0 against 0.19.2 (PyPI).
# Question: a script gives --bf16 --use-megatron-fsdp and says nothing of gradients. In which type are they added up and reduced?
# Expected guess: single precision, as validate_args still announces for bf16 ("accumulate and all-reduce gradients in fp32").
# Seen: 0.18.0 makes Megatron FSDP's buffers of them fp32, because of that setting (grad_reduce_in_fp32); 0.19.2 passes on
# --megatron-fsdp-main-grads-dtype alone, whose default (auto) is the type of the weights: bf16, without a word.
# Method: the wheels' own call that makes the MixedPrecisionPolicy is run from its source, without PyTorch, with the flags' defaults.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
for version in 0.18.0 0.19.2; do
  "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 -d "$work/$version" "megatron-core==$version" 2> "$work/pip.log" || { cat "$work/pip.log"; exit 2; }
  "$python" -m zipfile -e "$work/$version"/*.whl "$work/$version/src"
done
"$python" - "$work" <<'PY'
import argparse, ast, pathlib, sys, types

torch = types.SimpleNamespace(float32="fp32", float16="fp16", bfloat16="bf16")
FLAGS = ("--megatron-fsdp-main-params-dtype", "--megatron-fsdp-main-grads-dtype", "--megatron-fsdp-grad-comm-dtype")

def defaults(root):
    """What the wheel's own flags are where nobody gives them; auto stands for None (`map_dtype`)."""
    parser = argparse.ArgumentParser()
    for node in ast.walk(ast.parse((root / "megatron/training/arguments.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            if node.args and getattr(node.args[0], "value", None) in FLAGS:
                exec(compile(ast.fix_missing_locations(ast.Module([ast.Expr(node)], [])), "arguments", "exec"), {"group": parser})
    return {name: None if value == "auto" else value for name, value in vars(parser.parse_args([])).items()}

def policy(root):
    """The policy that the adapter makes of a configuration whose gradients are to be reduced in fp32."""
    tree = ast.parse((root / "megatron/core/distributed/fsdp/mcore_fsdp_adapter.py").read_text())
    call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "MixedPrecisionPolicy")
    config = types.SimpleNamespace(grad_reduce_in_fp32=True, **defaults(root))
    names = {"ddp_config": config, "torch": torch, "MixedPrecisionPolicy": dict}
    return eval(compile(ast.fix_missing_locations(ast.Expression(call)), "adapter", "eval"), names)

found = {}
for version in ("0.18.0", "0.19.2"):
    made = policy(pathlib.Path(sys.argv[1], version, "src"))
    found[version] = (made["main_grads_dtype"], made["grad_comm_dtype"])
    words = [each or "the type of the weights" for each in found[version]]
    print(f"megatron-core {version}: gradients are added up in {words[0]} and reduced in {words[1]}")
sys.exit(found != {"0.18.0": ("fp32", "fp32"), "0.19.2": (None, None)})
PY
