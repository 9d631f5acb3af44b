"""Modules of Hugging Face transformers by their `config.json`, and the inputs that each takes."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from nest.errors import InputError
from nest.io import read_mapping
from nest_torch.loading import PRECISIONS, first_line
from nest_torch.machine import FORMATS

HEADS = (
    "ForCausalLM",
    "ForSeq2SeqLM",
    "ForSpeechSeq2Seq",
    "ForMaskedLM",
    "ForImageClassification",
    "ForImageTextToText",
)
"""Heads that are trained, the first that a family has; a family without any is built without a head."""


def load_configuration(path: Path, precision: str) -> Any:
    """Build the module of a `config.json` on the meta device, in the number format `precision`.

    The class is the first of `architectures`; without it, the first of `HEADS` that the family has.

    Raises:
        InputError: transformers is not installed or does not know the family, or it refuses the configuration.
    """
    if precision not in PRECISIONS:
        raise InputError(f"--precision must be one of {', '.join(PRECISIONS)}, is {precision!r:.40}.")
    content = dict(read_mapping(path).mapping)
    family = content.pop("model_type", None)
    if find_spec("transformers") is None:
        raise InputError(f"{path}: transformers is not installed here; `pip install transformers` brings it.")
    import transformers

    if not isinstance(family, str) or family not in transformers.CONFIG_MAPPING:
        raise InputError(
            f"{path}: transformers {transformers.__version__} has no family {family!r:.60}; name a function that makes "
            "the module, as models.py:make_model."
        )
    try:
        config = transformers.CONFIG_MAPPING[family](**content)
        with torch.device("meta"):
            module = _class(config)(config)
    except Exception as error:  # Whatever transformers says of the configuration.
        raise InputError(f"{path}: making the module failed: {first_line(error)}.") from None
    return module.to(getattr(torch, FORMATS[precision]))


def _class(config: Any) -> Any:
    """The class of the module, or what makes it."""
    import transformers

    named = [getattr(transformers, str(each), None) for each in config.architectures or ()]
    if named and named[0] is not None:
        return named[0]
    heads = [getattr(transformers, f"AutoModel{head}") for head in HEADS]
    auto = next((each for each in heads if type(config) in each._model_mapping), transformers.AutoModel)
    return auto.from_config


def usual_inputs(module: Any, length: int) -> list[str]:
    """Inputs of a module of transformers as `--input` takes them: `length` tokens, or pictures, or frames of sound.

    Raises:
        InputError: it takes others.
    """
    config, main = module.config, module.main_input_name
    pixels, rows = getattr(config, "image_size", None), getattr(config, "num_channels", 3)
    height, width = pixels if isinstance(pixels, list | tuple) else (pixels, pixels)
    tokens = f"int64[batch,sequence={length}]"
    if main == "input_ids":
        targets = [f"decoder_input_ids=int64[batch,target={length}]"] if config.is_encoder_decoder else []
        return [f"input_ids={tokens}", *targets]
    if main == "pixel_values" and isinstance(height, int) and isinstance(width, int):
        return [f"pixel_values=float[batch,{rows},{height},{width}]"]
    if main == "input_features" and hasattr(config, "max_source_positions"):
        frames = f"input_features=float[batch,{config.num_mel_bins},{2 * config.max_source_positions}]"
        return [frames, f"decoder_input_ids={tokens}"]
    raise InputError(f"{type(module).__name__} takes {main}; give its type and axes with --input.")
