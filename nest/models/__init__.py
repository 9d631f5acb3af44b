"""Built-in model importers: a file for a family and those of its lineage, loaded once a model is one of theirs.

Belongs here: families and the graphs they give. Does not: what a graph costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import frozen

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
    place: str  # Module and variable of the importer in this package.

    @property
    def importer(self) -> Any:
        """Return the importer."""
        module, _, variable = self.place.partition(".")
        return getattr(import_module(f"nest.models.{module}"), variable)

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
class Family(InFile):
    """A family of models by the names of its configurations; its name is their `model_type`."""

    also: tuple[str, ...] = ()  # Further `model_type`s of the same architecture.

    @property
    def examples(self) -> tuple[Mapping[str, Any], ...]:
        """Return configurations to try it on (`nest.testing`), for families missing in the model library."""
        given: tuple[Mapping[str, Any], ...] = self.importer.examples
        return given

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with this family's `model_type`."""
        return isinstance(source, Mapping) and source.get("model_type") in (self.name, *self.also)

    def architecture(self, source: Any) -> Architecture:
        """Describe the model, as `ConfigImporter.architecture`."""
        made: Architecture = self.importer.architecture(source)
        return made


@hook
def nest_model_importers() -> list[ModelImporter]:
    """Return the families nest knows without plug-ins."""
    return [
        Family("apertus", "rows.apertus"),
        Family("arcee", "rows.arcee"),
        Family("bamba", "hybrids.bamba"),
        Family("gemma4_text", "composed.gemma4", also=("gemma4_unified_text",)),
        Family("minimax_m3_vl", "composed.minimax_m3", also=("minimax_m3_vl_text", "minimax_m3")),
        Family("step3p5", "composed.step3", also=("step3p7",)),
        Family("bert", "bert.importer"),
        Family("cohere", "rows.cohere"),
        Family("cohere2", "rows.cohere2"),
        Family("deepseek_v2", "deepseek.deepseek_v2"),
        Family("deepseek_v3", "deepseek.deepseek_v3", also=("kimi_k2",)),
        Family("deepseek_v32", "deepseek.deepseek_v32"),
        Family("deepseek_v4", "deepseek.deepseek_v4"),
        Family("ernie4_5", "rows.ernie"),
        Family("ernie4_5_moe", "ernie.moe"),
        Family("exaone4", "rows.exaone4"),
        Family("exaone_moe", "rows.exaone_moe"),
        Family("gemma", "rows.gemma"),
        Family("gemma2", "rows.gemma2"),
        Family("gemma3_text", "rows.gemma3"),
        Family("glm4", "rows.glm4"),
        Family("glm4_moe", "rows.glm4_moe"),
        Family("glm4_moe_lite", "deepseek.glm4_moe_lite"),
        Family("glm_moe_dsa", "deepseek.glm_moe_dsa"),
        Family("gpt2", "gpt2.importer"),
        Family("falcon_h1", "hybrids.falcon_h1"),
        Family("granitemoehybrid", "hybrids.granitemoehybrid"),
        Family("nemotron_h", "hybrids.nemotron_h"),
        Family("qwen3_next", "hybrids.qwen3_next"),
        Family("mamba", "hybrids.mamba"),
        Family("falcon_mamba", "hybrids.falcon_mamba"),
        Family("mamba2", "hybrids.mamba2"),
        Family("jamba", "hybrids.jamba"),
        Family("lfm2", "hybrids.lfm2"),
        Family("lfm2_moe", "hybrids.lfm2_moe"),
        Family("minimax", "hybrids.minimax", also=("minimax_text_01", "minimax_m1")),
        Family("kimi_linear", "hybrids.kimi_linear"),
        Family("bailing_hybrid", "hybrids.bailing_hybrid"),
        Family("qwen3_5", "hybrids.qwen3_5", also=("qwen3_5_text",)),
        Family("qwen3_5_moe", "hybrids.qwen3_5_moe", also=("qwen3_5_moe_text",)),
        Family("falcon", "gpt_neox.falcon"),
        Family("gpt_neox", "gpt_neox.gpt_neox"),
        Family("gpt_oss", "rows.gpt_oss"),
        Family("granite", "rows.granite"),
        Family("granitemoe", "rows.granitemoe"),
        Family("hunyuan_v1_dense", "hunyuan.dense"),
        Family("hunyuan_v1_moe", "hunyuan.moe"),
        Family("llama", "rows.llama"),
        Family("llama4_text", "llama.llama4"),
        Family("mimo", "qwen.mimo"),
        Family("mimo_v2_flash", "qwen.mimo_v2"),
        Family("minimax_m2", "rows.minimax_m2"),
        Family("ministral3", "rows.ministral3"),
        Family("mistral", "rows.mistral"),
        Family("mistral4", "deepseek.mistral4"),
        Family("mixtral", "rows.mixtral"),
        Family("olmo2", "rows.olmo2"),
        Family("olmo3", "rows.olmo3"),
        Operators("operator_graph", "operator_graph.importer"),
        Family("phi3", "rows.phi3"),
        Family("qwen2", "qwen.qwen2", also=("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")),
        Family("qwen2_moe", "qwen.qwen2_moe"),
        Family("qwen3", "qwen.qwen3", also=("qwen3_vl_text",)),
        Family("qwen3_moe", "qwen.qwen3_moe", also=("qwen3_vl_moe_text",)),
        Family("seed_oss", "rows.seed_oss"),
        Family("smollm3", "rows.smollm3"),
        Family("solar_open", "rows.solar_open"),
        Described("transformer", "transformer.importer"),
        Family("youtu", "deepseek.youtu"),
    ]
