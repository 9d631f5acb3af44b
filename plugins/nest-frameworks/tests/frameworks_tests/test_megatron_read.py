"""What flags say, and what they may not say."""

from typing import Any

import pytest

from nest.deployment import MODEL_LEFT, Reading
from nest.errors import InputError
from nest_frameworks.megatron.reading.read import read_megatron

DENSE = {
    "--num-layers": "32", "--hidden-size": "512", "--num-attention-heads": "8", "--ffn-hidden-size": "2048",
    "--group-query-attention": "", "--num-query-groups": "4", "--normalization": "RMSNorm", "--swiglu": "",
    "--position-embedding-type": "rope", "--untie-embeddings-and-output-weights": "", "--disable-bias-linear": "",
    "--vocab-size": "1000", "--seq-length": "256", "--max-position-embeddings": "256", "--bf16": "",
    "--micro-batch-size": "1", "--global-batch-size": "64", "--tensor-model-parallel-size": "2",
    "--sequence-parallel": "", "--pipeline-model-parallel-size": "4",
}  # fmt: skip
EXPERTS = {**DENSE, "--num-experts": "8", "--moe-ffn-hidden-size": "512", "--expert-model-parallel-size": "2"}


def read(flags: dict[str, str], nodes: int = 4, **changed: str | None) -> Reading:
    every: dict[str, Any] = {**flags, **{"--" + name.replace("_", "-"): value for name, value in changed.items()}}
    words = " ".join(f"{flag} '{value}'" if value else flag for flag, value in every.items() if value is not None)
    return read_megatron(f"torchrun --nnodes {nodes} --nproc-per-node 8 pretrain_gpt.py {words}\n")


def test_a_plain_run() -> None:
    found = read(DENSE)
    assert found.devices == 32
    assert found.notes == ("32 ranks: 4 nodes x 8, from torchrun --nnodes and --nproc-per-node.",)
    assert found.settings["model"] == {
        "transformer": {
            "layers": 32, "hidden": 512, "ffn": 2048, "heads": 8, "kv_heads": 4, "head_dim": 64, "vocab": 1000,
            "gated_mlp": True, "tied_embeddings": False,
        }
    }  # fmt: skip
    assert found.settings["fixed"] == {
        "tp": 2, "sp": True, "cp": 1, "pp": 4, "dp": 4, "micro_batch": 1, "zero": 0, "recompute": "none",
        "schedule": "1f1b", "rank_order": "dp-inner",
    }  # fmt: skip
    training = found.settings["training"]
    assert training["global_batch"] == 64
    assert training["sequence_length"] == 256
    assert training["precision"] == "bf16"


@pytest.mark.parametrize(
    ("changed", "tokens"),
    [
        ({}, None),
        ({"train_iters": "1000"}, 1000 * 64 * 256),
        ({"train_samples": "500", "train_iters": "7"}, 500 * 256),
        ({"train_iters": "$(cat iters)"}, None),
        ({"train_iters": "0"}, None),
    ],
)
def test_the_tokens_of_the_whole_training(changed: dict[str, str], tokens: int | None) -> None:
    assert read(DENSE, **changed).settings["training"].get("tokens") == tokens


