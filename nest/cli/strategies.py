"""`nest strategies`: the registered sub-graph strategies and the distributions that bring them."""

from typing import Any

import typer

from nest.cli.options import JSON, STRICT_PLUGINS
from nest.cli.output import show_table, to_json, warn_of_plugins
from nest.hooks.registry import Registry, registry


def strategies(as_json: bool = JSON, strict_plugins: bool = STRICT_PLUGINS) -> None:
    """List the parallelism strategies in the order they apply.

    Exit code 0: done; 2: strategies with a circular order.
    """
    known = registry()
    rows = known.run(lambda: _rows(known))
    warn_of_plugins()
    if as_json:
        typer.echo(to_json({"strategies": rows}))
        return
    cells = [(row["name"], ", ".join(row["after"]), f"{row['distribution']} {row['version']}".rstrip()) for row in rows]
    show_table(("name", "after", "from"), cells)


def _rows(known: "Registry") -> list[dict[str, Any]]:
    rows = []
    for name, strategy in known.strategies().items():
        distribution, version = known.origin("strategies", name)
        rows.append({"name": name, "after": list(strategy.after), "distribution": distribution, "version": version})
    return rows
