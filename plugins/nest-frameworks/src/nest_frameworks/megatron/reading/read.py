"""From a file that launches Megatron-LM to the keys of a problem; no shell is ever run."""

import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from nest.catalogue import library_models
from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.hooks.architectures import architecture_of
from nest.spec import Architecture
from nest.spec.architecture import LatentAttention
from nest_frameworks.keys import Keys
from nest_frameworks.limits import mixture
from nest_frameworks.megatron.reading.decisions import read_decisions
from nest_frameworks.megatron.reading.flags import FlagReader, is_harmless, read_flags, tell_unpriced
from nest_frameworks.megatron.reading.hybrids import ATTENTION, read_hybrid
from nest_frameworks.megatron.reading.kinds import check_kind, is_hybrid, language_model
from nest_frameworks.megatron.reading.launch import Launch, find_launch
from nest_frameworks.megatron.reading.model import UNSAID_VOCABULARY, WIDTHS, model_mapping, read_architecture
from nest_frameworks.megatron.reading.training import read_training
from nest_frameworks.megatron.reading.versions import translate
from nest_frameworks.megatron.relatives.commands import scalar
from nest_frameworks.releases import releases_of
from nest_frameworks.trainers.models import with_model

STAND_IN = 1024
"""A vocabulary for models whose own nobody says: words are looked for that describe the rest."""


RELEASES = releases_of("megatron")
FUSION = "--cross-entropy-fusion-impl"
BRIDGE, NAMED = "--use-bridge", "--bridge-hf-model"
"""Flags of forks that train models of Megatron Bridge."""
RELEASED = re.compile(r"(?i)(?:\bcore_[rv]|\bmegatron[-_]core[=~@ ]{1,3}v?)(0\.\d+)\b")
"""A release in the name of a branch, a tag or a requirement: core_r0.16.0, core_v0.18, megatron-core==0.19.2."""

LATENT = ("--multi-latent-attention", "--q-lora-rank", "--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim",
          "--v-head-dim")  # fmt: skip
"""Flags of latent attention; without the first the others are idle."""

DESCRIBING = frozenset({
    *WIDTHS, *LATENT, "--ffn-hidden-size", "--kv-channels", "--group-query-attention", "--num-query-groups",
    "--disable-bias-linear", "--add-qkv-bias", "--qk-layernorm", "--window-size", "--window-attn-skip-freq",
    "--swiglu", "--quick-geglu", "--normalization", "--position-embedding-type", "--use-rotary-position-embeddings",
    "--max-position-embeddings", "--untie-embeddings-and-output-weights", "--num-experts", "--moe-router-topk",
    "--moe-ffn-hidden-size", "--moe-shared-expert-intermediate-size", "--moe-shared-expert-gate", "--moe-layer-freq",
    "--mtp-num-layers", "--vocab-size", "--padded-vocab-size", "--spec", "--hybrid-layer-pattern",
})  # fmt: skip
"""Flags that describe the model, and nothing else."""

REFUSED = (
    "--cross-entropy-fusion-impl te is priced as Megatron-Core runs it up to 0.18. From 0.19 on Megatron-LM refuses "
    "it: exports have --cross-entropy-fusion-impl native."
)


