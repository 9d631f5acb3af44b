#!/usr/bin/env bash
# megatron-core 0.19.2 with emerging-optimizers 0.3.0 (PyPI), the newest of both, and the only release of the latter there.
# Question: a script gives --optimizer adaptive_muon, one of the choices of that flag, and nothing else of Muon. Does it train?
# Expected guess: yes; validate_args takes it, and the optimizer is made without a word.
# Seen: the first step raises AttributeError: the update is scaled by self.scale_mode, which only AdaptiveMuon.__init__ sets, and
# Megatron Core's subclass calls the __init__ of its own Muon instead.
# Method: the wheels' own constructors and the method that scales are run from their source, without PyTorch; a stand-in for
# torch.optim.Optimizer keeps the groups of parameters.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 -d "$work" megatron-core==0.19.2 emerging-optimizers==0.3.0 2> "$work/pip.log" || { cat "$work/pip.log"; exit 2; }
for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$work/src"; done
"$python" - "$work/src" <<'PY'
import ast, pathlib, sys, types

source = pathlib.Path(sys.argv[1])
Some = types.SimpleNamespace

def methods(path, owner, names, base, known):
    """A class with some methods of the wheel's class, without the types of their arguments."""
    tree = ast.parse((source / path).read_text())
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == owner)
    found.body = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert {node.name for node in found.body} == set(names)
    for node in ast.walk(found):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns, node.decorator_list = None, []
    found.bases, found.keywords, found.decorator_list = [ast.Name(each.__name__, ast.Load()) for each in base], [], []
    known |= {each.__name__: each for each in base}
    exec(compile(ast.fix_missing_locations(ast.Module([found], [])), path, "exec"), known)
    return known[owner]

class Optimizer:
    def __init__(self, params, defaults):
        self.param_groups = [dict(defaults, params=params)]

scale = Some(get_muon_scale_factor=lambda rows, columns, mode: 1.0)
theirs = {"muon": scale, "logging": Some(debug=print), "get_args": lambda kinds: ("decoupled", "l2"), "opt_mixin": Some(WeightDecayT=None)}
folder, core = "emerging_optimizers/orthogonalized_optimizers", "megatron/core/optimizer/emerging_optimizers.py"
Orthogonalized = methods(f"{folder}/orthogonalized_optimizer.py", "OrthogonalizedOptimizer", ["__init__"], [Optimizer], theirs)
Adaptive = methods(f"{folder}/adaptive_muon.py", "AdaptiveMuon", ["__init__", "_apply_muon_scale"], [Orthogonalized], theirs)
ours = {"OrthogonalizedOptimizer": Orthogonalized}
Muon = methods(core, "TensorParallelMuon", ["__init__"], [Orthogonalized], ours)
Both = methods(core, "TensorParallelAdaptiveMuon", ["__init__"], [Muon, Adaptive], ours)

print("emerging-optimizers alone:", Adaptive([1.0], lr=1e-3, momentum=0.9, weight_decay=0.1)._apply_muon_scale(1.0, 16, 32))
try:
    found = Both([1.0], lr=1e-3)._apply_muon_scale(1.0, 16, 32)
except AttributeError as error:
    found = f"AttributeError: {error}"
print("Megatron Core's:", found)
sys.exit(found != "AttributeError: 'TensorParallelAdaptiveMuon' object has no attribute 'scale_mode'")
PY
