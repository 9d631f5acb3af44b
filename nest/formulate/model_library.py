"""The models nest knows by name: `nest/library/models`, one TOML file each."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from attrs import frozen


@frozen
class LibraryModel:
    """A named model.

    Attributes:
        name: what people write.
        sources: where its figures were read.
        config: the keys of its `config.json` that decide its operators.
    """

    name: str
    sources: tuple[str, ...]
    config: dict[str, Any]

    @property
    def family(self) -> str:
        """Its `model_type`."""
        return str(self.config["model_type"])


@cache
def library_models() -> dict[str, LibraryModel]:
    """Every named model, by name."""
    texts = {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in files("nest").joinpath("library", "models").iterdir()
        if entry.name.endswith(".toml")
    }
    models = {}
    for name in sorted(texts):
        content = tomllib.loads(texts[name])
        models[name] = LibraryModel(name, tuple(content["sources"]), content["config"])
    return models
