"""Recomputation, as flags of Megatron-LM.

`--recompute-modules` and what nest calls the operators in each: docs/reference/problem.md, selective, after
`recompute_modules` of Megatron Core's TransformerConfig (core_v0.16.1).
"""

from collections.abc import Sequence
from itertools import combinations

from nest.errors import InputError
from nest.exporters.megatron.rendering import Flags

MODULES: dict[str, tuple[str, ...]] = {
    "core_attn": ("attention",),
    "layernorm": ("attention_norm", "mlp_norm"),
    "moe_act": ("expert_activated",),
    "mla_up_proj": ("query_latent_norm", "query", "key_value_latent_norm", "key_value", "rotary"),
    "mlp": ("mlp_up", "mlp_activated", "mlp_down"),
    "moe": (
        "router",
        "routing",
        "dispatch",
        "expert_up",
        "expert_activated",
        "expert_down",
        "combine",
        "shared_expert_up",
        "shared_expert_activated",
        "shared_expert_down",
    ),
    "shared_experts": ("shared_expert_up", "shared_expert_activated", "shared_expert_down"),
}
"""What each module runs again, in the words of `training.selective`."""

OPTIONAL = frozenset({"shared_expert_up", "shared_expert_activated", "shared_expert_down", "query_latent_norm"})
"""Operators that some models lack, so that their modules go without them."""

MODES = ("none", "selective", "full")


def recompute_flags(mode: str, selective: Sequence[str]) -> Flags:
    """The flags of one recompute mode.

    Raises:
        InputError: Megatron-LM recomputes nothing like it.
    """
    if mode == "none":
        return {}
    if mode == "full":
        return {
            "--recompute-granularity": "full",
            "--recompute-method": "uniform",
            "--recompute-num-layers": 1,
        }
    found = modules_of(selective) if mode == "selective" else None
    if found is None:
        raise InputError(f"recompute mode {mode!r} is not one of Megatron-LM's, which are {', '.join(MODES)}.")
    return {"--recompute-granularity": "selective", "--recompute-modules": found}


def modules_of(selective: Sequence[str]) -> tuple[str, ...]:
    """The fewest modules that run again what `training.selective` chooses.

    Raises:
        InputError: no modules do.
    """
    wanted = frozenset(selective)
    possible = [name for name, operators in MODULES.items() if _needed(operators) <= wanted]
    for count in range(1, len(possible) + 1):
        for chosen in combinations(possible, count):
            covered = frozenset(operator for name in chosen for operator in MODULES[name])
            if wanted <= covered and frozenset(o for name in chosen for o in _needed(MODULES[name])) <= wanted:
                return chosen
    raise InputError(
        f"training.selective ({', '.join(selective)}) is not made of what Megatron-LM's --recompute-modules run again: "
        + "; ".join(f"{name} is {', '.join(operators)}" for name, operators in MODULES.items())
        + "."
    )


def _needed(operators: Sequence[str]) -> frozenset[str]:
    """Those of a module's operators that every model with the module has; all where a model may lack any."""
    return (frozenset(operators) - OPTIONAL) or frozenset(operators)


def operators_of(modules: Sequence[str]) -> tuple[str, ...]:
    """What `--recompute-modules` run again, in the words of `training.selective`."""
    return tuple(dict.fromkeys(operator for module in modules for operator in MODULES[module]))
