#!/usr/bin/env bash
# megatron-core 0.19.2 with emerging-optimizers 0.3.0 (PyPI), the newest of both.
# Question: OptimizerConfig(optimizer="soap", soap_precondition_frequency=10). How often does SOAP take a QR decomposition of its factors?
# Expected guess: every 10 steps, as the field says: "The frequency of the Shampoo preconditioner".
# Seen: in every step. SOAP has no such argument any more, and Megatron Core passes only what the constructor knows, without a word.
# Method: the wheel's own function that makes the arguments is run from its source, without PyTorch, on the constructor's real signature
# and on the fields of the real OptimizerConfig; and SOAP.step is searched for a condition around its decomposition.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 -d "$work" megatron-core==0.19.2 emerging-optimizers==0.3.0 2> "$work/pip.log" || { cat "$work/pip.log"; exit 2; }
for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$work/src"; done
"$python" - "$work/src" <<'PY'
import ast, inspect, pathlib, sys, types

source = pathlib.Path(sys.argv[1])

def tree(path):
    return ast.parse((source / path).read_text())

def named(root, name):
    return next(node for node in ast.walk(root) if getattr(node, "name", "") == name)

def function(node, known):
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            each.annotation = None
        elif isinstance(each, ast.FunctionDef):
            each.returns, each.decorator_list = None, []
        elif isinstance(each, ast.AnnAssign):
            each.annotation = ast.Constant(None)
    exec(compile(ast.fix_missing_locations(ast.Module([node], [])), node.name, "exec"), known)
    return known[node.name]

soap = named(tree("emerging_optimizers/soap/soap.py"), "SOAP")
step = named(soap, "step")
fields = named(tree("megatron/core/optimizer/optimizer_config.py"), "OptimizerConfig").body
asked = {node.target.id: ast.literal_eval(node.value) for node in fields if isinstance(node, ast.AnnAssign) and node.target.id.startswith("soap_")}
asked["soap_precondition_frequency"] = 10

SOAP = type("SOAP", (), {"__init__": function(named(soap, "__init__"), {})})
core = tree("megatron/core/optimizer/emerging_optimizers.py")
known = {"inspect": inspect, "registry": types.SimpleNamespace(get_optimizer_cls=lambda name: SOAP)}
function(named(core, "_kwargs_from_config"), known)
arguments = function(named(core, "_default_adam_based_eopt_config_to_kwargs"), known)
given = arguments("soap", types.SimpleNamespace(**asked, adam_beta1=0.9, adam_beta2=0.999), [], None)
lost = [name for name in asked if name.removeprefix("soap_") not in given]

def conditions(node, above=()):
    """Conditions around the call that decomposes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and getattr(child.func, "id", "") == "update_eigenbasis_and_exp_avgs":
            yield list(above)
        yield from conditions(child, (*above, *([ast.unparse(node.test)] if isinstance(node, ast.If) else [])))

around = list(conditions(step))
print(f"asked: {asked}\npassed to SOAP: {given}\nlost: {lost}\nconditions around the decomposition in SOAP.step: {around}")
sys.exit((lost, around) != (["soap_precondition_frequency"], [[]]))
PY