@pytest.mark.parametrize(
    ("changed", "fixed"),
    [
        ({"use_distributed_optimizer": ""}, {"zero": 1}),
        ({"use_megatron_fsdp": "", "data_parallel_sharding_strategy": "optim_grads"}, {"zero": 2}),
        ({"use_megatron_fsdp": "", "data_parallel_sharding_strategy": "optim_grads_params"}, {"zero": 3}),
        ({"data_parallel_sharding_strategy": "optim_grads_params"}, {"zero": 0}),
        ({"use_distributed_optimizer": "", "num_distributed_optimizer_instances": "2"}, {"zero": 1, "zero_degree": 2}),
        ({"use_distributed_optimizer": "", "num_distributed_optimizer_instances": "2", "context_parallel_size": "2"},
         {"dp": 2, "zero": 1, "zero_degree": 2}),
        ({"use_torch_fsdp2": "", "pipeline_model_parallel_size": "1"}, {"zero": 3}),
        ({"use_torch_fsdp2": "", "torch_fsdp2_no_reshard_after_forward": "", "pipeline_model_parallel_size": "1"},
         {"zero": 2}),
        ({"use_tp_pp_dp_mapping": ""}, {"rank_order": "pp-inner"}),
        ({"num_layers_per_virtual_pipeline_stage": "4"}, {"schedule": "interleaved", "chunks": 2}),
        ({"num_virtual_stages_per_pipeline_rank": "8"}, {"schedule": "interleaved", "chunks": 8}),
        ({"pipeline_model_parallel_layout": "Et*4|(t*4|)*6t*4L"}, {"schedule": "interleaved", "chunks": 2}),
        ({"pipeline_model_parallel_layout": "Et*7|t*8|t*9|t*8L"}, {"stages": [7, 8, 9, 8]}),
        ({"decoder_first_pipeline_num_layers": "5"}, {"stages": [5, 9, 9, 9]}),
        ({"decoder_last_pipeline_num_layers": "2"}, {"stages": [10, 10, 10, 2]}),
        ({"num_layers": "30", "account_for_embedding_in_pipeline_split": "",
          "account_for_loss_in_pipeline_split": ""}, {"stages": [7, 8, 8, 7]}),
        ({"num_layers": "30", "account_for_embedding_in_pipeline_split": "",
          "account_for_loss_in_pipeline_split": "", "num_layers_per_virtual_pipeline_stage": "4"},
         {"schedule": "interleaved", "chunks": 2}),
        ({"recompute_activations": ""}, {"recompute": "selective"}),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": "8"},
         {"recompute": "full"}),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": "0"},
         {"recompute": "none"}),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "8"},
         {"recompute": "stage"}),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": "3"},
         {"recompute": "full", "recompute_layers": 3}),
        ({"num_layers": "2", "pipeline_model_parallel_size": "2", "pipeline_model_parallel_layout": "E|t|t|L",
          "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "1"},
         {"recompute": "full", "chunks": 2}),
        ({"tensor_model_parallel_size": "1"}, {"tp": 1, "sp": False, "dp": 8}),
        ({"context_parallel_size": "2"}, {"cp": 2, "dp": 2}),
    ],
)  # fmt: skip
def test_decisions(changed: dict[str, str], fixed: dict[str, Any]) -> None:
    found = read(DENSE, **changed).settings["fixed"]
    assert {name: found[name] for name in fixed} == fixed


def test_stages_whose_ends_stand_alone_are_told_by_name() -> None:
    found = read(DENSE, pipeline_model_parallel_layout="E|t*16|t*16|L").settings["fixed"]["stages"]
    assert found[0] == ["embedding"]
    assert found[1] == [f"layers.{number}" for number in range(16)]
    assert found[3] == ["head"]


@pytest.mark.parametrize(
    ("changed", "chunks", "sizes"),
    [
        ({"pipeline_model_parallel_layout": "Et*3|(t*4|)*6t*5L"}, 2, [3, 4, 4, 4, 4, 4, 4, 5]),
        ({"pipeline_model_parallel_layout": "E|(t*3|)*8t*4|t*4|L"}, 3, [0, *[3] * 8, 4, 4, 0]),
        ({"pipeline_model_parallel_layout": "Et*3|(t*4|)*6t*5mL", "mtp_num_layers": "1"}, 2, [3, *[4] * 6, 6]),
        ({"pipeline_model_parallel_layout": "Et*5|(t*5|)*4t*7|m|L", "mtp_num_layers": "1"}, 2, [*[5] * 5, 7, 1, 0]),
        ({"mtp_num_layers": "1", "num_virtual_stages_per_pipeline_rank": "2"}, 2, [*[4] * 7, 5]),
        ({"decoder_first_pipeline_num_layers": "2", "num_virtual_stages_per_pipeline_rank": "2"}, 2,
         [1, 5, 5, 5, 1, 5, 5, 5]),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": "5",
          "pipeline_model_parallel_layout": "Et*3|(t*4|)*6t*5L"}, 2, [3, 4, 4, 4, 4, 4, 4, 5]),
    ],
)  # fmt: skip
def test_uneven_chunks_are_told_by_the_layers_of_each_stage(
    changed: dict[str, str], chunks: int, sizes: list[int]
) -> None:
    fixed = read(DENSE, **changed).settings["fixed"]
    assert (fixed["schedule"], fixed["chunks"]) == ("interleaved", chunks)
    numbers = iter(f"layers.{number}" for number in range(33))
    runs = [[next(numbers) for _ in range(size)] for size in sizes]
    runs[0].insert(0, "embedding")
    runs[-1].append("head")
    assert fixed["stages"] == [[name for run in runs[stage::4] for name in run] for stage in range(4)]


@pytest.mark.parametrize(
    ("changed", "widths"),
    [
        ({"group_query_attention": None}, {"kv_heads": 8}),
        ({"ffn_hidden_size": None}, {"ffn": 1344}),  # Two thirds of 4 x 512, a multiple of 64.
        ({"ffn_hidden_size": None, "swiglu": None}, {"ffn": 2048, "gated_mlp": False}),
        ({"num_experts": "8", "moe_ffn_hidden_size": "512"}, {"experts": 8, "top_k": 2}),
    ],
)
def test_widths_that_are_left_out_are_megatron_lm_s(changed: dict[str, str | None], widths: dict[str, Any]) -> None:
    found = read(DENSE, **changed).settings["model"]["transformer"]
    assert {name: found[name] for name in widths} == widths


