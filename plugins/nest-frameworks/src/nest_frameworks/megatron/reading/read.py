"""From a file that launches Megatron-LM to the keys of a problem; no shell is ever run."""

import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from nest.catalogue import library_models
from nest.catalogue.spellings import catalogued
from nest.deployment import MODEL_LEFT, LaunchOptions, Reading
from nest.errors import InputError
from nest.hooks.architectures import architecture_of
from nest.spec import Architecture
from nest.spec.architecture import LatentAttention
from nest_frameworks.limits import mixture
from nest_frameworks.megatron.reading.decisions import read_decisions
from nest_frameworks.megatron.reading.flags import FlagReader, read_flags, tell_unpriced
from nest_frameworks.megatron.reading.hybrids import ATTENTION, read_hybrid
from nest_frameworks.megatron.reading.kinds import check_kind, is_hybrid, language_model
from nest_frameworks.megatron.reading.launch import Launch, find_launch
from nest_frameworks.megatron.reading.model import UNSAID_VOCABULARY, model_mapping, read_architecture
from nest_frameworks.megatron.reading.training import read_training
from nest_frameworks.megatron.reading.versions import translate
from nest_frameworks.releases import releases_of

STAND_IN = 1024
"""A vocabulary for models whose own nobody says: words are looked for that describe the rest."""


RELEASES = releases_of("megatron")
FUSION = "--cross-entropy-fusion-impl"
NAMED = re.compile(r"(?i)(?:\bcore_[rv]|\bmegatron[-_]core[=~@ ]{1,3}v?)(0\.\d+)\b")
"""A release in the name of a branch, a tag or a requirement: core_r0.16.0, core_v0.18, megatron-core==0.19.2."""

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
    name = catalogued(launch.model) if launch.model else None
    model = name if name is None or launch.layers is None else _shortened(name, launch.layers)
    known = asked.model if name is None else _built(model)
    release, stated = _release(text, asked)
    found = read_launch(launch, asked.part, known, release)
    found = evolve(found, notes=(*found.notes, *stated))
    if name is not None and "model" not in found.settings:
        found = evolve(found, settings={**found.settings, "model": model})
    elif launch.model and name is None:
        told = f"model {launch.model!r:.80} is not in the catalogue: {MODEL_LEFT}"
        found = evolve(found, notes=(*found.notes, told))
    if launch.trainable is not None:
        found = _adapted(found, launch.trainable, known)
    if found.settings["training"].get("loss") != "fused" or not RELEASES.refuses(FUSION, "te", release):
        return found
    return evolve(found, notes=(*found.notes, REFUSED))


def _built(model: str | dict[str, Any] | None) -> Architecture | None:
    return architecture_of(dict(library_models()[model].config) if isinstance(model, str) else model)


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
    named = {found for found in NAMED.findall(text) if found in RELEASES.releases}
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
    flags.release = release
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
    return Reading(settings, launch.devices, vocabulary, (*told, *launch.notes, *flags.notes))


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
