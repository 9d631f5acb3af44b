"""Statements of the engine: `python -m tests.statements [CHECKOUT]` counts them, package by package."""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Packages that count together: what moves from one to another saves nothing.
ENGINE = ("solve", "formulate", "instance", "network", "whatif")
OUTSIDE = ("nest_cpsat", "nest_whatif")
"""Packages of bundled distributions whose modules count, too; their verbs, commands and texts do not."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def count(tree: ast.AST) -> int:
    """Statements of a module, nested ones included; docstrings, those of constants too, apart."""
    return sum(isinstance(node, ast.stmt) and not _is_docstring(node) for node in ast.walk(tree))


def longest(tree: ast.AST, path: str = "") -> tuple[int, str]:
    """Lines of the longest function, its docstring apart, and where it begins; (0, "") without a function."""
    return max(((_lines(each), f"{path}:{each.lineno} {each.name}") for each in _functions(tree)), default=(0, ""))


def engine(checkout: Path = REPOSITORY) -> tuple[dict[str, int], tuple[int, str]]:
    """Statements of each package of the engine, and its longest function."""
    trees = {
        (package, path.relative_to(checkout).as_posix()): ast.parse(path.read_text())
        for package in (*ENGINE, *OUTSIDE)
        for path in _modules(checkout, package)
    }
    packages = dict.fromkeys((*ENGINE, *OUTSIDE), 0)
    for (package, _), tree in trees.items():
        packages[package] += count(tree)
    return packages, max(longest(tree, path) for (_, path), tree in trees.items())


def _modules(checkout: Path, package: str) -> Sequence[Path]:
    """Its files; a module alone may take its place."""
    if package in OUTSIDE:
        folder = checkout / "plugins" / package.replace("_", "-") / "src" / package
        return sorted(path for path in folder.glob("*.py") if path.stem != "verbs")
    folder = checkout / "nest" / package
    return sorted(folder.rglob("*.py")) or [folder.with_suffix(".py")]


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    described = [each for each in function.body[:1] if _is_docstring(each)]
    return _span(function) - sum(map(_span, described))


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def main(checkout: Path = REPOSITORY) -> None:
    """Print the counts."""
    packages, (lines, place) = engine(checkout)
    for package, statements in packages.items():
        print(f"{package:<10}{statements:>7,}")
    print(f"{'together':<10}{sum(packages.values()):>7,}\nlongest function: {lines} lines, {place}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