def read_megatron(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a bash script, a map of flags, or a log with its arguments of Megatron-LM.

    `options`: what else is said of the launch; None: nothing.

    Raises:
        InputErrors: flags contradict each other, or say what nest cannot price.
        InputError: there are no flags, or they train what is no decoder like GPT's.
    """
    asked = options or LaunchOptions()
    launch = find_launch(text, asked)
    launch, key = _bridged(launch) if BRIDGE in launch.words else (launch, "model")
    keys = Keys({key: launch.model} if launch.model else {})
    name, known = with_model(keys, key, asked) if launch.model else (None, asked.model)
    model: Any = name
    if launch.layers is not None and name is not None and name in library_models():
        model = _shortened(name, launch.layers)
        known = architecture_of(dict(library_models()[model].config) if isinstance(model, str) else model)
    release, stated = _release(text, asked)
    part = None if launch.model else asked.part
    found = read_launch(launch, part, known or asked.model, release)
    found = evolve(found, notes=(*found.notes, *keys.finish(()), *stated))
    if name is not None and "model" not in found.settings:
        found = evolve(found, settings={**found.settings, "model": model})
    if launch.trainable is not None:
        found = _adapted(found, launch.trainable, known)
    if found.settings["training"].get("loss") != "fused" or not RELEASES.refuses(FUSION, "te", release):
        return found
    return evolve(found, notes=(*found.notes, REFUSED))


def _bridged(launch: Launch) -> tuple[Launch, str]:
    """A launch whose model Megatron Bridge builds, whatever its flags say of it, and the flag that names the model."""
    flags = read_flags(launch.words).words
    name = str(scalar(" ".join(flags.pop(NAMED, ("",)))))
    idle = [flag for flag in flags if flag in DESCRIBING]
    told = f"{BRIDGE} builds the model of {NAMED} {name:.80}: {', '.join(idle) or 'no flags'} are not read."
    kept = (word for flag, values in flags.items() if flag not in (BRIDGE, *idle) for word in (flag, *values))
    return evolve(launch, words=tuple(kept), model=name, notes=(*launch.notes, told)), NAMED


def _shortened(name: str, layers: int) -> str | dict[str, Any]:
    """A model of the catalogue with another number of layers; its name if it has as many.

    Raises:
        InputError: its configuration says more of its layers than their number.
    """
    config = dict(library_models()[name].config)
    key = "num_hidden_layers"
    if config.get(key) == layers:
        return name
    if key not in config or any(isinstance(each, list) and len(each) == config[key] for each in config.values()):
        raise InputError(f"num_layers is {layers}, and layers of {name} differ; give its flags, or delete num_layers.")
    return {**config, key: layers}


def _adapted(found: Reading, trainable: Mapping[str, Any], known: Architecture | None) -> Reading:
    """`found` with adapters; a fused projection of queries, keys and values is none of latent attention."""
    notes, targets = found.notes, list(trainable["lora"]["targets"])
    if "qkv_proj" in targets and known is not None and isinstance(known.blocks[0].attention, LatentAttention):
        targets.remove("qkv_proj")
        notes = (*notes, "linear_qkv is no part of latent attention, whose projections have no adapters then.")
    if known is not None and mixture(known) is not None and {"gate_up_proj", "down_proj"} & {*targets}:
        notes = (*notes, "nest assumes an adapter for each routed expert; the experts of a rank share one in Primus.")
    lora = {**trainable, "lora": {**trainable["lora"], "targets": targets}}
    return evolve(
        found, settings={**found.settings, "training": {**found.settings["training"], "trainable": lora}}, notes=notes
    )


def _release(text: str, options: LaunchOptions) -> tuple[str, list[str]]:
    """The release of Megatron Core that a file is for, with a note if the file names it."""
    named = {found for found in RELEASED.findall(text) if found in RELEASES.releases}
    if options.release is not None or len(named) != 1:
        return RELEASES.named(options.release), []
    release = min(named)
    return release, [] if release == RELEASES.newest else [f"read as of Megatron-Core {release}, which the file names."]


def read_launch(
    launch: Launch, part: str | None = None, known: Architecture | None = None, release: str = RELEASES.newest
) -> Reading:
    """Read flags of Megatron-LM, or of a framework that runs Megatron Core by them.

    Args:
        launch: the flags and what starts them.
        part: the part of the model to price; None: all of it.
        known: the model where no flags describe one and something else does; it is not in what is returned.
        release: of Megatron Core, whose defaults count.

    Raises:
        InputErrors: flags contradict each other, or say what nest cannot price.
        InputError: they train what is no decoder like GPT's.
    """
    flags = read_flags(launch.words)
    flags.release, flags.asked = release, {*LATENT}
    told = check_kind(launch.program, flags.words, printed=launch.printed, part=part)
    if part is not None:
        flags.words = language_model(flags.words)
    named = launch.model and not {"--hidden-size", "--num-layers"} & {*flags.words}
    hybrid = not named and is_hybrid(launch.program, flags.words, printed=launch.printed)
    translate(flags, launch.files, printed=launch.printed)
    model, config = read_hybrid(flags) if hybrid else (read_architecture(flags), None)
    described = known if model is None else model
    training = read_training(flags, described, launch.denied)
    fixed = read_decisions(flags, described, launch.devices)
    if "global_batch" not in training and {"dp", "micro_batch"} <= set(fixed):
        # As `validate_args` does.
        training["global_batch"] = fixed["dp"] * fixed["micro_batch"]
    if (full := _in_full(launch, flags)) is not None:
        return read_launch(full, part, known, release)
    tell_unpriced(flags, unread=not launch.printed)
    settings: dict[str, Any] = {"training": training, "fixed": fixed}
    vocabulary: tuple[str, ...] = ()
    if config is not None and "num_nextn_predict_layers" in config:
        training["mtp"] = True
    if config is not None and ATTENTION not in config["hybrid_override_pattern"]:
        training.pop("selective", None)  # It names operators of attention.
    if model is not None and not flags.problems:
        written, vocabulary = _model(flags, model, config)
        settings["model"] = written
    flags.finish()
    notes = (*told, *launch.notes, *flags.notes)
    return Reading(settings, launch.devices, vocabulary, notes, ranks_per_node=launch.ranks_per_node)


def _in_full(launch: Launch, flags: FlagReader) -> Launch | None:
    """The launch with beginnings of flags in full, as argparse takes them; None: it has none."""
    given = read_flags(launch.words).words
    unread = (flag for flag in given if flag not in flags.asked and not is_harmless(flag))
    found = {flag: [each for each in sorted(flags.asked) if each.startswith(flag)] for flag in unread}
    full = {flag: each[0] for flag, each in found.items() if len(each) == 1 and each[0] not in given}
    words = [word for flag, values in given.items() for word in (full.get(flag, flag), *values)]
    notes = (f"{flag} is read as {long}, as argparse does." for flag, long in full.items())
    return evolve(launch, words=tuple(words), notes=(*launch.notes, *notes)) if full else None


def _model(
    flags: FlagReader, model: Architecture, config: dict[str, Any] | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The model in a problem's words, and the keys of the vocabulary where it is not said.

    `config`: those of a model with Mamba layers, for which `model` stands.
    """
    unsaid = model.vocab == UNSAID_VOCABULARY
    try:
        written, left_out = (
            (config, "") if config else model_mapping(evolve(model, vocab=STAND_IN) if unsaid else model)
        )
    except InputError as error:
        flags.problem(str(error))
        return {}, ()
    if left_out:
        flags.note(f"of the model, {left_out} are not priced.")
    if not unsaid:
        return written, ()
    keys = ("transformer", "vocab") if "transformer" in written else ("vocab_size",)
    written.get("transformer", written).pop(keys[-1])
    return written, ("model", *keys)
