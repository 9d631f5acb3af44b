"""The layout of a plan in the words of its target framework, and other plans by their differences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from nest.deployment.deployment import BLOCK, unpooled_name
from nest.deployment.pytorch_schedules import CLASSES
from nest.formulate.risk import LIKELIER_WITHIN, WITHIN, took_even_odds
from nest.instance import partial, recompute_words
from nest.io import structure
from nest.report.decisions import in_usual_order
from nest.spec import Decisions, OtherPlan, PlanDocument
from nest.spec.problem import OFFLOAD
from nest.units import format_bytes, format_seconds, likelihood, listed, percent

MOST_NAMED = 3  # Most candidates of a mixed plan named one by one.


class Words(NamedTuple):
    """A framework's words for decisions."""

    degrees: Mapping[str, str]  # Prefixes of degrees, by strategy; others are in capitals.
    chunks: str  # Model chunks of a stage.
    batch: str  # Samples and number of micro-batches.
    zero: Sequence[str]  # ZeRO stages.
    recompute: str  # Follows a mode of recomputation, and `no`.
    partly: str  # Follows that if only first blocks are recomputed: how many, per stage or chunk.
    schedules: Mapping[str, str]  # Pipeline schedules, by name; others go by their name.


_PAPERS = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "interleaved 1F1B",
    "dualpipe": "DualPipe",
    "dualpipe-v": "DualPipeV",
    "zb-v": "ZB-V",
}
"""Schedules by their names in papers."""

GENERIC = Words(
    {},
    "{} chunks",
    "micro-batch {} x {}",
    ("ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"),
    "recomputation",
    " of the first {} block(s) per {}",
    _PAPERS,
)
"""Words for any framework."""

# Megatron-LM core_v0.16.1: megatron/training/arguments.py; VP as in Megatron-Bridge's tables of recipes
# (docs/performance-summary.md).
MEGATRON = GENERIC._replace(
    chunks="VP {}",
    partly=" (block, {} layer(s) per {})",  # --recompute-method block --recompute-num-layers.
    zero=(
        "no distributed optimizer (ZeRO 0)",
        "distributed optimizer (ZeRO 1)",
        "Megatron FSDP optim_grads (ZeRO 2)",
        "Megatron FSDP optim_grads_params (ZeRO 3)",
    ),
)

# torchtitan 0.2.2: torchtitan/config/job_config.py, `Parallelism` and `ActivationCheckpoint`.
TORCH = GENERIC._replace(
    chunks="{} stages per rank",
    zero=(
        "DDP (ZeRO 0)",
        "FSDP without resharding (ZeRO 1)",
        "FSDP without resharding after forward (ZeRO 2)",
        "FSDP resharding after forward (ZeRO 3)",
    ),
    recompute="activation checkpointing",
    schedules=CLASSES,
)

# DeepSpeed 0.19.8: runtime/constants.py and runtime/config.py.
DEEPSPEED = GENERIC._replace(
    degrees={"tp": "AutoTP", "ep": "AutoEP", "ulysses": "Ulysses SP"},
    batch="micro-batch {} per GPU, gradient accumulation {}",
    zero=("ZeRO stage 0", "ZeRO stage 1", "ZeRO stage 2", "ZeRO stage 3"),
    recompute="activation checkpointing",
)

FRAMEWORKS = {
    **dict.fromkeys(("megatron", "megatron-bridge", "nemo", "verl", "ms-swift"), MEGATRON),
    **dict.fromkeys(("torchtitan", "pytorch", "accelerate", "transformers", "axolotl", "lightning"), TORCH),
    **dict.fromkeys(("deepspeed", "llama-factory"), DEEPSPEED),
}
"""Words by the name of the framework's exporter; others have `GENERIC` ones."""


Decided = PlanDocument | Decisions

_GONE = {"stages": "even stages", "rank_order": "usual rank order", "zero_degree": "sharded over all ranks"}
"""Words for decisions that only the first plan mentions; others are left out."""

_FOLLOWING = ("sp", "etp", "dp", "chunks", "schedule")
"""Decisions that follow from others unless another plan mentions them."""


def layout_text(plan: PlanDocument) -> str:
    """Describe a feasible plan's layout: `TP 2, PP 4, DP 16, micro-batch 1 x 16, 1F1B, ZeRO 1, no recomputation`."""
    return ", ".join(said for said in _parts(plan, *_asked(plan)).values() if said)