@pytest.mark.parametrize("norms", ["", None])
def test_with_every_second_layer_of_experts_the_first_has_them(norms: str | None) -> None:
    found = read(EXPERTS, moe_layer_freq="2", qk_layernorm=norms)
    assert found.settings["model"]["mlp_only_layers"] == list(range(1, 32, 2))
    assert any("what norms learn" in note for note in found.notes) == (norms is None)


def test_the_expert_tensor_degree_is_the_tensor_degree_unless_said() -> None:
    assert read(EXPERTS).settings["fixed"]["etp"] == 2
    assert read(EXPERTS, expert_tensor_parallel_size="1").settings["fixed"]["etp"] == 1


@pytest.mark.parametrize(
    ("changed", "training"),
    [
        ({"bf16": None}, {"precision": "fp32"}),
        ({"bf16": None, "fp16": ""}, {"precision": "fp16"}),
        ({"fp8_format": "hybrid"}, {"precision": "fp8", "primary_weights": "bf16"}),
        ({"fp8_format": "e4m3", "fp8_recipe": "mxfp8", "fp8_param_gather": ""},
         {"precision": "mxfp8", "primary_weights": "fp8"}),
        ({"fp4_format": "e2m1"}, {"precision": "nvfp4"}),
        ({"grad_reduce_in_bf16": ""}, {"gradients": "bf16", "master_gradients": None}),
        ({"optimizer": "sgd"}, {"optimizer": "sgd-momentum"}),
        ({"use_precision_aware_optimizer": "", "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"},
         {"optimizer": "adam-bf16"}),
        ({"use_precision_aware_optimizer": "", "exp_avg_dtype": "bf16"}, {"optimizer": "adam"}),
        ({"use_precision_aware_optimizer": "", "optimizer_cpu_offload": ""}, {"offload": ["optimizer"]}),
        ({"num_virtual_stages_per_pipeline_rank": "2", "no_overlap_p2p_communication": ""},
         {"overlap": {"data": False, "tensor": False, "experts": False, "pipeline": False}}),
        ({"overlap_grad_reduce": "", "tp_comm_overlap": ""},
         {"overlap": {"data": True, "tensor": True, "experts": False}}),
        ({"overlap_moe_expert_parallel_comm": ""},
         {"overlap": {"data": False, "tensor": False, "experts": True}}),
        ({"moe_token_dispatcher_type": "flex", "moe_enable_deepep": ""}, {"dispatch": "per-node"}),
        ({"moe_token_dispatcher_type": "alltoall"}, {"dispatch": "all-to-all", "stack": "megatron-core"}),
        ({"attention_backend": "unfused"}, {"attention": "unfused"}),
        ({"context_parallel_size": "2", "cp_comm_type": "allgather"}, {"context_exchange": "all_gather"}),
        ({"recompute_granularity": "selective", "recompute_modules": "layernorm"},
         {"selective": ["attention_norm", "mlp_norm"]}),
    ],
)  # fmt: skip
def test_training(changed: dict[str, str | None], training: dict[str, Any]) -> None:
    found = read(DENSE, **changed).settings["training"]
    assert {name: found[name] for name in training} == training


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"pipeline_model_parallel_layout": "Et*7|t*8|t*8|t*8L"}, "31 transformer layers, but --num-layers is 32"),
        ({"pipeline_model_parallel_layout": "Et*11|t*11|t*10L"}, "3 chunks, which --pipeline-model-parallel-size 4"),
        ({"pipeline_model_parallel_layout": "Et*16||t*8|t*8L"}, "stage 2 holds no layers"),
        ({"pipeline_model_parallel_layout": "Et*4|(t*4|)*3|(t*5|)*2t*6L"},
         "virtual stage 2 of pipeline stage 1 holds no layers"),
        ({"pipeline_model_parallel_size": "1", "pipeline_model_parallel_layout": "Et*16|t*16L"},
         "2 virtual stages need --pipeline-model-parallel-size above 1"),
        ({"decoder_first_pipeline_num_layers": "5", "num_virtual_stages_per_pipeline_rank": "2"},
         "the 5 layers of pipeline stage 1 cannot be split evenly over 2 virtual stages"),
        ({"pipeline_model_parallel_layout": "Et*8|t*8|t*8|t*8L", "num_virtual_stages_per_pipeline_rank": "2"}, "of --"),
        ({"pipeline_model_parallel_layout": "Et*8|t*8|t*8|t*8L", "decoder_first_pipeline_num_layers": "8"}, "leave"),
        ({"num_layers": "31"}, "--num-layers 31 is no multiple of --pipeline-model-parallel-size 4"),
        ({"num_layers_per_virtual_pipeline_stage": "3"}, "does not divide the 8 layers of a stage"),
        ({"num_virtual_stages_per_pipeline_rank": "3"}, "cannot be split evenly"),
        ({"decoder_first_pipeline_num_layers": "6"}, "26 are left for 3"),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "99"},
         "no pipeline stage, or chunk of one, has more than 8 layers"),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "9"}, "more than 8"),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "4"},
         "has the activations of 4 layers at once"),
        ({"recompute_granularity": "full"}, "full needs --recompute-method"),
        ({"recompute_granularity": "selective", "recompute_num_layers": "1"}, "go with --recompute-granularity full"),
        ({"recompute_granularity": "selective", "recompute_modules": "everything"}, "has no 'everything'"),
        ({"tensor_model_parallel_size": "3"}, "does not divide --num-attention-heads 8"),
        ({"tensor_model_parallel_size": "8", "num_query_groups": "3"}, "--num-query-groups 3 does not divide"),
        ({"expert_model_parallel_size": "2"}, "needs --num-experts"),
        ({"tensor_model_parallel_size": "8", "context_parallel_size": "2"}, "32 ranks are no multiple of 64"),
        ({"global_batch_size": "63"}, "--global-batch-size 63 is no multiple"),
        ({"context_parallel_size": "2", "seq_length": "254"}, "no multiple of twice --context-parallel-size"),
        ({"seq_length": "512"}, "--max-position-embeddings 256 is less than --seq-length 512"),
        ({"fp16": ""}, "--bf16 and --fp16 are both given"),
        ({"fp8_param_gather": ""}, "needs --fp8-format"),
        ({"overlap_param_gather": "", "overlap_grad_reduce": ""}, "needs --use-distributed-optimizer"),
        ({"overlap_param_gather": "", "use_distributed_optimizer": ""}, "needs --overlap-grad-reduce"),
        ({"tp_comm_overlap": "", "sequence_parallel": None}, "--tp-comm-overlap needs --sequence-parallel"),
        ({"optimizer_cpu_offload": ""}, "needs --use-precision-aware-optimizer"),
        ({"context_parallel_size": "2", "cp_comm_type": "a2a+p2p"}, "must be two sizes whose product"),
        ({"context_parallel_size": "2", "cp_comm_type": "a2a a2a+p2p"}, "cannot be priced"),
        ({"micro_batch_size": "one"}, "--micro-batch-size is 'one'"),
        ({"hidden_size": None}, "--hidden-size is missing"),
        ({"num_attention_heads": "7", "num_query_groups": "7"}, "does not divide --hidden-size"),
        ({"moe_layer_freq": "[1]*3", "num_experts": "8"}, "a 0 or a 1 for each of the 32 layers"),
        ({"window_size": "wide"}, "no pair of numbers"),
        ({"num_layers": "\x1c32"}, r"--num-layers is '\x1c32'; it must be a whole number"),
        ({"num_layers": "32\x1f"}, r"--num-layers is '32\x1f'; it must be a whole number"),
    ],
)  # fmt: skip
def test_contradictions_are_told_with_their_reason(changed: dict[str, str | None], told: str) -> None:
    with pytest.raises(InputError) as error:
        read(DENSE, **changed)
    assert told in str(error.value)


