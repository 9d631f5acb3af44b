"""Models by their names in files of frameworks: in the catalogue, in a `config.json` beside, in narrow formats."""

import re
from collections.abc import Mapping
from typing import Any

from nest.catalogue import library_models
from nest.catalogue.spellings import catalogued, published
from nest.deployment import LANGUAGE_MODEL, MODEL_LEFT, LaunchOptions
from nest.hooks.architectures import architecture_of
from nest.io import read_mapping, there_is
from nest.spec import Architecture
from nest_frameworks.configurations import RENAMED, configuration
from nest_frameworks.keys import Keys

UNKNOWN = "MODEL"
"""Stands for the name of a model that nobody knows."""


def hugging_face_name(model: Any) -> str:
    """Hugging Face's name of the `model` of a plan's problem; `UNKNOWN` if it is not in the catalogue.

    A configuration is one of these where it says all that the catalogue says of it.
    """
    if not isinstance(model, Mapping) or "model_type" not in model:
        return UNKNOWN
    said = configuration(model)

    def holds(key: str, value: Any) -> bool:
        found = said.get(RENAMED.get(key, key))
        return found == value or (key == "rope_scaling" and value == {"rope_type": "default"} and found is None)

    known = (name for name, each in library_models().items() if all(holds(*item) for item in each.config.items()))
    return next((published(name) for name in known if published(name)), UNKNOWN)


PUBLISHED = re.compile(
    r"[-_.](?:(?P<double>(unsloth[-_])?bnb[-_]4bit)|(?P<grouped>(gptq|awq)([-_]int4)?|int4)|aqlm.*"
    r"|(?P<scaled>nvfp4)|mxfp4|(?P<eight>fp8)(-dynamic)?|w\d+a\d+)$",
    re.IGNORECASE,
)
"""Ends of the names of models whose weights are published in 8 bits or fewer."""

_SEEING = re.compile(r"(^|[-_.\d])(vl|omni|vision)([-_.\d]|$)|internvl|llava")

_QWEN = re.compile(r"(?i)(qwen[\d.]*)-(vl|omni)(?=-)")
"""Qwen's vision-language models have the language model of the same size (config.json, `text_config`)."""


def vocabulary_of(name: str) -> int:
    """Tokens of the vocabulary of a model of the catalogue."""
    return int(library_models()[name].config["vocab_size"])


def predicted(name: str) -> int:
    """Layers of a model of the catalogue that predict further tokens."""
    return int(library_models()[name].config.get("num_nextn_predict_layers") or 0) if name in library_models() else 0


def with_model(
    keys: Keys, path: str, options: LaunchOptions, narrow: bool = False
) -> tuple[str | None, Architecture | None]:
    """`model` of a problem for the model that a key names, and what it is made of; None: the problem has to say it.

    `options`: the folder of the file, beside which the model may lie, and the part of it to price. `narrow`: its
    weights may be published in 4 bits.
    """
    said, folder = keys.value(path), options.folder
    if isinstance(said, str) and (found := PUBLISHED.search(said)) is not None:
        if not narrow and found["eight"]:
            keys.note(f"{path} is published in 8 bits: nest assumes weights in the format of the training.")
        elif not narrow:
            keys.problem(
                f"{path} is {said!r:.80}, whose weights are in 8 bits or fewer; nest prices 4 bits beside adapters."
            )
        said = said[: found.start()]
    seeing = isinstance(said, str) and _SEEING.search(said.rpartition("/")[2].lower()) is not None
    if options.part not in (None, LANGUAGE_MODEL):
        keys.problem(f"--part is {options.part!r:.40}; it takes {LANGUAGE_MODEL}.")
    elif seeing and options.part is None:
        keys.problem(
            f"{path} is {said!r:.80}, a vision-language model; nest prices decoders like GPT's. --part "
            f"{LANGUAGE_MODEL} prices its language model alone."
        )
        return None, None
    elif options.part is not None and not seeing:
        keys.problem(f"--part {LANGUAGE_MODEL} goes with vision-language models, and {path} names none.")
    elif seeing:
        keys.note("only the language model is priced: vision encoder, projection and images are left out.")
        said = _QWEN.sub(r"\1", str(said))
    name = catalogued(said) if isinstance(said, str) else None
    if name is not None:
        return name, architecture_of(dict(library_models()[name].config))
    for place in (folder / said, folder) if isinstance(said, str) and folder is not None else ():
        if there_is(place / "config.json"):
            file = (place / "config.json").resolve()
            if place == folder:
                keys.note(f"nest assumes {path} {said:.120} to be built as config.json beside the file says.")
            return str(file), architecture_of(read_mapping(file).mapping)
    lacks = "only a run would tell" if "${" in str(said) else "the catalogue does not have"
    told = "is not given" if said is None else f"is {said!r:.80}, which {lacks}"
    keys.note(f"{path} {told}: {MODEL_LEFT}")
    return None, None
