"""`nest models`: the families and names nest knows, or a description of one model."""

from pathlib import Path
from typing import Any

import typer

from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import to_json, warn


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("models")(models)


def models(
    source: str | None = typer.Argument(
        None,
        metavar="[SOURCE]",
        help="A config.json, a file with `transformer:`, an operator graph, a captured program, or a name listed.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    sequence_length: int | None = typer.Option(
        None,
        "--sequence-length",
        min=1,
        metavar="N",
        help="Tokens per sample; left out, the model's context, at most 4096, or what a graph was captured for.",
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """List the model families and names, or describe one model.

    Exit code 0: done; 2: bad input.
    """
    from nest.hooks.registry import registry

    content = _list() if source is None else registry().run(lambda: _describe(source, sequence_length))
    warn(registry().warnings)
    if as_json:
        typer.echo(to_json(content))
    else:
        typer.echo("\n".join(_list_lines(content) if source is None else _lines(content)))


def _list() -> dict[str, Any]:
    from nest.formulate.model_library import library_models
    from nest.hooks.registry import registry

    known = registry()
    return {
        "families": [
            {"name": name, "distribution": known.origin("model_importers", name)[0]}
            for name in sorted(known.model_importers())
        ],
        "models": [
            {"name": model.name, "family": model.family, "sources": list(model.sources)}
            for model in library_models().values()
        ],
    }


def _describe(source: str, sequence_length: int | None) -> dict[str, Any]:
    from nest.formulate.describe import describe
    from nest.formulate.sources import default_sequence_length, load_model, resolve_model
    from nest.hooks.registry import registry
    from nest.spec import Training

    length = sequence_length or default_sequence_length(resolve_model(source, Path()), registry())
    training = Training(global_batch=1, sequence_length=length)
    graph = load_model(source, training, Path(), registry())
    return {"source": source, **describe(graph, training)}


def _list_lines(content: dict[str, Any]) -> list[str]:
    width = max(len(model["name"]) for model in content["models"])
    return [
        "Families, by the model_type of a config.json (transformer: described by widths)",
        *(f"  {family['name']:{width}}  {family['distribution']}" for family in content["families"]),
        "Models by name",
        *(f"  {model['name']:{width}}  {model['family']}" for model in content["models"]),
    ]


def _lines(content: dict[str, Any]) -> list[str]:
    tied = "shares the word embedding's" if content["tied_embeddings"] else ""
    rows = {
        "family": content["family"],
        "parameters": f"{content['parameters']:,}",
        "  active per token": f"{content['active_parameters']:,}",
        "  routed experts": f"{content['routed_expert_parameters']:,}",
        "  word embedding": f"{content['input_embedding_parameters']:,}",
        "  LM head": tied or f"{content['lm_head_parameters']:,}",
        "transformer blocks": f"{content['layers']}",
        "tokens per sample": f"{content['sequence_length']:,}",
        "forward FLOP per token": f"{content['flops_per_token']:.4g} of the model, "
        f"{content['executed_flops_per_token']:.4g} as executed",
    }
    return [
        content["source"],
        *(f"  {name:24}{value}" for name, value in rows.items()),
        f"  {'layer':24}{'parameters':>16}{'FLOP per token':>16}{'kept per sample':>18}",
        *(_run_line(run) for run in content["layer_runs"]),
        *(f"  assumed: {sentence}" for sentence in content["assumptions"]),
    ]


def _run_line(run: dict[str, Any]) -> str:
    last = run["last"].rpartition(".")[2]
    name = run["first"] if run["count"] == 1 else f"{run['first']} to {last}, each"
    mebibytes = run["activation_bytes"] / 2**20
    return f"  {name:24}{run['parameters']:>16,}{run['flops_per_token']:>16.4g}{mebibytes:>14,.1f} MiB"