def test_beginnings_of_flags_are_read_as_argparse_does() -> None:
    short = {"--tensor-model-parallel": "2", "--global-batch": "64", "--hidden": "512"}
    plain = {flag: value for flag, value in DENSE.items() if not flag.startswith(tuple(short))}
    found = read(plain | short)
    assert found.settings == read(DENSE).settings
    assert "--hidden is read as --hidden-size, as argparse does." in found.notes


def test_flags_of_latent_attention_are_idle_without_it() -> None:
    idle = read(DENSE, kv_lora_rank="512", qk_head_dim="128", v_head_dim="128")
    assert (idle.settings, idle.notes) == (read(DENSE).settings, read(DENSE).notes)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "/models/Qwen3-8B/", "Kimi-K9"])
def test_megatron_bridge_builds_the_model_of_the_name_whatever_the_flags_say(name: str) -> None:
    found = read(DENSE, use_bridge="", bridge_hf_model=name)
    assert found.settings.get("model") == ("qwen3-8b" if "Qwen" in name else None)
    assert any("--num-layers, --hidden-size" in note and "are not read" in note for note in found.notes)
    assert any(note.endswith(MODEL_LEFT) for note in found.notes) == ("Kimi" in name)


def test_a_value_that_only_a_run_would_tell_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"--global-batch-size is .* which only a run would tell"):
        read_megatron("torchrun pretrain_gpt.py --micro-batch-size 1 --global-batch-size $(cat batch)")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"expert_model_parallel_size": "3"}, "--expert-model-parallel-size 3 does not divide --num-experts 8"),
        ({"expert_model_parallel_size": "8"}, "32 ranks are no multiple of 64"),
        ({"moe_router_topk": "9"}, "--moe-router-topk 9 is more than the 8 experts"),
        ({"sequence_parallel": None}, "needs --sequence-parallel"),
    ],
)
def test_contradictions_of_experts(changed: dict[str, str | None], told: str) -> None:
    with pytest.raises(InputError) as error:
        read(EXPERTS, **changed)
    assert told in str(error.value)


