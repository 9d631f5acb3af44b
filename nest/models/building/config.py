"""Reader of Hugging Face configurations that reports all mistakes together, and the importer of a family."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from nest.errors import InputErrors
from nest.graph import OperatorGraph
from nest.models.building.graph import build_graph
from nest.models.building.left_out import AROUND, LARGEST, MOST_LAYERS, further_layers, left_out, with_further_layers
from nest.records import Record
from nest.spec import Training
from nest.spec.architecture import (
    FURTHER,
    Architecture,
    FeedForward,
    GroupedQueryAttention,
    HybridBlock,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
    TransformerBlock,
)

Network = FeedForward | MixtureOfExperts

SLIDING = "sliding_attention"  # Word of `layer_types` for a layer with windowed attention.
FULL = "full_attention"  # Word of `layer_types` for a layer without a window.
LINEAR = "linear_attention"  # Word of `layer_types` for a layer with a state.
OLD_WORDS = {"mamba": LINEAR, "attention": FULL, "M": LINEAR, "*": FULL, "E": "moe", "-": "mlp"}
"""Words of `layer_types` and letters of `hybrid_override_pattern`, for older ones."""

NO_BIASES = (False, False)
ATTENTION = ("attention_bias", "attention_bias")


def _lists(value: Any, kind: type) -> bool:
    """Return whether `value` is a list of `kind`, not of truth values."""
    return isinstance(value, list | tuple) and all(isinstance(v, kind) and not isinstance(v, bool) for v in value)


@define(eq=False, repr=False)
class ConfigReader:
    """A configuration whose mistakes are collected until `finish` reports them together.

    After a mistake a harmless value is returned, so that reading goes on.
    """

    config: Mapping[str, Any]  # The content of the file.
    family: str  # The importer's name, for messages.
    problems: list[str] = field(factory=list)  # The mistakes found so far.
    further: HybridBlock | None = None  # The block that predicts further tokens, if it is not as the last.

    def has(self, key: str, missing: bool = False) -> bool:
        """Return whether `key` has a value other than null; `missing` for a missing key."""
        return self.config[key] is not None if key in self.config else missing

    def fill(self, **missing: Any) -> None:
        """Give missing keys the values of `missing`; so are null truth values."""
        said = {key: v for key, v in self.config.items() if v is not None or not isinstance(missing.get(key), bool)}
        self.config = {**missing, **said}

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1, maximum: int = LARGEST) -> int:
        """Read the whole number at `key`; `default`, unless None, stands for a missing or null one."""
        if not self.has(key):
            if default is None:
                self.problem(f"`{key}` is missing")
                return minimum
            return default
        value = self.config[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            self.problem(f"`{key}` must be a whole number from {minimum} to {maximum}, not {value!r:.60}")
            return minimum
        return value

    def optional_integer(self, key: str, default: int | None = None) -> int | None:
        """Read the whole number at `key`; None for null, `default` for a missing key."""
        if key not in self.config:
            return default
        return self.integer(key) if self.has(key) else None

    def boolean(self, key: str, default: bool) -> bool:
        """Read the truth value at `key`; `default` for a missing or null one."""
        value: bool = self._value(key, default, "true or false", lambda value: isinstance(value, bool))
        return value

    def word(self, key: str, default: str) -> str:
        """Read the text at `key`; `default` for a missing or null one."""
        value: str = self._value(key, default, "a word", lambda value: isinstance(value, str))
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """Read the list of whole numbers at `key`; empty for a missing or null one."""
        return tuple(self._value(key, (), "a list of whole numbers", lambda value: _lists(value, int)))

    def words(self, key: str) -> tuple[str, ...] | None:
        """Read the list of words at `key`; None for a missing or null one."""
        value = self._value(key, None, "a list of words", lambda value: _lists(value, str))
        return None if value is None else tuple(value)

    def _value(self, key: str, default: Any, kind: str, valid: Callable[[Any], bool]) -> Any:
        """Read a `valid` value at `key`; `default` for a missing or null one, and after a mistake."""
        if not self.has(key) or valid(self.config[key]):
            return self.config[key] if self.has(key) else default
        self.problem(f"`{key}` must be {kind}, not {self.config[key]!r:.60}")
        return default

    def nested(self, key: str) -> "ConfigReader":
        """Return the reader of the mapping at `key`; of an empty one if there is none."""
        inner = self.config.get(key)
        return ConfigReader(inner if isinstance(inner, Mapping) else {}, self.family, self.problems)

    def rename(self, **older: str) -> None:
        """Give missing keys the values at their `older` names."""
        self.config = {**{key: self.config[old] for key, old in older.items() if self.has(old)}, **self.config}

    def sparse_layers(self, usual: Callable[[int], bool]) -> list[bool]:
        """Return for each layer whether it has experts: by `mlp_layer_types`, a list `moe_layer_freq`, or `usual`."""
        kinds = self.words("mlp_layer_types")
        if kinds is not None:
            if len(kinds) != self.layers or not {*kinds} <= {"dense", "sparse"}:
                self.problem(f"`mlp_layer_types` must name `dense` or `sparse` for each of the {self.layers} layers")
            return [kind == "sparse" for kind in kinds]
        listed = isinstance(self.config.get("moe_layer_freq"), list) and self.flags("moe_layer_freq", self.layers)
        return [each != 0 for each in listed or map(usual, range(self.layers))]

    def divides(self, part: str, divisor: int, whole: str, number: int) -> None:
        """Note a mistake unless `divisor`, the value of `part`, divides `number`, the value of `whole`."""
        if number % divisor:
            self.problem(f"`{part}` ({divisor}) must divide `{whole}` ({number})")

    def at_most(self, key: str, value: int, limit_key: str, limit: int) -> None:
        """Note a mistake unless `value` is at most `limit`."""
        if value > limit:
            self.problem(f"`{key}` ({value}) must be at most `{limit_key}` ({limit})")

    def uniform(self, key: str) -> Any:
        """Read the value at `key`, or the common value of a list there; None: missing."""
        value = self.config.get(key)
        return value[0] if isinstance(value, list) and value and all(each == value[0] for each in value) else value

    def builds(self, **values: Any) -> None:
        """Note a mistake for each key that contradicts a model class that does not read it."""
        for key, built in values.items():
            if self.uniform(key) not in (None, built):
                self.problem(f"`{key}` is {self.config[key]!r:.60}, but the model class builds {built!r}")

    def head(self, expected: str) -> None:
        """Note a mistake if `architectures` is given without the model class `expected` or one around it."""
        named = [each for each in self.words("architectures") or () if not each.endswith(AROUND)]
        if named and {*expected.lower().split()}.isdisjoint(each.lower() for each in named):
            self.problem(
                f"`architectures` says {', '.join(named)}, but only {expected.split()[0]} is built; "
                "change it if the language-model head is what you train"
            )

    def problem(self, text: str) -> None:
        """Note a mistake."""
        sentence = f"{self.family} configuration: {text}."
        self.problems += [sentence] if sentence not in self.problems else []

    def finish(self) -> None:
        """Report the mistakes, if any.

        Raises:
            InputErrors: there are some.
        """
        if self.problems:
            raise InputErrors(self.problems)

    @property
    def layers(self) -> int:
        """Return the number of blocks."""
        return self.integer("num_hidden_layers", maximum=MOST_LAYERS)

    @property
    def hidden(self) -> int:
        """Return the model width."""
        return self.integer("hidden_size")

    @property
    def heads(self) -> int:
        """Return the number of attention heads."""
        return self.integer("num_attention_heads")

    def even_head(self, heads: str = "num_attention_heads", hidden: str = "hidden_size") -> int:
        """Return the channels of each head at these keys, which divide the model width."""
        count, width = self.integer(heads), self.integer(hidden)
        self.divides(heads, count, hidden, width)
        return max(width // count, 1)

    def attention(self, biases: tuple[str | bool, str | bool] = NO_BIASES, **details: Any) -> GroupedQueryAttention:
        """Read grouped-query attention without its window.

        A missing `head_dim` means `hidden_size` over the heads; a missing `num_key_value_heads` means as many as heads.

        Args:
            biases: whether queries, keys and values have biases, and whether the result has one, or the keys for these.
            details: further fields of `GroupedQueryAttention`.
        """
        head = self.optional_integer("head_dim") or self.even_head()
        groups = self.optional_integer("num_key_value_heads") or self.heads
        self.divides("num_key_value_heads", groups, "num_attention_heads", self.heads)
        query, output = (self.boolean(key, False) if isinstance(key, str) else key for key in biases)
        return GroupedQueryAttention(self.heads, groups, head, query, output, **details)

    def mixture(
        self,
        *,
        experts: str = "num_experts",
        top_k: str = "num_experts_per_tok",
        width: str = "moe_intermediate_size",
        **details: Any,
    ) -> MixtureOfExperts:
        """Read routed experts from the named keys; `details` are further fields of `MixtureOfExperts`."""
        mixture = MixtureOfExperts(self.integer(experts), self.integer(top_k), self.integer(width), **details)
        self.at_most(top_k, mixture.top_k, experts, mixture.experts)
        return mixture

    def decoder(
        self, attention: Mixer | Sequence[Mixer | None], network: Network | Sequence[Network | None], **build: Any
    ) -> Architecture:
        """Describe a decoder of blocks that differ only in the given sequences.

        Args:
            attention: mixer of every block, or of each.
            network: likewise.
            build: further fields of `Architecture`.
        """
        attentions = attention if isinstance(attention, Sequence) else (attention,) * self.layers
        networks = network if isinstance(network, Sequence) else (network,) * self.layers
        # Lists of another length are a mistake that `config` has noted.
        pairs = list(zip(attentions, networks, strict=False))
        blocks = tuple(
            TransformerBlock(mixer, inner)
            for mixer, inner in pairs
            if isinstance(mixer, GroupedQueryAttention | LatentAttention) and inner is not None
        )
        hybrid = () if len(blocks) == len(pairs) else tuple(HybridBlock(*pair) for pair in pairs)
        vocab, tied = self.integer("vocab_size"), self.boolean("tie_word_embeddings", False)
        blocks = () if hybrid else blocks
        return Architecture(self.family, self.hidden, vocab, blocks, tied=tied, hybrid=hybrid, **build)

    def by_layer(self, kinds: Mapping[str, Any], usual: Callable[[int], str]) -> list[Any]:
        """Return the value for each layer of its word, one of `kinds`.

        Args:
            usual: the word from the index of a layer, for configurations without `layer_types` or `layers_block_type`.
        """
        key = "layer_types" if self.has("layer_types") else "layers_block_type"
        words: Sequence[str] | None = self.words(key)
        if words is None:
            words = [usual(index) for index in range(self.layers)]
        words = [word if word in kinds else OLD_WORDS.get(word, word) for word in words]
        if len(words) != self.layers or not {*words} <= {*kinds}:
            known = " or ".join(f"`{word}`" for word in kinds)
            self.problem(f"`{key}` must name {known} for each of the {self.layers} layers")
            words = [next(iter(kinds))] * self.layers
        return [kinds[word] for word in words]

    def flags(self, key: str, layers: int) -> tuple[int, ...]:
        """Read the list at `key` of a 0 or a 1 for each layer; empty for a missing or empty one."""
        listed = self.integers(key)
        if listed and len(listed) != layers:
            self.problem(f"`{key}` must have a 0 or a 1 for each of the {layers} layers")
        return listed

    def rotated_layers(self) -> tuple[bool, ...]:
        """Return for each layer whether it rotates queries and keys, by `no_rope_layers` or all but each fourth."""
        every = self.integer("no_rope_layer_interval", 4)
        listed = self.flags("no_rope_layers", self.layers)
        return tuple(map(bool, listed)) or tuple((index + 1) % every != 0 for index in range(self.layers))

    def dense_and_sparse(
        self, sparse: Sequence[bool], mixture: MixtureOfExperts, width: str = "intermediate_size"
    ) -> tuple[Network, ...]:
        """Return the network of each layer: `mixture`, or a dense one, whose `width` is read only then."""
        dense = mixture if all(sparse) else FeedForward(self.integer(width))
        return tuple(mixture if each else dense for each in sparse)

    def experts_behind_dense_layers(
        self, experts: str = "n_routed_experts", shared: str = "n_shared_experts"
    ) -> tuple[Network, ...]:
        """Read the network of each layer in DeepSeek's form: as `mlp_layer_types` says, or the first few are dense.

        A width is read only if a layer has it.

        Args:
            experts: key of the number of routed experts.
            shared: key of the number of experts that every token visits.
        """
        dense_layers = self.integer("first_k_dense_replace", 0, minimum=0)
        every = 1 if isinstance(self.config.get("moe_layer_freq"), list) else self.integer("moe_layer_freq", 1)
        sparse = self.sparse_layers(lambda index: index >= dense_layers and index % every == 0)
        if not any(sparse):
            return (FeedForward(self.integer("intermediate_size")),) * self.layers
        width = self.integer("moe_intermediate_size") * self.integer(shared, 0, minimum=0)
        return self.dense_and_sparse(sparse, self.routed_experts(experts, width))

    def routed_experts(self, experts: str, shared_width: int) -> MixtureOfExperts:
        """Read routed experts in DeepSeek's form, perhaps in groups that a token chooses from first."""
        groups = self.integer("n_group", 1)
        visited = self.integer("topk_group", 1) if groups > 1 else 1
        self.at_most("topk_group", visited, "n_group", groups)
        return self.mixture(experts=experts, shared_width=shared_width, groups=groups, visited_groups=visited)


