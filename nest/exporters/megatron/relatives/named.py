"""Models that files name as Hugging Face does, and the models of the catalogue."""

import re
from pathlib import Path

from nest.catalogue import library_models
from nest.exporters.keys import Keys
from nest.exporters.trainers.names import catalogued
from nest.hooks.architectures import architecture_of
from nest.io import read_mapping, there_is
from nest.spec import Architecture

_SEEING = re.compile(r"(^|[-_.\d])(vl|omni|vision)([-_.\d]|$)|internvl|llava")


def vocabulary_of(name: str) -> int:
    """Tokens of the vocabulary of a model of the catalogue."""
    return int(library_models()[name].config["vocab_size"])


def with_model(keys: Keys, path: str, folder: Path | None) -> tuple[str | None, Architecture | None]:
    """`model` of a problem for the model that a key names, and what it is made of; None: the problem has to say it.

    `folder`: where the file lies, beside which the model may.
    """
    said = keys.value(path)
    name = catalogued(said) if isinstance(said, str) else None
    if isinstance(said, str) and _SEEING.search(said.rpartition("/")[2].lower()):
        keys.problem(f"{path} is {said!r:.80}, a vision-language model; nest prices decoders like GPT's.")
        return None, None
    if name is not None:
        return name, architecture_of(dict(library_models()[name].config))
    if isinstance(said, str) and folder is not None and there_is(folder / said / "config.json"):
        file = (folder / said / "config.json").resolve()
        return str(file), architecture_of(read_mapping(file).mapping)
    told = "is not given" if said is None else f"is {said!r:.80}, which the catalogue does not have"
    keys.note(f"{path} {told}: the model is the problem's.")
    return None, None