def layout_difference(plan: PlanDocument, other: Decided) -> list[str]:
    """Describe the differences of another plan of the problem, the most important first; never empty."""
    mine, theirs = (_parts(each, *_asked(plan)) for each in (plan, other))
    changed = [name for name in theirs if theirs[name] != mine.get(name, "")]
    changed += [name for name in mine if mine[name] and name not in theirs]
    sizes = [_micro_batch(plan), _micro_batch(other)]
    following = _FOLLOWING if theirs["pp"] else (*_FOLLOWING, "stages", "rank_order")
    told = []
    for name in changed:
        if name == "micro_batch":
            told += [] if sizes[0] == sizes[1] else [f"micro-batch {sizes[1]}"]
        elif name == "dp":
            told += [] if changed[0] != name else [theirs[name]]
        elif theirs.get(name):
            told.append(theirs[name])
        elif name not in following:
            told.append(_GONE.get(name, f"no {mine[name].split()[0]}"))
    return told or ["layers cut elsewhere"]


def _asked(plan: PlanDocument) -> tuple[Words, int]:
    target = plan.problem.get("search", {}).get("target")
    return FRAMEWORKS.get(str(target), GENERIC), plan.problem["training"]["global_batch"]


def _parts(decided: Decided, words: Words, batch: int) -> dict[str, str]:
    """Describe each decision, in the usual order; empty: not worth a mention."""
    candidate, stages, replicas = decided.candidate, decided.stages, decided.data_parallel or 1
    assert candidate is not None
    batches = ceil(batch / (replicas * candidate.samples))
    several, chunks = len(stages) > 1, decided.chunks or 1
    moved = several and replicas > 1 and decided.rank_order == "pp-inner"
    return {
        **_degrees(decided, words),
        "pp": f"PP {len(stages)}{_pools(decided)}" if several else "",
        "chunks": words.chunks.format(chunks) if chunks > 1 else "",
        "dp": f"DP {data_parallel_ranks(decided)}",
        "micro_batch": words.batch.format(_micro_batch(decided), batches),
        "schedule": words.schedules.get(str(decided.schedule), str(decided.schedule)) if several else "",
        "stages": "uneven stages" if _uneven(decided) else "",
        "rank_order": "rank order pp-inner" if moved else "",
        "zero": _zero([stage.zero for stage in stages], words),
        "zero_degree": "" if decided.zero_degree is None else f"sharded over groups of {decided.zero_degree}",
        "recompute": _recomputed([stage.recompute_name for stage in stages], words, "chunk" if chunks > 1 else "stage"),
    }


def data_parallel_ranks(decided: Decided) -> int | float:
    """Return the ranks that see different samples, `dp` in constraints."""
    candidate = decided.candidate
    assert candidate is not None
    if candidate.micro_batch is not None:
        copies = Fraction(candidate.samples, candidate.micro_batch)
    else:
        copies = Fraction(candidate.width, candidate.degrees.get("tp", 1) * candidate.degrees.get("cp", 1))
    ranks = (decided.data_parallel or 1) * copies
    return int(ranks) if ranks.denominator == 1 else float(ranks)


def _degrees(decided: Decided, words: Words) -> dict[str, str]:
    """Name the strategies' degrees above 1; for stages that are split differently, their candidates."""
    names = dict.fromkeys(unpooled_name(stage) for stage in decided.stages)
    if len(names) > 1:
        return {"candidates": listed([*names]) if len(names) <= MOST_NAMED else f"{len(names)} ways to split a layer"}
    degrees = decided.candidate.degrees if decided.candidate is not None else {}
    tp, ep = degrees.get("tp", 1), degrees.get("ep", 1)
    said = {name: f"{words.degrees.get(name, name.upper())} {degrees[name]}" for name in in_usual_order(degrees)}
    unsaid = {name for name, degree in degrees.items() if degree == 1 and (name != "etp" or ep == 1 or tp == 1)}
    said |= dict.fromkeys(unsaid, "")
    if "sp" in degrees:
        said["sp"] = "" if degrees["sp"] == tp else "no sequence parallelism" if degrees["sp"] == 1 else said["sp"]
    return said


def _micro_batch(decided: Decided) -> int:
    assert decided.candidate is not None
    return decided.candidate.micro_batch or decided.candidate.samples


def _pools(decided: Decided) -> str:
    counts = Counter(stage.pool for stage in decided.stages if stage.pool is not None)
    return f" ({', '.join(f'{count} on {pool}' for pool, count in counts.items())})" if counts else ""


def _uneven(decided: Decided) -> bool:
    """Return whether chunks differ in blocks, and in layers with embedding and head."""
    chunks = [chunk for stage in decided.stages for chunk in stage.chunks or (stage.layers,)]
    blocks = {sum(BLOCK.fullmatch(layer) is not None for layer in chunk) for chunk in chunks}
    return blocks != {0} and len(blocks) > 1 and len({len(chunk) for chunk in chunks}) > 1


