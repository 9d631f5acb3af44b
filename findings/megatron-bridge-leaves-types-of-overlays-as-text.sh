#!/usr/bin/env bash
# megatron-bridge 0.6.2 with megatron-core 0.19.2 (PyPI).
# Question: a YAML overlay gives two types, optimizer.exp_avg_dtype: torch.bfloat16 and ddp.megatron_fsdp_main_grads_dtype: torch.bfloat16.
# What are they in the configuration that trains?
# Expected guess: torch.bfloat16 both, as these fields are torch.dtype, or torch.dtype or None.
# Seen: the first is torch.bfloat16; the second stays the text "torch.bfloat16", without a warning, because a type is made of text only
# where the field holds one already, and this field is None by default. A mapping with _target_ and _call_ gives the type.
# Method: the wheel's own function that applies overrides is run from its source, without PyTorch, on the defaults of Megatron Core's own
# fields; a class stands in for torch.dtype.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 -d "$work" megatron-core==0.19.2 megatron-bridge==0.6.2 2> "$work/pip.log" || { cat "$work/pip.log"; exit 2; }
for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$work/src"; done
"$python" - "$work/src" <<'PY'
import ast, dataclasses, pathlib, sys, types

source = pathlib.Path(sys.argv[1])

class dtype:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name

torch = types.ModuleType("torch")
torch.dtype = dtype
torch.__getattr__ = lambda name: torch.__dict__.setdefault(name, dtype(f"torch.{name}"))
sys.modules["torch"] = torch

def named(path, name):
    return next(node for node in ast.walk(ast.parse((source / path).read_text())) if getattr(node, "name", "") == name)

def function(path, name, known):
    node = named(path, name)
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            each.annotation = None
        elif isinstance(each, ast.FunctionDef):
            each.returns = None
    exec(compile(ast.fix_missing_locations(ast.Module([node], [])), name, "exec"), known)
    return known[name]

def default(path, owner, field):
    """The default of a field of Megatron Core."""
    found = next(n for n in named(path, owner).body if isinstance(n, ast.AnnAssign) and n.target.id == field)
    return eval(compile(ast.Expression(found.value), field, "eval"), {"torch": torch})

# The two modules that the function imports when it needs them.
activations, objects = types.ModuleType("activation_map"), types.ModuleType("instantiate_utils")
types_of = [n for n in ast.parse((source / "megatron/bridge/utils/activation_map.py").read_text()).body
            if "DTYPE_MAP" in ast.unparse(n) or getattr(n, "name", "") == "str_to_dtype"]
names = {"torch": torch}
exec(compile(ast.Module([n for n in types_of if not isinstance(n, ast.Import)], []), "activation_map", "exec"), names)
activations.str_to_dtype = names["str_to_dtype"]
objects.instantiate = lambda told: getattr(torch, told["_target_"].removeprefix("torch."))
for package in ("megatron", "megatron.bridge", "megatron.bridge.utils"):
    sys.modules[package] = types.ModuleType(package)
sys.modules["megatron.bridge.utils.activation_map"], sys.modules["megatron.bridge.utils.instantiate_utils"] = activations, objects

warnings = []
logger = types.SimpleNamespace(debug=lambda told: None, warning=warnings.append)
apply = function("megatron/bridge/training/utils/omegaconf_utils.py", "_apply_overrides",
                 {"dataclasses": dataclasses, "logger": logger, "torch": torch, "_SERIALIZABLE_CALLABLE_FIELDS": set()})
moment = default("megatron/core/optimizer/optimizer_config.py", "OptimizerConfig", "exp_avg_dtype")
sums = default("megatron/core/distributed/distributed_data_parallel_config.py", "DistributedDataParallelConfig", "megatron_fsdp_main_grads_dtype")
Config = dataclasses.make_dataclass("Config", ["exp_avg_dtype", "megatron_fsdp_main_grads_dtype"])

def told(word):
    config = Config(moment, sums)
    apply(config, {"exp_avg_dtype": word, "megatron_fsdp_main_grads_dtype": word})
    return [config.exp_avg_dtype, config.megatron_fsdp_main_grads_dtype]

text, mapping = told("torch.bfloat16"), told({"_target_": "torch.bfloat16", "_call_": False})
print(f"defaults: {[moment, sums]}\nas text: {text}, warnings {warnings}\nas a mapping: {mapping}")
sys.exit((text, mapping, warnings) != ([torch.bfloat16, "torch.bfloat16"], [torch.bfloat16] * 2, []))
PY
