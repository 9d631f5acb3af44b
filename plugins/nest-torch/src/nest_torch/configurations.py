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
    "ForSeq2SeqLM",
    "ForSpeechSeq2Seq",
    "ForMaskedLM",
    "ForCausalLM",
    "ForImageClassification",
    "ForImageTextToText",
)
"""Heads that are trained, the first that a family has; a family without any is built without a head.

transformers also has encoders and both towers' decoders among `ForCausalLM`, so other heads of text come first.
"""

USUAL_LENGTH = 2048
"""Tokens per sample of a module with positions for as many."""

LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_target_positions",
    "max_encoder_position_embeddings",
    "max_decoder_position_embeddings",
)
"""Keys of configurations for the rows of a table of positions; modules without a table may have them too."""


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


def _positions(module: Any) -> int | None:
    """The tokens for which every table of positions in a module has a row; None: there is no table."""
    configs = [module.config, getattr(module.config, "text_config", None)]
    lengths = {getattr(config, name, None) for config in configs for name in LENGTHS}
    found = []
    for path, table in module.named_modules():
        name = path.rpartition(".")[2]
        if isinstance(table, torch.nn.Embedding) and ("pos" in name or name == "wpe"):
            rows = table.num_embeddings - getattr(table, "offset", 0)
            if rows in lengths:  # RoBERTa numbers positions after its padding token.
                found.append(rows if table.padding_idx is None else rows - table.padding_idx - 1)
    return min(found, default=None)


def usual_inputs(module: Any, length: int | None) -> list[str]:
    """Inputs of a module of transformers as `--input` takes them: `length` tokens, or pictures, or frames of sound.

    Without a length it is `USUAL_LENGTH`, or the positions of the module if those are fewer.

    Raises:
        InputError: it takes others, or fewer tokens.
    """
    config, main = module.config, module.main_input_name
    most = _positions(module)
    if most is not None and (length or 0) > most:
        raise InputError(
            f"{type(module).__name__} has positions for {most} tokens; give --sequence-length {most} or less."
        )
    length = length or min(most or USUAL_LENGTH, USUAL_LENGTH)
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