def _zero(stages: Sequence[int], words: Words) -> str:
    levels = sorted(set(stages))
    return words.zero[levels[0]] if len(levels) == 1 else f"ZeRO {listed([str(level) for level in levels])}"


def _recomputed(modes: Sequence[str], words: Words, per: str) -> str:
    """Describe the recomputation of most stages, of all blocks or the first per stage or chunk, and of the others."""
    (usual, _), *others = Counter(modes).most_common()
    mode, count, lighter = partial(usual) or (usual, 0, "none")
    text = "activations offloaded" if mode == OFFLOAD else f"{'no' if mode == 'none' else mode} {words.recompute}"
    if count:
        text += words.partly.format(count, per).replace("(s)", "" if count == 1 else "s")
    if lighter != "none":
        text += f", {lighter} of the others"
    rest = " and ".join(f"{recompute_words(each)} on {number}" for each, number in others)
    return f"{text} ({rest} of {len(modes)} stages)" if others else text


LEAST_SHOWN = 5e-4
"""Least relative difference of step times shown: below it, one decimal place of a per cent shows none."""


def other_plan_texts(plan: PlanDocument, width: int | None = None) -> list[tuple[str, str]]:
    """Describe the `fastest`, `safer` and `simpler` plans of a document: difference, cost and gain.

    Plans that read alike are merged, and a fastest plan that is hardly faster is left out. With `width`, differences
    are cut short so that names and texts side by side take at most so many columns.
    """
    hidden = plan.fastest is None or (plan.fastest.slower_by > -LEAST_SHOWN and "fastest" not in plan.to_measure)
    others = {"fastest": None if hidden else plan.fastest, "safer": plan.safer, "simpler": plan.simpler}
    alike: dict[str, list[tuple[str, OtherPlan]]] = {}
    for name, other in others.items():
        if other is not None:
            alike.setdefault(_other_plan_text(plan, other, None), []).append((name, other))
    plans = {listed([name for name, _ in group]): group[0][1] for group in alike.values()}
    room = None if width is None else width - max(map(len, plans), default=0) - 2
    return [(name, _other_plan_text(plan, other, room)) for name, other in plans.items()]


def launch_texts(plan: PlanDocument) -> list[tuple[str, str]]:
    """Describe a runner-up to measure, the unknown fact that widens the range most, and which plans to measure."""
    texts = []
    if "runner_up" in plan.to_measure and plan.runner_up is not None:
        differing = layout_difference(plan, structure(plan.runner_up["decisions"], Decisions))
        texts.append(("runner-up", f"{', '.join(differing)}: {percent(plan.runner_up['slower_by'])} slower"))
    if plan.unknown:
        fact = plan.unknown[0]
        times = ((plan.batch_time or 0.0, fact.taken), (fact.batch_time, fact.other))
        cases = ", ".join(f"{format_seconds(seconds)} if {str(value).lower()}" for seconds, value in times)
        texts.append(("unknown", f"training.{fact.key}: {cases}"))
    if plan.to_measure:
        names = [f'"{name.replace("_", "-")}"' for name in plan.to_measure[1:]]
        texts.append(("measure", f"{1 + len(names)} plans too close to call: {listed(['this plan', *names])}"))
    return texts


def _other_plan_text(plan: PlanDocument, other: OtherPlan, room: int | None) -> str:
    direction = "faster" if other.slower_by < 0 else "slower"
    effects = [f"{percent(abs(other.slower_by))} {direction}"] if abs(other.slower_by) >= LEAST_SHOWN else ["as fast"]
    if other.fit_probability is not None and plan.fit_probability is not None:
        likelier = other.fit_probability > plan.fit_probability
        likely = f"{likelihood(other.fit_probability)} likely to fit"
        effects = [likely, *effects] if likelier else [*effects, likely]
    elif other.fit_probability is None:
        effects.append(f"{format_bytes(other.memory)} on the fullest stage")
    differing, effect = layout_difference(plan, other.decisions), ", ".join(effects)
    text, left = f"{', '.join(differing)}: {effect}", len(differing)
    while room is not None and len(text) > room and left > 1:
        left -= 1
        text = f"{', '.join([*differing[:left], '...'])}: {effect}"
    return text


def chosen_as(plan: PlanDocument) -> str:
    """Return the first plan's role beside the fastest one, if that is another: `Simplest`."""
    return "Likeliest" if took_even_odds(plan) else "Simplest"


def near_enough(plan: PlanDocument) -> str:
    """Return the share by which the first plan may be slower than the fastest one: `1 %`."""
    if took_even_odds(plan):
        return percent(LIKELIER_WITHIN, 0)
    within = plan.problem["search"].get("within")
    return f"{100 * (WITHIN if within is None else within):g} %"
