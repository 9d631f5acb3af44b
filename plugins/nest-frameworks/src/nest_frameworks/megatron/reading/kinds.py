"""Kinds of model that Megatron-LM trains: decoders like GPT are priced, others are refused.

Programs and flags: Megatron-LM core_v0.16.1, v2.6 (megatron/arguments.py) and Megatron-DeepSpeed.
"""

import re
from collections.abc import Mapping, Sequence

from nest.deployment import LANGUAGE_MODEL
from nest.errors import InputError

T5 = "T5, an encoder and a decoder"
BERT = "BERT, an encoder"
RETRIEVAL = "a model that retrieves"
VISION = "a vision model"
VLM = "a vision-language model"
MIMO = "a model of several modalities, whose parts stand in the program"
HYBRID = "a model with Mamba layers"
GENERATION = "text generation"
SLIME = "slime, whose program sets further flags of Megatron-LM by itself"
REINFORCED = "by reinforcement learning, of which most time goes to generating"

PROGRAMS = {
    r"t5": T5,
    r"bert": BERT,
    r"pretrain_(ict|retro)|biencoder|realm|retro_": RETRIEVAL,
    r"pretrain_vision|vision_(classify|inpaint|dino)": VISION,
    r"vlm|llava": VLM,
    r"mimo": MIMO,
    r"mamba|pretrain_hybrid": HYBRID,
    r"train_rl|grpo|(^|_)ppo": REINFORCED,
}
"""Models of programs, by part of their file's name; the first match counts."""

FOLDERS = {"multimodal": VLM, "mimo": MIMO}
"""Models of `train.py` in these folders (examples/ of Megatron-LM). Other folders are anybody's, such as `albert`."""

IDLE = re.compile(
    r"generat|inference|server|evaluat|preprocess|convert|export|quantiz|prune|validat|feature_extract|mmlu|lm_eval"
)
"""Names of programs that train nothing; nor do those right in these folders."""

IDLE_FOLDERS = frozenset({"tasks", "tools"})

PLAIN = re.compile(r"gpt|llama|qwen|mixtral|mistral|deepseek|moe|megatron\.training|(pre)?train\.py|finetune\.py")
"""Programs of which nobody need be told that a decoder is taken."""

FLAGS = {
    "language-model-type": VLM, "vision-model-type": VLM, "freeze-LM": VLM, "freeze-ViT": VLM, "image-tag-type": VLM,
    "pixel-shuffle": VLM,
    "disable-vision-class-token": VLM, "mrope-section": VLM, "allow-missing-vision-projection-checkpoint": VLM,
    "decoder-num-layers": T5, "pipeline-model-parallel-split-rank": T5, "decoder-seq-length": T5,
    "encoder-pipeline-model-parallel-size": T5, "encoder-tensor-model-parallel-size": T5,
    "bert-no-binary-head": BERT,
    "ict-head-size": RETRIEVAL, "biencoder-projection-dim": RETRIEVAL, "bert-load": RETRIEVAL, "ict-load": RETRIEVAL,
    "titles-data-path": RETRIEVAL, "retro-add-retriever": RETRIEVAL, "retro-workdir": RETRIEVAL,
    "retro-project-dir": RETRIEVAL, "query-in-block-prob": RETRIEVAL,
    "vision-pretraining": VISION,
    "hybrid-override-pattern": HYBRID, "hybrid-layer-pattern": HYBRID, "is-hybrid-model": HYBRID,
    "hybrid-attention-ratio": HYBRID, "hybrid-mlp-ratio": HYBRID,
    "perform-rl-step": REINFORCED, "advantage-estimator": REINFORCED, "actor-num-nodes": SLIME,
}  # fmt: skip
"""Models of flags; the first given one counts."""

STEP = "--perform-rl-step"
"""Flag of Megatron-LM's own trainer, whose optimizer steps are those of other trainings."""

WRITTEN = {
    **dict.fromkeys(("num-tokens-to-generate", "prompts", "prompt-file", "incoming-requests-per-sec"), GENERATION),
    "mask-prob": BERT, "short-seq-prob": BERT, "vocab-extra-ids": T5,
    "vision-pretraining-type": VISION, "vision-backbone-type": VISION, "num-classes": VISION,
    "mamba-state-dim": HYBRID, "mamba-head-dim": HYBRID, "mamba-num-groups": HYBRID, "mamba-num-heads": HYBRID,
    "img-h": VLM, "img-w": VLM, "patch-dim": VLM,
}  # fmt: skip
"""Flags that say so where somebody wrote them, and nothing in a log, which has their defaults as well."""

