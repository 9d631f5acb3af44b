"""`nest models`: known families and names, or a description of one model."""

from pathlib import Path
from typing import Any

import typer

from nest.cli.options import JSON, STRICT_PLUGINS, complete_models, positions
from nest.cli.output import show, warn_of_plugins
from nest.hooks.registry import registry
from nest.report.text.layout import Screen, figures, paragraph, table


def models(
    source: str | None = typer.Argument(
        None,
        metavar="[SOURCE]",
        autocompletion=complete_models,
        help="Name, config.json, operator graph or exported program.",
    ),
    as_json: bool = JSON,
    sequence_length: int | None = typer.Option(
        None,
        "--sequence-length",
        parser=positions,
        metavar="N",
        help="Tokens per sample; default: the model's, at most 4096.",
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """List the model families and names, or describe one model.

    Exit code 0: done; 2: bad input.
    """
    content = _list() if source is None else registry().run(lambda: _describe(source, sequence_length))
    warn_of_plugins()
    text = _list_text if source is None else _text
    show(as_json, content, lambda screen: text(content, screen))


def _list() -> dict[str, Any]:
    from nest.catalogue import library_models

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
    from nest.catalogue.spellings import model_called
    from nest.formulate.model import default_sequence_length, describe, load_model, resolve_model
    from nest.formulate.problem import naming
    from nest.spec import Training

    source = model_called(source)
    length = sequence_length or default_sequence_length(resolve_model(source, Path()), registry())
    with naming(None):
        training = Training(global_batch=1, sequence_length=length)
    graph = load_model(source, training, registry())
    return {"source": source, **describe(graph, training)}


def _list_text(content: dict[str, Any], shown_on: Screen) -> str:
    width = max(len(model["name"]) for model in content["models"])
    lines = [
        "Families, by the model_type of a config.json (transformer: described by widths)",
        *(f"  {family['name']:{width}}  {family['distribution']}" for family in content["families"]),
        "Models by name",
        *(f"  {model['name']:{width}}  {model['family']}" for model in content["models"]),
    ]
    return "\n".join(paragraph(line, shown_on) for line in lines)


def _text(content: dict[str, Any], shown_on: Screen) -> str:
    unit = "sample" if content["sequence_length"] is None else "token"
    tied = "shared with the word embedding" if content["tied_embeddings"] else ""
    rows = [
        ("family", content["family"]),
        ("parameters", f"{content['parameters']:,}"),
        ("  active per token", f"{content['active_parameters']:,}"),
        ("  routed experts", f"{content['routed_expert_parameters']:,}"),
        ("  word embedding", f"{content['input_embedding_parameters']:,}"),
        ("  LM head", tied or f"{content['lm_head_parameters']:,}"),
        ("transformer blocks", f"{content['layers']}"),
        *([] if unit == "sample" else [("tokens per sample", f"{content['sequence_length']:,}")]),
        (
            f"forward FLOP per {unit}",
            f"{content[f'flops_per_{unit}']:.4g} of the model, {content[f'executed_flops_per_{unit}']:.4g} as executed",
        ),
    ]
    header = ("layer", "parameters", f"FLOP per {unit}", "kept per sample")
    inner = shown_on._replace(width=max(shown_on.width - 2, 1)) if shown_on.width else shown_on
    layers = table(
        header,
        [_run(run, unit) for run in content["layer_runs"]],
        (1, 2, 3),
        inner,
        least=(24, 14, 14, 16),
        ruled=False,
    )
    return "\n".join(
        [
            content["source"],
            figures(rows, shown_on, 2),
            *(f"  {line}".rstrip() for line in layers.splitlines()),
            *(paragraph(f"  assumed: {sentence}", shown_on, 2) for sentence in content["assumptions"]),
        ]
    )


def _run(run: dict[str, Any], unit: str) -> tuple[str, ...]:
    last = run["last"].rpartition(".")[2]
    name = run["first"] if run["count"] == 1 else f"{run['first']} to {last}, each"
    mebibytes = run["activation_bytes"] / 2**20
    return name, f"{run['parameters']:,}", f"{run[f'flops_per_{unit}']:.4g}", f"{mebibytes:,.1f} MiB"
