"""Low-rank adapters in files of LLaMA-Factory, Axolotl and Hugging Face's Trainer.

Sources: peft 0.18, tuners/tuners_utils.py (`check_target_module_exists`: a string of targets is a regular expression,
matched with a module's whole name) and `target_parameters` of tuners/lora/config.py; transformers 5.14, whose routed
experts are two parameters of one module and no linear layers (models/qwen3_moe/modeling_qwen3_moe.py).
"""

import re
from typing import Any

from nest.spec import Architecture
from nest.spec.architecture import GroupedQueryAttention, MixtureOfExperts
from nest.spec.training import ALL_LINEAR
from nest_frameworks.keys import LARGEST, Keys
from nest_frameworks.limits import mixture
from nest_frameworks.trainers.names import AXOLOTL, SAVED, Names
from nest_frameworks.trainers.narrow import stored

PARAMETERS = "lora_target_parameters"
EXPERTS = ("gate_up_proj", "down_proj")
"""Parameters of routed experts, and nest's targets for adapters beside them."""

NETWORK = ("gate_proj", "up_proj", "down_proj")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MODULES = {name: f"self_attn.{name}" for name in ATTENTION} | {name: f"mlp.{name}" for name in NETWORK}
_FRONTS = ("", "model.layers.0.", "model.language_model.layers.0.", "language_model.model.layers.0.")
_EXPRESSION = re.compile(r"[\\\[\](|)*^$+?]")
_SLOW = re.compile(r"\)[*+{]|\{")
MOST_REPEATED = 6
"""Most `*` and `+` of a regular expression that is matched: more could take long."""


def adapters(keys: Keys, names: Names) -> dict[str, Any] | None:
    """`training.trainable`; None: all parameters are trained."""
    (switch, word), (wide, rank), (targets, usual) = names.adapters.switch, names.adapters.rank, names.adapters.targets
    value = names.refused[switch][0] if keys.value(switch) is None and switch in names.refused else keys.value(switch)
    adapted = value in (word, f"q{word}")
    kept = stored(keys, names, str(keys.value(names.model)), adapted)
    if not adapted:
        return None
    told = keys.value(targets)
    expression = isinstance(told, str) and _EXPRESSION.search(told) is not None
    linear = _matched(keys, targets, told) if expression else [each.strip() for each in listed(told) or usual]
    if names.adapters.linear in linear or keys.value(names.adapters.linear) is True:
        linear = [ALL_LINEAR]
    saved = listed(keys.value(names.adapters.saved))
    if strange := [each for each in saved if each not in SAVED]:
        keys.problem(f"{names.adapters.saved} has {', '.join(strange):.200}, and nest knows {', '.join(SAVED)}.")
    layers = [SAVED[each] for each in saved if each in SAVED]
    lora = {"rank": keys.integer(wide) or rank, "targets": linear}
    return {"lora": lora, **({"layers": layers} if layers else {}), **({"stored": kept} if kept else {})}


def thawed(keys: Keys, model: Architecture | None) -> list[str] | None:
    """Trained layers of LLaMA-Factory's freeze-tuning, the others being frozen (src/llamafactory/model/adapter.py)."""
    count = keys.integer("freeze_trainable_layers", -LARGEST)
    count = 2 if count is None else count
    modules, extra = listed(keys.value("freeze_trainable_modules")), listed(keys.value("freeze_extra_modules"))
    if {*modules} - {"all"} or {*extra} - {*SAVED}:
        keys.problem("freeze_trainable_modules and freeze_extra_modules name parts of layers; nest prices whole ones.")
    if model is None:
        keys.problem("which layers are trained follows from the model's number of them: give --model.")
        return None
    blocks = range(len(model.blocks or model.hybrid))
    if keys.truth("use_llama_pro"):
        step, left = divmod(len(blocks), max(count, 1))
        if left or count < 1:
            keys.problem(f"freeze_trainable_layers {count} does not divide the {len(blocks)} layers of the model.")
        layers = blocks[step - 1 :: step] if step else blocks
    else:
        layers = blocks[-count:] if count > 0 else blocks[: max(-count, 1)]
    return [f"layers.{number}" for number in layers] + [SAVED[each] for each in extra if each in SAVED]


def listed(value: Any) -> list[str]:
    """Names in a list, or in a word that commas part."""
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
    return [str(each) for each in words]


def _matched(keys: Keys, path: str, expression: str) -> list[str]:
    """Projections of a first layer whose names a regular expression matches."""
    repeated = expression.count("*") + expression.count("+")
    try:
        if _SLOW.search(expression) or repeated > MOST_REPEATED:
            raise re.error("it may take long")
        pattern = re.compile(expression)
    except (re.error, RecursionError, OverflowError):
        keys.problem(f"{path} is {expression!r:.80}, a regular expression that nest does not match; list the layers.")
        return [ALL_LINEAR]
    found = [name for name, rest in _MODULES.items() if any(pattern.fullmatch(front + rest) for front in _FRONTS)]
    if not found:
        keys.problem(f"{path} is {expression!r:.80}, which matches no projection that nest knows; list the layers.")
    return found or [ALL_LINEAR]


def of_experts(
    keys: Keys, names: Names, trainable: dict[str, Any] | None, model: Architecture | None
) -> dict[str, Any] | None:
    """`trainable` of a model with experts: adapters beside routed experts are those of `lora_target_parameters`."""
    if trainable is None or model is None or mixture(model) is None:
        return trainable
    targets, parameters = trainable["lora"]["targets"], parameters_of(keys)
    everywhere = targets == [ALL_LINEAR] or {*NETWORK} <= {*targets}
    if parameters == [*EXPERTS] and everywhere:
        return trainable
    blocks = model.blocks or model.hybrid
    plain = all(isinstance(block.attention, GroupedQueryAttention) for block in blocks)
    if names is not AXOLOTL or (not plain and targets == [ALL_LINEAR]):
        if everywhere:
            keys.note(f"nest assumes adapters beside routed experts; transformers 5 has them by {PARAMETERS} alone.")
        return trainable
    beside = [*ATTENTION] if targets == [ALL_LINEAR] else [each for each in targets if each not in NETWORK]
    networks = [block.feed_forward for block in blocks]
    if everywhere and any(not isinstance(each, MixtureOfExperts) or each.shared_width for each in networks):
        keys.note("adapters beside dense and shared networks of a model with experts are left out.")
    return {**trainable, "lora": {**trainable["lora"], "targets": [*beside, *parameters]}}


def parameters_of(keys: Keys) -> list[str]:
    """Targets among parameters of routed experts; mistakes are left with `keys`."""
    named = [each.rpartition(".")[2] for each in listed(keys.value(PARAMETERS))]
    if strange := [each for each in named if each not in EXPERTS]:
        keys.problem(f"{PARAMETERS} has {strange[0]:.60}, and nest knows {', '.join(EXPERTS)} of experts.")
    return [each for each in EXPERTS if each in named]
