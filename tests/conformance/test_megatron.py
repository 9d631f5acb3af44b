"""Megatron Core reads the flags of nest's exporter, and forms the groups of ranks that nest plans with."""

import shlex
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.deployment import MEGATRON_ORDER, Deployment, Rank, rank_table
from nest.hooks.pipelines import deployed
from nest_frameworks.megatron.flags import export, flag_groups
from nest_frameworks.megatron.notation import given_flags, read_layout, write_layout
from tests.conformance.consumer import consume, needs
from tests.conformance.plans import PROBLEMS, plan

CORE = "megatron-core"

CONFIG = """
import dataclasses, warnings
warnings.simplefilter("ignore")
import torch
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

RENAMED = {
    "num_experts": "num_moe_experts",
    "fp8_param_gather": "fp8_param",
    "fp8_format": "fp8",
    "fp4_format": "fp4",
    "swiglu": "gated_linear_unit",
    "norm_epsilon": "layernorm_epsilon",
}

def config(flags):
    # `core_transformer_config_from_args`: fields by the names of flags, but for a few.
    values = {flag.removeprefix("--").replace("-", "_"): value for flag, value in flags.items()}
    values = {RENAMED.get(name, name): value for name, value in values.items()}
    latent = values.get("multi_latent_attention")
    kind = MLATransformerConfig if latent else TransformerConfig
    known = {field.name for field in dataclasses.fields(kind)}
    values = {name: value for name, value in values.items() if name in known}
    values["add_bias_linear"] = "--disable-bias-linear" not in flags
    values["pipeline_dtype"] = torch.bfloat16
    values["virtual_pipeline_model_parallel_size"] = flags.get("--num-virtual-stages-per-pipeline-rank")
    if values.get("gated_linear_unit"):
        values["activation_func"] = torch.nn.functional.silu
    if "moe_layer_freq" in values:
        values["moe_layer_freq"] = eval(values["moe_layer_freq"], {"__builtins__": {}})
    if "window_size" in values:
        values["window_size"] = tuple(int(each) for each in values["window_size"].split(","))
    if not values["add_bias_linear"] and not values.get("gated_linear_unit"):
        values["bias_activation_fusion"] = False
    return kind(**values)
"""


def flags_of(kind: str) -> dict[str, Any]:
    return {flag: value for group in flag_groups(plan(kind)).values() for flag, value in given_flags(group).items()}


def test_transformer_config_takes_the_flags() -> None:
    needs(CORE, "torch")
    found = consume(
        CONFIG
        + """
def told(made):
    layout = made.pipeline_model_parallel_layout
    return {
        "layers": made.num_layers,
        "layout": None if layout is None else [[[x.name for x in chunk] for chunk in rank] for rank in layout.layout],
        "virtual": made.virtual_pipeline_model_parallel_size,
    }
answer({kind: told(config(flags)) for kind, flags in given.items()})
""",
        {kind: flags_of(kind) for kind in PROBLEMS},
    )
    words = {"embedding": "embedding", "head": "loss"}
    for kind, made in found.items():
        shape = deployed(plan(kind))
        assert made["layers"] == shape.blocks
        assert (made["virtual"] or 1) == shape.chunks
        runs = [[run for run in shape.runs if run.stage == stage] for stage in range(shape.stages)]
        stages = [[[words.get(name, "decoder") for name in run.layers] for run in rank] for rank in runs]
        assert made["layout"] in (None, stages)
    assert found["uneven"]["layout"] is not None


def test_megatron_s_own_split_is_the_plan_s_where_no_layout_says_otherwise() -> None:
    needs(CORE, "torch")
    flags = flags_of("interleaved")
    assert "--pipeline-model-parallel-layout" not in flags
    shape = deployed(plan("interleaved"))
    found = consume(
        CONFIG
        + """
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
made = config(given["flags"])
answer([[[get_transformer_layer_offset(made, vp_stage=chunk, pp_rank=stage),
          get_num_layers_to_build(made, vp_stage=chunk, pp_rank=stage)]
         for stage in range(given["stages"])] for chunk in range(given["chunks"])])
""",
        {"flags": flags, "stages": shape.stages, "chunks": shape.chunks},
    )
    assert [tuple(each) for row in found for each in row] == [(run.blocks[0], len(run.blocks)) for run in shape.runs]


LAYOUTS = st.integers(1, 4).flatmap(
    lambda stages: st.tuples(
        st.just(stages),
        st.integers(1, 3).flatmap(
            lambda chunks: st.lists(st.integers(0, 12), min_size=stages * chunks, max_size=stages * chunks)
        ),
    )
)


def test_megatron_reads_the_same_chunks_from_a_layout() -> None:
    needs(CORE, "torch")
    drawn: list[tuple[int, list[str]]] = []

    @settings(max_examples=150, database=None)
    @given(LAYOUTS)
    def draw(layout: tuple[int, list[int]]) -> None:
        stages, counts = layout
        chunks = ["t" * count for count in counts]
        chunks[0] = "E" + chunks[0]
        chunks[-1] += "L"
        drawn.append((stages, chunks))

    draw()
    extra = ["Et*3|(tt|)*29,m|L", "E|(t|)*3,m|m||L", "Ettt|(tt|)*2t*4L", "E,t*2|,(t,t|)*2,L"]
    found = consume(
        """
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout as Layout
letter = {"embedding": "E", "loss": "L", "decoder": "t", "mtp": "m"}
answer([["".join(letter[x.name] for x in chunk) for chunk in Layout.parse_str_to_list(text)] for text in given])
""",
        [write_layout(chunks) for _, chunks in drawn] + extra,
    )
    assert found[: len(drawn)] == [chunks for _, chunks in drawn]
    assert found[len(drawn) :] == [list(read_layout(text)) for text in extra]


