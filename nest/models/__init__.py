"""Built-in model importers: a file for a family and those of its lineage, loaded once a model is one of theirs.

Belongs here: families and the graphs they give. Does not: what a graph costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from nest.hooks.protocols import ModelImporter
from nest.hooks.spec import hook
from nest.records import Record
from nest.spec import TransformerSpec

if TYPE_CHECKING:
    from nest.graph import OperatorGraph
    from nest.spec import Architecture, Training


@frozen(eq=False, repr=False)
class InFile(Record):
    """An importer whose module is loaded once a model needs it."""

    name: str  # As `nest models` lists it.
    module: str  # Of the importer, in this package.

    @property
    def importer(self) -> Any:
        """Return the functions of the importer: its module."""
        return import_module(f"nest.models.{self.module}")

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """Build the operator graph of one sample."""
        graph: OperatorGraph = self.importer.load(source, training)
        return graph


@frozen(eq=False, repr=False)
class Described(InFile):
    """The reader of `TransformerSpec`: a transformer described by its widths."""

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a `TransformerSpec`."""
        return isinstance(source, TransformerSpec)

    def architecture(self, source: Any) -> Architecture:
        """Describe the model."""
        made: Architecture = self.importer.architecture(source)
        return made


@frozen(eq=False, repr=False)
class Operators(InFile):
    """The reader of written-out operator graphs."""

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with operators and layers, or holds one under `graph`."""
        return is_graph(held_graph(source))

    def sequence_length(self, source: Any) -> int:
        """Return the tokens of the graph's sample; 0: it has no sequence."""
        length: int = self.importer.sequence_length(source)
        return length


def held_graph(source: Any) -> Any:
    """Return the operator graph under `graph` in `source`, else `source` itself."""
    held = source
    while isinstance(held, Mapping) and not is_graph(held):
        held = held.get("graph")
    return source if held is None else held


def is_graph(source: Any) -> bool:
    """Return whether `source` is a mapping with operators and layers."""
    return isinstance(source, Mapping) and {"operators", "layers"} <= source.keys()


@frozen(eq=False, repr=False)
class Family(Described):
    """A family of models by the names of its configurations; its name is their `model_type`."""

    also: tuple[str, ...] = ()  # Further `model_type`s of the same architecture.

    @property
    def importer(self) -> Any:
        """Return the importer in the module's table."""
        return evolve(import_module(f"nest.models.{self.module}").FAMILIES[self.name], name=self.name)

    @property
    def examples(self) -> tuple[Mapping[str, Any], ...]:
        """Return configurations to try it on (`nest.testing`), for families missing in the model library."""
        from nest.catalogue import library_models
        from nest.models.building.config import USUAL

        listed = any(model.family == self.name for model in library_models().values())
        return () if listed else ({"model_type": self.name, **USUAL, **self.importer.example},)

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with this family's `model_type`."""
        return isinstance(source, Mapping) and source.get("model_type") in (self.name, *self.also)


FAMILIES = {
    "composed": "bert falcon gemma4_text gpt2 gpt_neox llama4_text mimo_v2_flash minimax_m3_vl step3p5",
    "deepseek": "deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4_moe_lite glm_moe_dsa mistral4 youtu",
    "hybrids": (
        "bailing_hybrid bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 lfm2_moe mamba "
        "mamba2 minimax nemotron_h qwen3_5 qwen3_5_moe qwen3_next"
    ),
    "rows": (
        "apertus arcee cohere cohere2 cwm dots1 ernie4_5 ernie4_5_moe eurobert exaone4 exaone_moe flex_olmo gemma "
        "gemma2 gemma3_text glm glm4 glm4_moe gpt_oss granite granitemoe hunyuan_v1_dense hunyuan_v1_moe hy_v3 llama "
        "mimo minimax_m2 ministral3 mistral mixtral modernbert nemotron olmo2 olmo3 olmoe phi3 qwen2 qwen2_moe qwen3 "
        "qwen3_moe seed_oss smollm3 solar_open starcoder2"
    ),
}
"""Families by the module of their importers."""

ALSO = {
    "bert": "camembert roberta xlm-roberta",
    "deepseek_v3": "kimi_k2 sarvam_mla",
    "gemma4_text": "gemma4_unified_text",
    "glm4": "glm4v_text",
    "glm4_moe": "glm4v_moe_text sarvam_moe",
    "minimax": "minimax_text_01 minimax_m1",
    "minimax_m3_vl": "minimax_m3_vl_text minimax_m3",
    "qwen2": "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text",
    "qwen3": "qwen3_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_moe": "qwen3_vl_moe_text qwen3_omni_moe_text",
    "step3p5": "step3p7",
}
"""Further `model_type`s of the same architecture."""


@hook
def nest_model_importers() -> list[ModelImporter]:
    """Return the families nest knows without plug-ins."""
    families: list[ModelImporter] = [
        Family(name, module, tuple(ALSO.get(name, "").split()))
        for module, names in FAMILIES.items()
        for name in names.split()
    ]
    families.append(Operators("operator_graph", "operator_graph"))
    families.append(Described("transformer", "transformer"))
    return sorted(families, key=lambda importer: importer.name)