OFF = {("query-in-block-prob", "0.1"), ("biencoder-projection-dim", "0")}
"""Flags in the logs of every model."""

UNPARTED = {
    "--freeze-LM": "the language model is not trained",
    "--encoder-pipeline-model-parallel-size": "the vision encoder has pipeline stages of its own",
}
"""Why the language model of a vision-language model cannot be priced alone, by the flag that says so."""

WORDS = {"--spec": ((re.compile(r"mamba|hybrid"), HYBRID),),
         "--model-provider": ((re.compile(r"mamba|hybrid"), HYBRID),),
         "--tokenizer-type": ((re.compile("BertWordPiece"), BERT), (re.compile("Multimodal"), VLM))}  # fmt: skip
"""Models of values of flags."""


def check_kind(
    program: str, flags: Mapping[str, Sequence[str]], *, printed: bool = False, part: str | None = None
) -> tuple[str, ...]:
    """Refuse what trains another model than a decoder like GPT's; what to tell of what is left, a sentence each.

    Args:
        program: the Python program that is called; empty: nobody says.
        flags: their values; those of a vision-language model whose language model is priced are left as they are.
        printed: whether the flags are all there are, with their defaults, as logs have them.
        part: the part of a model that is to be priced, `language-model`; None: all of it.

    Raises:
        InputError: the model is another one, or has no such part.
    """
    if _is_idle(program):
        raise InputError(f"{program} trains nothing, and nest prices trainings; give the script that trains.")
    kind, said_by = _kind(program, flags, printed)
    if part is not None and part != LANGUAGE_MODEL:
        raise InputError(f"--part is {part!r:.40}; it takes {LANGUAGE_MODEL}.")
    if kind == VLM and part is not None:
        for flag, reason in UNPARTED.items():
            if " ".join(flags.get(flag, ("0",))) != "0":
                raise InputError(f"{flag}: {reason}, so that --part {LANGUAGE_MODEL} has nothing to price by itself.")
        return (
            f"only the language model is priced: {said_by} trains {VLM}, and its vision encoder, projection and "
            "images are left out.",
        )
    if said_by == STEP and part is None:
        return (f"{STEP}: only an optimizer step is priced, and neither generating nor the reference policy is.",)
    if kind == HYBRID and part is None:
        layers = (*flags.get("--spec", ()), "")[0]
        if layers and not layers.startswith("megatron.core."):
            raise InputError(f"--spec {layers:.100} builds layers of a fork, which nest does not read.")
        return ()
    if kind is not None:
        remedy = f" --part {LANGUAGE_MODEL} prices its language model alone." if kind == VLM else ""
        verb = "trains" if kind == REINFORCED or said_by == program else "is a flag of"
        raise InputError(f"{said_by} {verb} {kind}; nest prices the training of decoders like GPT's.{remedy}")
    if part is not None:
        raise InputError(f"--part {LANGUAGE_MODEL} goes with vision-language models, and nothing here speaks of one.")
    if program and not PLAIN.search(program):
        return (f"{program} is not known; nest assumes it to train a decoder like GPT's, as its flags describe it.",)
    return ()


def is_hybrid(program: str, flags: Mapping[str, Sequence[str]], *, printed: bool = False) -> bool:
    """Return whether the model has Mamba layers."""
    return _kind(program, flags, printed)[0] == HYBRID


def _kind(program: str, flags: Mapping[str, Sequence[str]], printed: bool) -> tuple[str | None, str]:
    """The model, None: a decoder; and the program or flag that says so."""
    *folders, name = program.split("/")
    trained = [kind for pattern, kind in PROGRAMS.items() if re.search(pattern, name)]
    trained += [FOLDERS[each] for each in folders if each in FOLDERS and name.startswith("train")]
    if trained:
        return trained[0], program
    for flag, kind in {**FLAGS, **({} if printed else WRITTEN)}.items():
        value = " ".join(flags.get(f"--{flag}", ("0",)))
        if value not in ("0", "0.0") and not (printed and (flag, value) in OFF):
            return kind, f"--{flag}"
    for flag, kinds in WORDS.items():
        value = " ".join(flags.get(flag, ()))
        for found, kind in kinds:
            if found.search(value):
                return kind, f"{flag} {value}"
    return None, ""


def _is_idle(program: str) -> bool:
    *folders, name = program.split("/")
    return bool(IDLE.search(name)) or not IDLE_FOLDERS.isdisjoint(folders[-1:])


def language_model(flags: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The flags of the language model of a vision-language model: --seq-length is of images there."""
    length = flags.get("--decoder-seq-length")
    return {**flags, "--seq-length": length} if length else dict(flags)