def test_megatron_refuses_what_nest_says_it_does() -> None:
    needs(CORE, "torch")
    base = flags_of("uneven")
    wrong = [
        {**base, "--pipeline-model-parallel-layout": "Et|t*2|t*3|tL"},
        {**base, "--num-attention-heads": 7, "--num-query-groups": 7},
        {**base, "--tensor-model-parallel-size": 1, "--sequence-parallel": True},
        {**base, "--recompute-granularity": "full", "--recompute-method": "uniform"},
    ]
    found = consume(
        CONFIG
        + """
def refused(flags):
    try:
        config(flags)
    except (ValueError, AssertionError) as error:
        return str(error)
answer([refused(flags) for flags in given])
""",
        [base, *wrong],
    )
    assert found[0] is None
    assert all(found[1:])


GROUPS = """
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from megatron.core import parallel_state as ps

def groups(case, rank):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=case["world"])
    ps.initialize_model_parallel(create_gloo_process_groups=False, order=case["order"], **case["sizes"])
    found = {
        "tp": ps.get_tensor_model_parallel_group(), "pp": ps.get_pipeline_model_parallel_group(),
        "dp": ps.get_data_parallel_group(), "cp": ps.get_context_parallel_group(),
        "ep": ps.get_expert_model_parallel_group(), "etp": ps.get_expert_tensor_parallel_group(),
        "edp": ps.get_expert_data_parallel_group(),
    }
    ranks = {name: dist.get_process_group_ranks(group) for name, group in found.items()}
    ps.destroy_model_parallel()
    dist.destroy_process_group()
    return ranks

answer([[groups(case, rank) for rank in range(case["world"])] for case in given])
"""


def ours(ranks: Sequence[Rank], key: Callable[[Rank], Any]) -> dict[int, list[int]]:
    """For each rank, those that have its `key`."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for rank in ranks:
        groups[key(rank)].append(rank.rank)
    return {rank: group for group in groups.values() for rank in group}


PIPELINE_INNER = ("tp", "cp", "pp", "dp")


def accepted(kind: str, order: tuple[str, ...]) -> bool:
    """Whether Megatron Core takes the order: its pipeline groups must be the same for experts and all else."""
    shape = deployed(plan(kind))
    return order == MEGATRON_ORDER or shape.stages == 1 or shape.ep * expert_tensor(shape) == shape.tp * shape.cp


def expert_tensor(shape: Deployment) -> int:
    """Megatron-LM's expert-tensor-parallel size, which is the tensor-parallel one of models without experts."""
    return shape.etp if shape.ep * shape.etp > 1 else shape.tp


def case(kind: str, order: tuple[str, ...]) -> dict[str, Any]:
    shape = deployed(plan(kind))
    sizes = {
        "tensor_model_parallel_size": shape.tp,
        "pipeline_model_parallel_size": shape.stages,
        "context_parallel_size": shape.cp,
        "expert_model_parallel_size": shape.ep,
        "expert_tensor_parallel_size": expert_tensor(shape),
    }
    return {"world": shape.world_size, "order": "-".join((*order[:2], "ep", *order[2:])), "sizes": sizes}


def test_process_groups_are_those_of_the_rank_table() -> None:
    needs(CORE, "torch")
    drawn = [(kind, order) for kind in PROBLEMS for order in (MEGATRON_ORDER, PIPELINE_INNER) if accepted(kind, order)]
    assert any(order == PIPELINE_INNER and deployed(plan(kind)).stages > 1 for kind, order in drawn)
    found = consume(GROUPS, [case(kind, order) for kind, order in drawn])
    for (kind, order), theirs in zip(drawn, found, strict=True):
        ranks = rank_table(plan(kind), order)
        for name, groups in expected_groups(kind, ranks).items():
            assert [groups[rank.rank] for rank in ranks] == [sorted(each[name]) for each in theirs], (kind, order, name)


def expected_groups(kind: str, ranks: Sequence[Rank]) -> dict[str, dict[int, list[int]]]:
    shape = deployed(plan(kind))
    found = {
        "tp": ours(ranks, lambda rank: (rank.cp, rank.dp, rank.pp)),
        "pp": ours(ranks, lambda rank: (rank.tp, rank.cp, rank.dp)),
        "dp": ours(ranks, lambda rank: (rank.tp, rank.cp, rank.pp)),
        "cp": ours(ranks, lambda rank: (rank.tp, rank.dp, rank.pp)),
    }
    inner = shape.ep * shape.etp
    if inner > 1:

        def replica(rank: Rank) -> tuple[int, int]:
            offset = rank.tp + shape.tp * (rank.cp + shape.cp * (rank.dp % shape.copies))
            return rank.dp // shape.copies, offset // inner

        found |= {
            "ep": ours(ranks, lambda rank: (rank.etp, rank.pp, replica(rank))),
            "etp": ours(ranks, lambda rank: (rank.ep, rank.pp, replica(rank))),
            "edp": ours(ranks, lambda rank: (rank.ep, rank.etp, rank.pp)),
        }
    return found


@pytest.mark.parametrize("kind", PROBLEMS)
def test_bash_reads_the_words_that_were_written(kind: str) -> None:
    text = export(plan(kind))["megatron_flags.sh"]
    done = subprocess.run(
        ["bash", "-c", f"set -eu; eval {shlex.quote(text)}; printf '%s\\n' \"${{MEGATRON_ARGS[@]}}\""],
        capture_output=True,
        text=True,
        check=True,
    )
    words = [word for flag, value in flags_of(kind).items() for word in _words(flag, value)]
    assert done.stdout.splitlines() == words


def _words(flag: str, value: Any) -> list[str]:
    if value is True:
        return [flag]
    return [flag, *(value if isinstance(value, tuple) else (str(value),))]