USUAL = {"vocab_size": 49152, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8}
USUAL |= {"num_attention_heads": 16, "num_key_value_heads": 4}
"""Widths of a small model."""


@frozen(eq=False, repr=False)
class ConfigImporter(Record):
    """The importer of one family's configurations."""

    head: str  # The model class, as `architectures` names it.
    read: Callable[[ConfigReader], Architecture]  # Turns a configuration into an architecture.
    example: Mapping[str, Any] = field(factory=dict)  # Keys beside `USUAL` of a configuration to try it on.
    name: str = ""  # `model_type` of its configurations.

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """Build the operator graph of one sample.

        Raises:
            InputErrors: keys are missing or have values the family cannot have; each is named.
            InputError: the training does not suit the model.
        """
        graph = build_graph(self.architecture(source), training)
        return evolve(graph, assumptions=tuple(left_out(source)))

    def architecture(self, source: Any) -> Architecture:
        """Describe the model.

        Raises:
            InputErrors: keys are missing or have values the family cannot have; each is named.
        """
        config = ConfigReader(source, self.name)
        config.head(self.head)
        built = self.read(config)
        config.finish()
        further = next(filter(None, (further_layers(source, key) for key in FURTHER)), 0)
        return with_further_layers(built, further, config.further) if further and source.get("mtp") is True else built