def test_what_costs_and_is_not_priced_is_told_and_what_costs_nothing_is_not() -> None:
    found = read(
        DENSE,
        rampup_batch_size="1 1 8",
        lr="1e-4",
        train_iters="10",
        save="x",
        made_up="3",
        another_one="",
        wandb_project="y",
    )
    assert len(found.notes) == 3
    assert "--rampup-batch-size (the batch" in found.notes[1]
    assert "--another-one, --made-up" in found.notes[2]


def test_flags_without_a_model_leave_it_and_what_they_do_not_say_to_the_problem() -> None:
    found = read_megatron("A=(--tensor-model-parallel-size 2 --micro-batch-size 1 --overlap-grad-reduce)")
    assert set(found.settings) == {"training", "fixed"}
    assert found.settings["training"] == {"overlap": {"data": True, "tensor": False, "experts": False}}


def test_a_vocabulary_nobody_says_is_asked_for() -> None:
    found = read(DENSE, vocab_size=None)
    assert found.vocabulary == ("model", "transformer", "vocab")
    assert "vocab" not in found.settings["model"]["transformer"]


@pytest.mark.parametrize("folder", ["plans"])
def test_samples_are_read(shared: Any, folder: str) -> None:
    for name in ("megatron_flags.sh", "megatron_args.yaml"):
        found = read_megatron((shared / "samples" / folder / name).read_text())
        assert found.settings["fixed"]["stages"] == [7, 8, 9, 8]
        assert found.settings["fixed"]["recompute"] == "full"


def test_flags_that_cost_nothing_are_passed_over_in_silence() -> None:
    harmless = "--log-interval 1 --lr-decay-style cosine --eval-iters 2 --data-path a --profile --weight-decay 0.1"
    assert read_megatron(f"torchrun pretrain_gpt.py {harmless} --micro-batch-size 1").notes[1:] == ()
    strange = read_megatron("torchrun pretrain_gpt.py --micro-batch-size 1 --attend-twice")
    assert strange.notes[1:] == ("nest does not know these flags, nor whether they cost anything: --attend-twice.",)


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        ({}, {}),
        ({"attention_backend": "flash"}, {"attention_kernel": "flash2"}),
        ({"attention_backend": "fused"}, {"attention_kernel": "cudnn"}),
        ({"attention_backend": "auto"}, {}),
        ({"transformer_impl": "local", "use_flash_attn": ""}, {"attention_kernel": "flash2"}),
        ({"cuda_graph_impl": "local"}, {"graphs": "layers"}),
        ({"cuda_graph_impl": "none"}, {}),
        ({"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"}, {"graphs": "iteration"}),
        ({"cuda_graph_impl": "full_iteration"}, {"graphs": "iteration"}),
        ({"enable_cuda_graph": ""}, {"graphs": "layers"}),
        ({"external_cuda_graph": ""}, {"graphs": "layers"}),
        ({"no_bias_swiglu_fusion": ""}, {"kernels": "eager", "norms": "fused"}),
    ],
)
def test_kernels_and_graphs_are_as_the_flags_say(flags: dict[str, str], facts: dict[str, str]) -> None:
    training = read(DENSE, **flags).settings["training"]
    said = ("attention_kernel", "graphs", "kernels", "norms")
    assert {name: training[name] for name in said if training.get(name) is not None} == facts


def test_graphs_of_parts_of_layers_are_told() -> None:
    notes = read(DENSE, cuda_graph_impl="local", cuda_graph_scope="attn moe_router").notes
    assert "graphs of attn moe_router are priced as graphs of whole layers." in notes
