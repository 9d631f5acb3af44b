"""What all importers of Hugging Face configurations do alike."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from nest.graph import OperatorGraph
from nest.models.building.build import build_graph
from nest.models.building.config import ConfigReader
from nest.spec import Training
from nest.spec.architecture import Architecture


@frozen
class ConfigImporter:
    """An importer of the configurations of one family.

    Attributes:
        name: the family, `model_type` of its configurations.
        head: the model class built, as `architectures` names it.
        read: turns a configuration into an architecture.
        also: further `model_type`s of the same architecture.
        examples: configurations to try it on (`nest.testing`), where the model library has none of the family.
    """

    name: str
    head: str
    read: Callable[[ConfigReader], Architecture]
    also: tuple[str, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = field(default=(), eq=False)

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a mapping with this family's `model_type`."""
        return isinstance(source, Mapping) and source.get("model_type") in (self.name, *self.also)

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """The operator graph of one sample.

        Raises:
            InputErrors: keys are missing or have values the family cannot have; each is named.
            InputError: the training does not suit the model.
        """
        return build_graph(self.architecture(source), training)

    def architecture(self, source: Any) -> Architecture:
        """What the model is made of.

        Raises:
            InputErrors: keys are missing or have values the family cannot have; each is named.
        """
        config = ConfigReader(source, self.name)
        config.head(self.head)
        found = self.read(config)
        config.finish()
        return found
