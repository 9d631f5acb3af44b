#!/usr/bin/env bash
# megatron-core 0.19.2 with emerging-optimizers 0.3.0 (PyPI).
# Question: a script gives --optimizer lion --lion-beta1 0.9 --lion-beta2 0.99. What does Lion train, and with which betas?
# Expected guess: every parameter, with one moment each (4 bytes), and these betas.
# Seen: embeddings, the output layer, norms and biases go to Adam with two moments (8 bytes). Lion has Adam's betas (0.9, 0.999);
# --lion-beta1 and --lion-beta2 count only beside --optimizer muon --muon-scalar-optimizer lion.
# Method: the wheel's registration of optimizers and its defaults are run from their source, without PyTorch, on the signature of the
# real Lion.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 -d "$work" megatron-core==0.19.2 emerging-optimizers==0.3.0 2> "$work/pip.log" || { cat "$work/pip.log"; exit 2; }
for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$work/src"; done
"$python" - "$work/src" <<'PY'
import ast, dataclasses, inspect, pathlib, sys, types

source = pathlib.Path(sys.argv[1])
core = ast.parse((source / "megatron/core/optimizer/emerging_optimizers.py").read_text())
lion = ast.parse((source / "emerging_optimizers/scalar_optimizers/lion.py").read_text())
Some = types.SimpleNamespace

def bare(node):
    """The node without the types of its functions' arguments."""
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            each.annotation = None
        elif isinstance(each, ast.FunctionDef):
            each.returns = None
        elif isinstance(each, ast.AnnAssign):
            each.annotation = ast.Constant(None)
    return node

cls = next(node for node in lion.body if isinstance(node, ast.ClassDef) and node.name == "Lion")
made = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
known = {}
exec(compile(ast.fix_missing_locations(ast.Module([bare(made)], [])), "lion", "exec"), known)
Lion = type("Lion", (), {"__init__": known["__init__"]})

names = {"_is_nonlinear_or_embedding", "_default_param_overrides_factory", "EmergingOptimizerEntry", "_kwargs_from_config",
         "_default_adam_based_eopt_config_to_kwargs", "_eopt_init_state_fn"}
parts = [bare(node) for node in core.body if getattr(node, "name", "") in names]
# The loop over optimizers that the wheel does not name itself, of which Lion is one.
parts.append(next(node for node in core.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "HAVE_EMERGING_OPTIMIZERS"))
entries = {}
wheel = {"dataclass": dataclasses.dataclass, "field": dataclasses.field, "inspect": inspect, "HAVE_EMERGING_OPTIMIZERS": True,
         "registry": Some(get_optimizer_name_list=lambda: ["lion"], get_optimizer_cls=lambda name: Lion),
         "_EMERGING_OPTIMIZERS": entries, "ParamKey": lambda predicate: predicate, "ParamPredicate": lambda name, fn: fn}
exec(compile(ast.fix_missing_locations(ast.Module(parts, [])), "core", "exec"), wheel)

def trained_by(**parameter):
    return next((override["optimizer"] for applies, override in entries["lion"].default_param_overrides.items() if applies(Some(**parameter))), "lion")

optimizers = {"matrix": trained_by(shape=(8, 8)), "norm": trained_by(shape=(8,)),
              "embedding": trained_by(shape=(8, 8), is_embedding_or_output_parameter=True)}
config = Some(lr=1e-4, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.999, lion_beta1=0.9, lion_beta2=0.99)
betas = wheel["_default_adam_based_eopt_config_to_kwargs"]("lion", config, [], None)["betas"]
print(f"--optimizer lion: {optimizers}, betas {betas}; asked were {(config.lion_beta1, config.lion_beta2)}")
alone = "lion" not in {getattr(key, "value", None) for node in ast.walk(core) if isinstance(node, ast.Dict) for key in node.keys}
sys.exit((optimizers, betas, alone) != ({"matrix": "lion", "norm": "adam", "embedding": "adam"}, (0.9, 0.999), True))
PY
