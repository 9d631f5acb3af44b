"""Public modules of nest, and the check that a plug-in imports only these."""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from nest_testing.finding import Finding

MODULES = (
    "nest",
    "nest.catalogue",
    "nest.catalogue.entries",
    "nest.catalogue.spellings",
    "nest.deployment",
    "nest.deployment.deployment",
    "nest.deployment.pytorch_schedules",
    "nest.deployment.ranks",
    "nest.errors",
    "nest.graph",
    "nest.graph.operator",
    "nest.graph.operator_graph",
    "nest.graph.repeat",
    "nest.hooks",
    "nest.hooks.architectures",
    "nest.hooks.pipelines",
    "nest.hooks.placements",
    "nest.hooks.planning",
    "nest.hooks.protocols",
    "nest.hooks.registry",
    "nest.hooks.spec",
    "nest.instance",
    "nest.instance.cluster",
    "nest.instance.pairs",
    "nest.instance.schedule",
    "nest.io",
    "nest.io.source",
    "nest.io.structuring",
    "nest.io.writing",
    "nest.network",
    "nest.network.graph",
    "nest.network.imported",
    "nest.public.changes",
    "nest.public.checks",
    "nest.public.commands",
    "nest.public.layout",
    "nest.public.planning",
    "nest.public.questions",
    "nest.public.sharding",
    "nest.public.text",
    "nest.public.verbs",
    "nest.records",
    "nest.reuse",
    "nest.solve.effort",
    "nest.solve.inseparable",
    "nest.spec",
    "nest.spec.architecture",
    "nest.spec.constraints",
    "nest.spec.measurements",
    "nest.spec.problem",
    "nest.spec.training",
    "nest.spec.validators",
    "nest.testing",
    "nest.tolerances",
    "nest.units",
    "nest.version",
)
"""Public modules: the names of their `__all__`, else those without a leading underscore."""

CHECK = "its code imports public names of nest alone"
PAGE = "docs/reference/public.md"


def check_imports(item: Any) -> tuple[Finding, ...]:
    """Check the package or file that defines an object's class, unless it is nest's own, tests or a test."""
    *_, last = names = type(item).__module__.split(".")
    top = names[0]
    place = getattr(sys.modules.get(top), "__file__", None)
    if top == "nest" or top.endswith("tests") or last.startswith("test_") or place is None or not Path(place).is_file():
        return ()
    files = sorted(Path(place).parent.rglob("*.py")) if Path(place).name == "__init__.py" else [Path(place)]
    private = [f"{path.name}: {line}" for path in files for line in private_imports(path.read_text(encoding="utf-8"))]
    return (Finding(CHECK, not private, private[0] if private else f"{len(files)} files"),)


def private_imports(source: str) -> Iterator[str]:
    """Yield a sentence for each private name of nest that Python code imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported = [(each.name, "") for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported = [(node.module or "", each.name) for each in node.names]
        else:
            continue
        for module, name in imported:
            if module.partition(".")[0] == "nest" and not _public(module, name):
                named = f"{module}.{name}".rstrip(".")
                yield f"line {node.lineno} imports {named}, which is private and may change; {PAGE} lists public names"


def _public(module: str, name: str) -> bool:
    """Return whether an import takes a public module or name; `*` takes the public names of a module."""
    return f"{module}.{name}" in MODULES or (module in MODULES and (name in ("", "*") or name in _names(module)))


def _names(module: str) -> frozenset[str]:
    loaded = import_module(module)
    names = getattr(loaded, "__all__", None)
    return frozenset(names if names is not None else (name for name in vars(loaded) if not name.startswith("_")))
