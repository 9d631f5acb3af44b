"""Public files of frameworks that run Megatron Core, retyped in what they decide; each with where it is from."""

from typing import Any

from attrs import field, frozen


@frozen
class File:
    """A file, and what it says.

    Attributes:
        reader: the plan reader for it.
        source: repository, commit and path.
        text: its essentials.
        devices: what it is launched on; None: it does not say.
        fixed: some of the decisions.
        training: some keys of the training.
        model: name in the catalogue; None: the file says it, or nobody does.
        refused: what the error says; empty: it is read.
        told: a piece of one of the notes.
    """

    reader: str
    source: str
    text: str
    devices: int | None = None
    fixed: dict[str, Any] = field(factory=dict)
    training: dict[str, Any] = field(factory=dict)
    model: str | None = None
    refused: str = ""
    told: str = ""


LAUNCHER = "NVIDIA/NeMo-Framework-Launcher@26e42fa launcher_scripts/conf/training/"
VERL = "volcengine/verl@b178a3cd examples/"
SWIFT = "modelscope/ms-swift@3602360a examples/"
FACTORY = "hiyouga/LLaMA-Factory@ff6d4d12 examples/"
BRIDGE = "NVIDIA-NeMo/Megatron-Bridge "

FILES = (
    File(
        "nemo",
        LAUNCHER + "gpt3/175b.yaml",
        """
run: {name: gpt3_175b, results_dir: "${base_results_dir}/${.name}"}
trainer: {num_nodes: 128, devices: 8, precision: bf16, max_steps: 75000, accumulate_grad_batches: 1}
exp_manager: {model_parallel_size: "${multiply:${training.model.tensor_model_parallel_size}, 8}"}
model:
  mcore_gpt: True
  micro_batch_size: 1
  global_batch_size: 2048
  rampup_batch_size: null
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: 6
  encoder_seq_length: 2048
  max_position_embeddings: 2048
  num_layers: 96
  hidden_size: 12288
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 96
  activations_checkpoint_granularity: null
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 0
  sequence_parallel: True
  tokenizer: {library: megatron, type: GPT2BPETokenizer, vocab_file: "${data_dir}/bpe/vocab.json"}
  megatron_amp_O2: True
  transformer_engine: True
  fp8: False
  fp8_hybrid: True
  ub_tp_comm_overlap: True
  overlap_p2p_comm: True
  optim: {name: distributed_fused_adam, overlap_grad_sync: True, overlap_param_sync: true, lr: 0.9e-4}
  data: {data_impl: mmap, seq_length: 2048}
""",
        devices=1024,
        fixed={"tp": 4, "sp": True, "pp": 8, "chunks": 6, "dp": 32, "micro_batch": 1, "zero": 1, "recompute": "none"},
        training={
            "global_batch": 2048,
            "precision": "bf16",
            "overlap": {"data": True, "tensor": True, "experts": False},
        },
        told="nest assumes GPT2BPETokenizer to have 50257 tokens",
    ),
    File(
        "nemo",
        LAUNCHER + "llama/llama3_1_405b.yaml",
        """
trainer: {num_nodes: 576, devices: 8, precision: bf16}
model:
  mcore_gpt: true
  micro_batch_size: 1
  global_batch_size: 2016
  tensor_model_parallel_size: 8
  pipeline_model_parallel_size: 9
  virtual_pipeline_model_parallel_size: 7
  context_parallel_size: 2
  encoder_seq_length: 8192
  max_position_embeddings: 8192
  num_layers: 126
  hidden_size: 16384
  ffn_hidden_size: 53248
  num_attention_heads: 128
  num_query_groups: 8
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  tokenizer: {library: huggingface, type: meta-llama/Meta-Llama-3.1-8B}
  megatron_amp_O2: true
  cross_entropy_loss_fusion: true
  sequence_parallel: true
  defer_embedding_wgrad_compute: true
  transformer_engine: true
  fp8: False
  ub_tp_comm_overlap: true
  overlap_p2p_comm: true
  optim: {name: distributed_fused_adam, overlap_grad_sync: true, overlap_param_sync: true, contiguous_grad_buffer: true}
""",
        devices=4608,
        fixed={"tp": 8, "cp": 2, "pp": 9, "chunks": 7, "dp": 32, "zero": 1},
        training={"global_batch": 2016, "sequence_length": 8192, "loss": "unfused"},
        told="the vocabulary is that of llama-3.1-8b",
    ),
    File(
        "nemo",
        LAUNCHER + "mixtral/mixtral_8x7b.yaml",
        """
trainer: {num_nodes: 8, devices: 8, precision: bf16}
model:
  mcore_gpt: true
  moe_token_dispatcher_type: alltoall
  moe_pad_expert_input_to_capacity: True
  moe_expert_capacity_factor: 1.0
  micro_batch_size: 1
  global_batch_size: 256
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 4
  expert_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: 8
  encoder_seq_length: 4096
  max_position_embeddings: 32768
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  position_embedding_type: rope
  moe_router_topk: 2
  num_moe_experts: 8
  share_embeddings_and_output_weights: false
  tokenizer: {library: huggingface, type: mistralai/Mixtral-8x7B-v0.1}
  megatron_amp_O2: True
  optim: {name: mcore_distributed_optim, overlap_grad_sync: true, overlap_param_sync: true}
""",
        devices=64,
        fixed={"pp": 4, "chunks": 8, "ep": 8, "etp": 1, "dp": 16, "zero": 1},
        told="the vocabulary is that of mixtral-8x7b",
    ),
    File(
        "nemo",
        LAUNCHER + "bert/110m.yaml",
        """
trainer: {num_nodes: 4, devices: 8, precision: bf16}
model:
  tokenizer: {library: megatron, type: BertWordPieceLowerCase}
  num_layers: 12
  hidden_size: 768
  num_attention_heads: 12
""",
        refused="BERT, an encoder",
    ),
    File(
        "nemo",
        LAUNCHER + "gpt3/70b_32n_gbs128_fsdp_tp2_mbs1ga1.yaml, commit 3d827fe",
        "trainer: {num_nodes: 32, devices: 8}\nmodel: {fsdp: True, tensor_model_parallel_size: 2, num_layers: 80}\n",
        refused="NeMo's own FSDP",
    ),
    File(
        "megatron-bridge",
        BRIDGE
        + "c7761623 examples/recipes/llama/conf/llama3_8b_pretrain_override_example_megatron_fsdp.yaml, f03d52ff",
        """
model: {seq_length: 4096, init_model_with_meta_device: true}
train: {train_iters: 20, global_batch_size: 8, micro_batch_size: 1, eval_iters: 0}
optimizer: {lr: 0.00025}
dist: {use_megatron_fsdp: true, use_torch_fsdp2: false}
dataset: {sequence_length: 4096}
ddp: {grad_reduce_in_fp32: true, data_parallel_sharding_strategy: optim_grads_params}
profiling: {_target_: megatron.bridge.training.config.ProfilingConfig, use_nsys_profiler: false}
""",
        fixed={"micro_batch": 1, "zero": 3},
        training={"global_batch": 8, "sequence_length": 4096, "stack": "megatron-core"},
        told="left to the recipe, and to the problem: tp, cp, pp,",
    ),
    File(
        "megatron-bridge",
        BRIDGE + "2d06bc32 examples/recipes/qwen3_moe/conf/qwen3_moe_30b_a3b_pretrain_override_example.yaml",
        """
model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  seq_length: 4096
  sequence_parallel: true
  expert_model_parallel_size: 4
  expert_tensor_parallel_size: 1
train: {train_iters: 100000, global_batch_size: 256, micro_batch_size: 2, eval_interval: 1000}
ddp: {grad_reduce_in_fp32: true}
mixed_precision: {dtype: bf16}
""",
        fixed={"tp": 4, "sp": True, "pp": 2, "ep": 4, "etp": 1, "micro_batch": 2},
        training={"global_batch": 256, "sequence_length": 4096},
        told="left to the recipe, and to the problem: cp,",
    ),
    File(
        "megatron-bridge",
        BRIDGE + "a9497c6b scripts/performance/dryrun_configs/deepseek/deepseek_v3_pretrain_h100_fp8_sc_v1.yaml",
        """
_target_: megatron.bridge.training.config.ConfigContainer
comm_overlap: {overlap_grad_reduce: false, overlap_param_gather: null, tp_comm_overlap: false}
dataset: {sequence_length: 4096}
ddp: {data_parallel_sharding_strategy: no_shard, num_distributed_optimizer_instances: 1, overlap_grad_reduce: false,
      overlap_param_gather: true, use_distributed_optimizer: true, use_megatron_fsdp: false, grad_reduce_in_fp32: false}
dist: {use_megatron_fsdp: false, use_torch_fsdp2: false, use_tp_pp_dp_mapping: false}
mixed_precision: {bf16: true, fp16: false, fp4: null, fp8: hybrid, fp8_recipe: blockwise, fp8_param_gather: false,
                  grad_reduce_in_fp32: false}
optimizer: {optimizer: adam, use_distributed_optimizer: true, use_precision_aware_optimizer: false,
            exp_avg_dtype: {_call_: false, _target_: torch.float32}}
train: {global_batch_size: 8192, micro_batch_size: 1, train_iters: 50}
model:
  add_bias_linear: false
  attention_backend: null
  context_parallel_size: 1
  cross_entropy_fusion_impl: te
  cross_entropy_loss_fusion: true
  expert_model_parallel_size: 64
  expert_tensor_parallel_size: 1
  ffn_hidden_size: 18432
  gated_linear_unit: true
  hidden_size: 7168
  kv_channels: 64
  kv_lora_rank: 512
  moe_ffn_hidden_size: 2048
  moe_layer_freq: [FREQUENCY]
  moe_router_topk: 8
  moe_shared_expert_intermediate_size: 2048
  moe_token_dispatcher_type: flex
  mtp_num_layers: 1
  multi_latent_attention: true
  normalization: RMSNorm
  num_attention_heads: 128
  num_layers: 61
  num_moe_experts: 256
  num_query_groups: 128
  pipeline_model_parallel_layout: Et|(tt|)*30mL
  pipeline_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: null
  position_embedding_type: rope
  q_lora_rank: 1536
  qk_head_dim: 128
  qk_layernorm: true
  qk_pos_emb_head_dim: 64
  recompute_granularity: selective
  recompute_modules: [mla_up_proj, mlp]
  seq_length: 4096
  sequence_parallel: true
  share_embeddings_and_output_weights: false
  tensor_model_parallel_size: 2
  v_head_dim: 128
  vocab_size: 129280
""".replace("FREQUENCY", ", ".join("0" * 3 + "1" * 58)),
        fixed={"tp": 2, "sp": True, "pp": 8, "chunks": 4, "ep": 64, "etp": 1, "zero": 1, "recompute": "selective"},
        training={
            "global_batch": 8192,
            "precision": "fp8",
            "gradients": "bf16",
            "dispatch": "per-node",
            "loss": "fused",
        },
        told="overlap_param_gather without overlap_grad_reduce is priced as neither",
    ),
    File(
        "verl",
        VERL + "grpo_trainer/run_qwen2-7b_math_megatron.sh",
        """
rollout_mode="async"
gsm8k=$HOME/data/gsm8k/train.parquet
python3 -m verl.trainer.main_ppo --config-path=config \\
    --config-name='ppo_megatron_trainer.yaml'\\
    algorithm.adv_estimator=grpo \\
    data.train_files="['$gsm8k']" \\
    data.train_batch_size=1024 \\
    data.max_prompt_length=1024 \\
    data.max_response_length=1024 \\
    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct \\
    actor_rollout_ref.model.use_fused_kernels=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 \\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
    actor_rollout_ref.rollout.n=5 \\
    trainer.logger='["console","wandb"]' \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=1 $@
""",
        devices=8,
        fixed={"tp": 2, "sp": True, "pp": 2, "dp": 2, "micro_batch": 4, "zero": 1, "recompute": "none"},
        training={"global_batch": 1280, "sequence_length": 2048, "loss": "fused", "stack": "megatron-core"},
        told="only an optimizer step of the actor is priced",
    ),
    File(
        "verl",
        VERL + "grpo_trainer/run_qwen3moe-30b_megatron_96gb.sh",
        """
NNODES=${NNODES:-1}
max_prompt_length=$((1024 * 2))
max_response_length=$((1024 * 8))
MODEL_PATH=Qwen/Qwen3-30B-A3B-Base
COMMON_EP=${COMMON_EP:-8}
ACTOR_EP=${ACTOR_EP:-$COMMON_EP}
offload=True
python3 -m verl.trainer.main_ppo --config-path=./config --config-name='ppo_megatron_trainer'\\
    data.max_prompt_length=${max_prompt_length} \\
    data.max_response_length=${max_response_length} \\
    actor_rollout_ref.rollout.n=16 \\
    actor_rollout_ref.model.path="${MODEL_PATH}" \\
    actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((max_prompt_length + max_response_length)) \\
    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=1. \\
    +actor_rollout_ref.actor.optim.override_optimizer_config.use_precision_aware_optimizer=True \\
    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True \\
    actor_rollout_ref.actor.megatron.param_offload=${offload} \\
    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=null \\
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=${ACTOR_EP} \\
    actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1 \\
    +actor_rollout_ref.actor.megatron.override_transformer_config.moe_token_dispatcher_type="flex" \\
    +actor_rollout_ref.actor.megatron.override_transformer_config.moe_enable_deepep=True \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes="${NNODES}"
""",
        devices=8,
        fixed={"ep": 8, "etp": 1, "dp": 8, "micro_batch": 1},
        training={"global_batch": 2048, "sequence_length": 10240, "offload": ["optimizer"], "dispatch": "per-node"},
        model="qwen3-30b-a3b",
        told="offloads (param) waits on the host between steps",
    ),
    File(
        "verl",
        VERL + "grpo_trainer/run_qwen3-8b.sh",
        """
python3 -m verl.trainer.main_ppo \\
    data.max_prompt_length=512 \\
    data.max_response_length=1024 \\
    actor_rollout_ref.model.path=Qwen/Qwen3-8B \\
    actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=False \\
    actor_rollout_ref.rollout.n=5 \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=1
""",
        devices=8,
        fixed={"tp": 1, "dp": 8, "micro_batch": 32, "zero": 3, "recompute": "full"},
        training={"global_batch": 1280, "sequence_length": 1536, "stack": "fsdp"},
        model="qwen3-8b",
    ),
    File(
        "verl",
        VERL + "grpo_trainer/run_deepseek671b_math_megatron_80gb.sh",
        """
LLM="<path_to_dsv3_config>"
python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer'\\
    actor_rollout_ref.model.path=$LLM \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \\
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=16 \\
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=16 \\
    +actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_first_pipeline_stage=4 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=32
""",
        refused="name one of the catalogue, or one whose config.json lies beside this file",
    ),
    File(
        "verl",
        VERL + "grpo_trainer/run_qwen2-7b_math_megatron_lora.sh",
        """
MODEL=(
    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct
    actor_rollout_ref.model.lora.rank=256
)
ACTOR=(actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2)
python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer.yaml' "${MODEL[@]}" "${ACTOR[@]}"
""",
        fixed={"micro_batch": 2},
        training={
            "trainable": {
                "lora": {
                    "rank": 256,
                    "targets": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
                }
            }
        },
    ),
    File(
        "ms-swift",
        SWIFT + "megatron/multi-node/node1.sh",
        """
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \\
CUDA_VISIBLE_DEVICES=0,1,2,3 \\
NNODES=2 \\
NODE_RANK=0 \\
NPROC_PER_NODE=4 \\
megatron sft \\
    --model Qwen/Qwen2.5-14B \\
    --dataset 'liucong/Chinese-DeepSeek-R1-Distill-data-110k-SFT' \\
    --tensor_model_parallel_size 4 \\
    --micro_batch_size 1 \\
    --global_batch_size 16 \\
    --packing true \\
    --recompute_granularity selective \\
    --cross_entropy_loss_fusion true \\
    --lr 1e-5 \\
    --max_length 8192 \\
    --sequence_parallel true \\
    --attention_backend flash
""",
        devices=8,
        fixed={"tp": 4, "sp": True, "dp": 2, "micro_batch": 1, "zero": 1, "recompute": "selective"},
        training={"global_batch": 16, "sequence_length": 8192, "precision": "bf16", "attention": "flash"},
        model="qwen2.5-14b",
    ),
    File(
        "ms-swift",
        SWIFT + "megatron/mcore_bridge/full/moe.sh",
        """
NPROC_PER_NODE=8 megatron sft \\
    --model Qwen/Qwen3-30B-A3B-Instruct-2507 \\
    --tensor_model_parallel_size 4 \\
    --expert_model_parallel_size 4 \\
    --pipeline_model_parallel_size 2 \\
    --decoder_first_pipeline_num_layers 25 \\
    --moe_permute_fusion true \\
    --moe_shared_expert_overlap true \\
    --sequence_parallel true \\
    --packing true \\
    --micro_batch_size 1 \\
    --global_batch_size 4 \\
    --recompute_granularity full \\
    --recompute_method uniform \\
    --recompute_num_layers 1 \\
    --max_length 8192
""",
        devices=8,
        fixed={"tp": 4, "pp": 2, "ep": 4, "etp": 1, "dp": 1, "stages": [25, 23], "recompute": "full"},
        training={"global_batch": 4},
        model="qwen3-30b-a3b",
        told="moe_shared_expert_overlap is not priced",
    ),
    File(
        "ms-swift",
        SWIFT + "yaml/megatron/sft.yaml",
        """
ENV: {PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}
model: "Qwen/Qwen3.5-35B-A3B"
tuner_type: lora
micro_batch_size: 1
global_batch_size: 4
expert_model_parallel_size: 4
""",
        fixed={"ep": 4, "micro_batch": 1, "zero": 1},
        training={"trainable": {"lora": {"rank": 8, "targets": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}}},
        model="qwen3.5-35b-a3b",
        told="max_length is not given",
    ),
    File(
        "ms-swift",
        SWIFT + "megatron/rlhf/dpo/dense.sh",
        "NPROC_PER_NODE=4 megatron rlhf --rlhf_type dpo --model Qwen/Qwen3-8B --tensor_model_parallel_size 4\n",
        refused="rlhf_type is 'dpo': its steps read pairs, or have a reference model",
    ),
    File(
        "ms-swift",
        SWIFT + "megatron/rlhf/rm/moe.sh",
        "NPROC_PER_NODE=2 megatron rlhf --rlhf_type rm --model Qwen/Qwen3-8B --micro_batch_size 1 --max_length 8192 "
        "--global_batch_size 4\n",
        devices=2,
        fixed={"dp": 2, "micro_batch": 2},
        training={"global_batch": 8},
        told="two answers a sample",
    ),
    File(
        "ms-swift",
        SWIFT + "megatron/mcore_bridge/lora/new_special_tokens.sh",
        "NPROC_PER_NODE=2 megatron sft --model Qwen/Qwen3-8B --tuner_type lora --target_modules all-linear all-router "
        "--modules_to_save word_embeddings output_layer --max_length 2048 --task_type seq_cls\n",
        devices=2,
        training={
            "trainable": {
                "lora": {"rank": 8, "targets": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
                "layers": ["embedding", "head"],
            }
        },
        told="the head that classifies",
    ),
    File(
        "llama-factory",
        FACTORY + "megatron/qwen3_moe_full.yaml",
        """
{model_name_or_path: Qwen/Qwen3-30B-A3B-Instruct-2507, stage: sft, finetuning_type: full, cutoff_len: 4096,
 per_device_train_batch_size: 1, gradient_accumulation_steps: 8, bf16: true, pipeline_model_parallel_size: 4,
 expert_model_parallel_size: 2, use_distributed_optimizer: true, recompute_granularity: full}
""",
        devices=8,
        fixed={"pp": 4, "ep": 2, "etp": 1, "dp": 2, "micro_batch": 1, "zero": 1, "recompute": "full"},
        training={"global_batch": 16, "sequence_length": 4096, "gradients": "bf16"},
        model="qwen3-30b-a3b",
    ),
    File(
        "llama-factory",
        FACTORY + "megatron_bridge/llama3_sft.yaml",
        """
{model_name_or_path: meta-llama/Llama-3.2-1B-Instruct, stage: sft, finetuning_type: lora, cutoff_len: 2048,
 per_device_train_batch_size: 1, gradient_accumulation_steps: 4, bf16: true, mixed_precision: bf16_mixed,
 tensor_model_parallel_size: 2}
""",
        devices=8,
        fixed={"tp": 2, "dp": 4, "zero": 1},
        training={
            "global_batch": 16,
            "gradients": None,
            "trainable": {"lora": {"rank": 8, "targets": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}},
        },
        model="llama-3.2-1b",
    ),
    File(
        "llama-factory",
        FACTORY + "megatron/qwen3_moe_full.yaml",
        "{model_name_or_path: x, stage: dpo, finetuning_type: lora, tensor_model_parallel_size: 2}",
        refused="stage must be pt or sft, and finetuning_type full, for this back end",
    ),
    File(
        "verl",
        VERL + "sft/gsm8k/run_qwen3_8b_sft_peft_sp2_npu.sh",
        "torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=64 "
        "model.partial_pretrain=Qwen/Qwen3-8B model.lora_rank=32 model.target_modules=all-linear model.strategy=fsdp "
        "ulysses_sequence_parallel_size=2\n",
        devices=8,
        fixed={"cp": 1, "ulysses": 2, "dp": 4, "micro_batch": 64, "zero": 3, "recompute": "full"},
        training={"global_batch": 256, "sequence_length": 1024, "stack": "fsdp"},
        model="qwen3-8b",
    ),
    File(
        "verl",
        "volcengine/verl verl/trainer/config/sft_trainer.yaml",
        "torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size=64 "
        "model.partial_pretrain=Qwen/Qwen3-8B ulysses_sequence_parallel_size=2\n",
        devices=8,
        fixed={"dp": 4, "micro_batch": 16},
        training={"global_batch": 256},
    ),
    File(
        "verl",
        "volcengine/verl verl/trainer/config/optim/fsdp.yaml",
        "torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer optim.optimizer=AdamW8bit\n",
        refused="optim.optimizer is 'AdamW8bit', and nest knows adamw, adam",
    ),
    File(
        "verl",
        VERL + "tuning/7b/qwen2-7b_grpo-lora_1_h100_fsdp_vllm.sh",
        "# After fsdp_sft_trainer.\n"
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct trainer.nnodes=1 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.actor.ppo_micro_batch_size=16 "
        "trainer.n_gpus_per_node=4\n",
        devices=4,
        fixed={"dp": 4, "micro_batch": 4},
    ),
)
