"""Public launch scripts, retyped in their essentials: how they launch, the degrees, the batch, what is recomputed.

Each entry names the repository and the file whose idioms of the shell, degrees, batches and nodes it is written after.
Data, tokenizers, learning rates and logging are left out; widths are stand-ins where they do not matter, and where a
file leaves the number of ranks to its surroundings an entry may say one.
"""

from frameworks_tests.megatron_script import Script

LM, DS, BS = "NVIDIA/Megatron-LM/examples", "deepspeedai/Megatron-DeepSpeed", "bigscience-workshop/bigscience/train"
GPT3 = "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048"
GPT = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024"
LLAMA = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights"
)
TORCH = """
GPUS_PER_NODE=8
NUM_NODES=%s
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
"""
CALL = "torchrun ${DISTRIBUTED_ARGS[@]} %s %s\n"
JEAN_ZAY = """#!/bin/bash
#SBATCH --nodes=%d
#SBATCH --ntasks-per-node=1          # one launcher a node
#SBATCH --gres=gpu:%d                # number of gpus
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
GPUS_PER_NODE=%d
NNODES=$SLURM_NNODES
config_json="./ds_config.$SLURM_JOBID.json"
cat <<EOT > $config_json
{"zero_optimization": {"stage": %d}, "steps_per_print": 2000}
EOT
DEEPSPEED_ARGS=" \\
    --deepspeed \\
    --deepspeed_config ${config_json} \\
    --zero-stage %d \\
    --deepspeed-activation-checkpointing \\
    "
export LAUNCHER="python -u -m torch.distributed.%s \\
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES \\
    --master_addr $MASTER_ADDR \\
    "
export CMD=" \\
    `pwd`/pretrain_gpt.py \\
    %s \\
    $DEEPSPEED_ARGS \\
    "
echo $CMD
srun --jobid $SLURM_JOBID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee -a log.txt
"""


def _bigscience(nodes: int, devices: int, stage: int, flags: str, module: str = "launch") -> str:
    return JEAN_ZAY % (nodes, devices, devices, stage, stage, module, flags)


DEEPSPEED = """
NUM_GPUS=%d
MP_SIZE=%d
ZERO=%d
DS_CONFIG="ds_config.json"
sed "s/CONFIG_MBSIZE/1/" template.json > ${DS_CONFIG}
opts="%s --deepspeed --deepspeed_config ${DS_CONFIG} --zero-stage ${ZERO}"
run_cmd="deepspeed %s pretrain_gpt.py --tensor-model-parallel-size ${MP_SIZE} ${opts}"
echo ${run_cmd}
eval ${run_cmd}
"""
AZURE = f"""
HF=/job/hostfile
TP=1
PP=1
MICRO_BATCH=4
NODES=1
GPN=8
GLOBAL_BATCH=$(( ${{GPN}} * ${{MICRO_BATCH}} * ${{NODES}} ))
CPU_OPTIM=" "
ZERO_STAGE=3
cat <<EOT > ds_config.json
{{"zero_optimization": {{"stage": $ZERO_STAGE}}}}
EOT
ds_args=" "
ds_args=" --deepspeed ${{ds_args}}"
ds_args=" --no-pipeline-parallel ${{ds_args}}"
ds_args=" --deepspeed_config=ds_config.json ${{ds_args}}"
ds_args=" --zero-stage=$ZERO_STAGE ${{ds_args}}"
deepspeed --force_multi --num_nodes=$NODES --hostfile $HF pretrain_gpt.py {GPT3} --fp16 --checkpoint-activations \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --micro-batch-size $MICRO_BATCH \\
    --global-batch-size $GLOBAL_BATCH $CPU_OPTIM $ds_args
"""
MULTIMODAL = (
    "torchrun --nproc_per_node 8 examples/multimodal/train.py --num-layers 32 --hidden-size 4096 --seq-length 576 "
    "--num-attention-heads 32 --decoder-seq-length 1024 --max-position-embeddings 4096 --tensor-model-parallel-size 4 "
    "--micro-batch-size 1 --global-batch-size 256 --use-distributed-optimizer --bf16 --img-h 336 "
    "--language-model-type=mistral_7b "
)

SCRIPTS = [
    Script(f"{LM}/gpt3/train_gpt3_175b_distributed.sh", TORCH % 1 + CALL % ("pretrain_gpt.py", f"{GPT3} "
           "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --micro-batch-size 1 "
           "--global-batch-size 1536 --fp16"), 128, {"tp": 8, "pp": 16, "dp": 1}, {"global_batch": 1536},
           options={"nodes": 16}),
    Script(f"{LM}/gpt3/train_gpt3_175b_distributed.sh", TORCH % 1 + CALL % ("pretrain_gpt.py", f"{GPT3} --fp16 "
           "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --micro-batch-size 1"),
           refused="8 ranks are no multiple of 128"),
    Script(f"{LM}/llama/train_llama3_8b_h100_fp8.sh", TORCH % "${NUM_NODES:-1}" + "TP_SIZE=1\nT=(--bf16)\n"
           "D=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)\nT+=(\"${D[@]}\")\n"
           + CALL % ("pretrain_gpt.py", f"{LLAMA} --tensor-model-parallel-size $TP_SIZE --micro-batch-size 1 "
           "--global-batch-size 128 --fp8-format hybrid ${T[@]}"), 8, {"tp": 1, "dp": 8, "zero": 1},
           {"precision": "fp8", "overlap": {"data": True, "tensor": False, "experts": False}}),
    Script(f"{LM}/mixtral/train_mixtral_8x7b_distributed.sh", "#SBATCH --nodes=4\n" + TORCH % '${SLURM_NNODES:-"1"}'
           + CALL % ("pretrain_gpt.py", f"{LLAMA} --num-experts 8 --moe-router-topk 2 --micro-batch-size 1 --bf16 "
           "--global-batch-size 256 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 "
           "--expert-model-parallel-size 8 --use-distributed-optimizer --sequence-parallel"), 32,
           {"ep": 8, "pp": 4, "dp": 8, "zero": 1}),
    Script(f"{LM}/gptoss/02_train.sh", TORCH % 1 + "PP_SIZE=${WORLD_SIZE}\n" + CALL % ("pretrain_gpt.py",
           "--num-layers 12 --hidden-size 512 --num-attention-heads 64 --micro-batch-size 1 --bf16 "
           "--recompute-activations --pipeline-model-parallel-size ${PP_SIZE}"), refused="--num-layers 12"),
    Script(f"{LM}/t5/train_t5_220m_distributed.sh", TORCH % 1 + CALL % ("pretrain_t5.py", "--encoder-num-layers 12 "
           "--decoder-num-layers 12 --hidden-size 768 --num-attention-heads 12"), refused="trains T5"),
    Script(f"{LM}/bert/train_bert_340m_distributed.sh", TORCH % 1 + CALL % ("pretrain_bert.py", GPT),
           refused="trains BERT"),
    Script(f"{LM}/mamba/train.sh", "torchrun --nproc_per_node 8 pretrain_mamba.py --hidden-size 4096 "
           "--hybrid-override-pattern M-M*- --num-attention-heads 32 --micro-batch-size 4", 8, {"dp": 8}),
    Script(f"{LM}/multimodal/pretrain_mistral_clip.sh", MULTIMODAL, refused="--part language-model"),
    Script(f"{LM}/multimodal/sft_mistral_clip.sh", MULTIMODAL + "--freeze-ViT", 8, {"tp": 4, "dp": 2, "zero": 1},
           {"sequence_length": 1024}, options={"part": "language-model"}),
    Script(f"{LM}/multimodal/pretrain_mistral_clip.sh", MULTIMODAL + "--freeze-LM", refused="is not trained",
           options={"part": "language-model"}),
    Script(f"{LM}/mimo/scripts/run_vlm_train.sh", "torchrun --nproc_per_node 2 examples/mimo/train.py "
           "--model-provider llava_vlm --micro-batch-size 4", refused="several modalities"),
    Script(f"{LM}/inference/run_inference_server.sh", "NPROC=8\ntorchrun --nproc-per-node \"$NPROC\" \\\n    -m "
           "examples.inference.launch_inference_server --bf16 --model-provider hybrid",
           refused="trains nothing"),
    Script(f"{LM}/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh", TORCH % 1 + CALL % ("pretrain_gpt.py", f"{LLAMA} "
           "--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --use-megatron-fsdp "
           "--data-parallel-sharding-strategy optim_grads_params --no-gradient-accumulation-fusion"), 8,
           {"zero": 3, "dp": 8}),
    Script(f"{LM}/megatron_fsdp/sbatch_mfsdp_deepseek_v3.sh", "RUN=\"python -u pretrain_gpt.py --bf16 "
           "--micro-batch-size 4 --use-megatron-fsdp\"\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=your_own\n"
           "srun sh -c \"${RUN}\"\nEOF\n", refused="give --nodes and --devices-per-node"),
    Script(f"{LM}/academic_paper_scripts/sc21/run_table_1.sh", "NNODES=128\nPP=1\n"
           "MEGATRON_EXTRA_PARAMS=\"--activations-checkpoint-method uniform \"\n. `pwd`/CONFIG.sh\n. `pwd`/SBATCH.sh\n",
           refused="sources is not here"),
    Script(f"{DS}/examples/pretrain_gpt3_175B.sh", "#!/bin/bash\n#SBATCH <SLURM OPTIONS> --nodes=128 --exclusive "
           f"--ntasks-per-node=8 --job-name=m\noptions=\" --tensor-model-parallel-size 8 {GPT3} --micro-batch-size 1 "
           "--pipeline-model-parallel-size 16 --global-batch-size 1536 --rampup-batch-size 16 16 5859375 "
           "--load <PATH TO CHECKPOINTS DIRECTORY> --tensorboard-dir <TENSORBOARD DIRECTORY> --fp16 "
           "--activations-checkpoint-method uniform \"\nrun_cmd=\"python -u ${DIR}/pretrain_gpt.py $@ ${options}\"\n"
           "srun -l --container-image \"nvcr.io/nvidia/pytorch:20.12-py3\" --output=log sh -c \"${run_cmd}\"\n", 1024,
           {"tp": 8, "pp": 16, "dp": 8, "recompute": "full"}, {"attention": "unfused", "precision": "fp16"}),
    Script(f"{DS}/examples/pretrain_gpt.sh", f"GPT_ARGS=\"{GPT} --micro-batch-size 4 --global-batch-size 8 --fp16\"\n"
           "torchrun pretrain_gpt.py $GPT_ARGS\n", 1, {"dp": 1}, {"global_batch": 8}),
    Script(f"{DS}/examples/pretrain_gpt_distributed.sh", TORCH % 1 + CALL % ("pretrain_gpt.py", f"{GPT} --fp16 "
           "--micro-batch-size 8 --global-batch-size 64"), 8, {"dp": 8, "micro_batch": 8}),
    Script(f"{DS}/examples/pretrain_gpt_distributed_with_mp.sh", TORCH % 1 + CALL % ("pretrain_gpt.py", f"{GPT} "
           "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --fp16 "
           "--micro-batch-size 4 --global-batch-size 16"), 8, {"tp": 2, "sp": True, "pp": 2, "dp": 2}),
    Script(f"{DS}/examples/pretrain_bert.sh", f"torchrun pretrain_bert.py {GPT}", refused="trains BERT"),
    Script(f"{DS}/examples/pretrain_ict.sh", f"torchrun pretrain_ict.py {GPT}", refused="a model that retrieves"),
    Script(f"{DS}/examples/evaluate_zeroshot_gpt.sh", "torchrun --nproc_per_node 8 ./tasks/main.py --task LAMBADA",
           refused="trains nothing"),
    Script(f"{DS}/examples_deepspeed/pretrain_llama2_distributed.sh", TORCH % 1 + "ZERO_STAGE=0\ncat <<EOT > ds.json\n"
           "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": $ZERO_STAGE}}\nEOT\n"
           "ds_args=\"\"\nds_args=\" --deepspeed ${ds_args}\"\nds_args=\" --deepspeed_config=ds.json ${ds_args}\"\n"
           + CALL % ("pretrain_gpt.py", "--num-layers 24 --hidden-size 2048 --ffn-hidden-size 5504 "
           "--num-attention-heads 16 --num-key-value-heads 4 --seq-length 2048 --max-position-embeddings 2048 --bf16 "
           "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 4 --swiglu "
           "--global-batch-size 32 --normalization rmsnorm --use-rotary-position-embeddings $ds_args"), 8,
           {"tp": 2, "pp": 2, "dp": 2, "zero": 1}),
    Script(f"{DS}/examples_deepspeed/azure/run-175b.sh", AZURE,
           refused="deepspeed takes all that a node has; give --devices-per-node"),
    Script(f"{DS}/examples_deepspeed/azure/run-175b.sh", AZURE, 8, {"zero": 3, "dp": 8, "micro_batch": 4,
           "recompute": "full"}, {"global_batch": 32, "precision": "fp16"}, options={"devices_per_node": 8}),
    Script(f"{DS}/examples_deepspeed/MoE/ds_pretrain_gpt_1.3B_dense.sh", DEEPSPEED % (64, 4, 0, f"{GPT} --fp16 "
           "--num-experts 1 --micro-batch-size 2 --global-batch-size 512 --checkpoint-activations", ""),
           refused="give --devices-per-node"),
    Script(f"{DS}/examples_deepspeed/MoE/ds_pretrain_gpt_1.3B_dense.sh", DEEPSPEED % (64, 4, 0, f"{GPT} --fp16 "
           "--num-experts 1 --micro-batch-size 2 --global-batch-size 512 --checkpoint-activations", ""), 64,
           {"tp": 4, "dp": 16, "zero": 0, "recompute": "full"}, options={"nodes": 8, "devices_per_node": 8}),
    Script(f"{DS}/examples_deepspeed/MoE/ds_pretrain_gpt_1.3B_MoE128.sh", DEEPSPEED % (64, 1, 0, f"{GPT} --fp16 "
           "--num-experts 128 --micro-batch-size 8", ""), refused="Megatron-DeepSpeed",
           options={"nodes": 8, "devices_per_node": 8}),
    Script(f"{DS}/examples_deepspeed/rebase/ds_pretrain_gpt_13B.sh", DEEPSPEED % (64, 4, 1, f"{GPT} --fp16 "
           "--pipeline-model-parallel-size 8 --micro-batch-size 2 --global-batch-size 1024 --checkpoint-activations",
           ""), 64, {"tp": 4, "pp": 8, "dp": 2, "zero": 1, "recompute": "full"},
           options={"nodes": 8, "devices_per_node": 8}),
    Script(f"{DS}/examples_deepspeed/sequence_parallel/ds_pretrain_gpt_30B_seq_parallel_32k.sh", DEEPSPEED % (8, 1, 3,
           f"{GPT} --bf16 --ds-sequence-parallel-size 4 --micro-batch-size 1", ""), refused="Ulysses",
           options={"nodes": 1, "devices_per_node": 8}),
    Script(f"{BS}/tr1-13B-base/tr1-13B-round1.slurm", _bigscience(128, 4, 1, "--tensor-model-parallel-size 2 "
           "--pipeline-model-parallel-size 4 --num-layers 40 --hidden-size 5120 --num-attention-heads 32 --fp16 "
           "--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 1024 "
           "--rampup-batch-size 16 16 6_000_000 --checkpoint-activations"), 512,
           {"tp": 2, "pp": 4, "dp": 64, "zero": 1, "recompute": "full"}, {"global_batch": 1024}),
    Script(f"{BS}/tr3-1B3-baseline/tr3-1B3-modeling-baseline.slurm", _bigscience(16, 4, 1, "--num-layers 24 "
           "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --hidden-size 2048 --fp16 "
           "--num-attention-heads 16 --micro-batch-size 16 --global-batch-size 1024 --checkpoint-activations"), 64,
           {"tp": 4, "pp": 4, "dp": 4, "zero": 1}),
    Script(f"{BS}/tr8-104B-wide/tr8-104B.slurm", _bigscience(128, 4, 1, "--tensor-model-parallel-size 4 --fp16 "
           "--pipeline-model-parallel-size 32 --num-layers 64 --hidden-size 11600 --num-attention-heads 80 "
           "--micro-batch-size 1 --global-batch-size 2048 --checkpoint-activations"), 512,
           {"tp": 4, "pp": 32, "dp": 4, "recompute": "full"}),
    Script(f"{BS}/tr11-176B-ml/tr11-176B-ml.slurm", _bigscience(24, 8, 0, "--tensor-model-parallel-size 4 --bf16 "
           "--pipeline-model-parallel-size 12 --pp-partition-method 'type:transformer|embedding' --num-layers 70 "
           "--hidden-size 14336 --num-attention-heads 112 --position-embedding-type alibi --micro-batch-size 2 "
           "--global-batch-size 2048 --embed-layernorm --checkpoint-activations", "run"), 192,
           {"tp": 4, "pp": 12, "dp": 4, "zero": 1, "recompute": "full", "stages": [5, *[6] * 10, 5]}),
    Script(f"{BS}/tr7-alibi/tr7b-350M-modeling-alibi.slurm", _bigscience(4, 4, 1, f"{GPT} "
           "--position-embedding-type alibi "
           "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 8 --fp16 "
           "--global-batch-size 512 --checkpoint-activations"), 16, {"tp": 4, "pp": 2, "dp": 2, "zero": 1}),
    Script(f"{BS}/tr9-glu/tr9-1B3-modeling-swiglu.slurm", _bigscience(16, 4, 1, f"{GPT} --glu-activation swiglu --fp16 "
           "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --micro-batch-size 8 "
           "--global-batch-size 512 --rampup-batch-size 32 32 2_000_000 --checkpoint-activations"), 64,
           {"tp": 4, "pp": 4, "dp": 4, "zero": 1, "recompute": "full"}),
    Script(f"{BS}/tr6-1B3-prefix-lm/tr6-1B3-modeling-prefix-lm.slurm", _bigscience(16, 4, 1, f"{GPT} --fp16 "
           "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --micro-batch-size 8 "
           "--global-batch-size 512 --loss-on-targets-only").replace("pretrain_gpt.py", "pretrain_prefix_lm.py"), 64,
           {"tp": 4, "pp": 4, "dp": 4}),
    Script(f"{BS}/tr6-1B3-prefix-lm/tr6d-350M-pile.slurm", _bigscience(4, 4, 1, f"{GPT} --micro-batch-size 2 --fp16 "
           "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --global-batch-size 512 "
           "--checkpoint-activations"), 16, {"tp": 1, "pp": 1, "dp": 16, "recompute": "full"}),
    Script(f"{BS}/tr6-1B3-prefix-lm/tr6e-1B3-pile.slurm", _bigscience(16, 4, 1, f"{GPT} --micro-batch-size 1 --fp16 "
           "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --global-batch-size 512 "
           "--checkpoint-activations"), 64, {"tp": 1, "pp": 2, "dp": 32, "recompute": "full"}),
    Script(f"{BS}/tr9-glu/tr9c-1B3-swiglu-pile.slurm", _bigscience(16, 4, 1, f"{GPT} --glu-activation swiglu --fp16 "
           "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --micro-batch-size 8 "
           "--global-batch-size 512 --checkpoint-activations"), 64, {"tp": 4, "pp": 4, "dp": 4, "recompute": "full"}),
    Script(f"{DS}/examples/pretrain_t5.sh", f"torchrun pretrain_t5.py {GPT}", refused="trains T5"),
    Script(f"{DS}/examples/pretrain_bert_distributed_with_mp.sh", TORCH % 1 + CALL % ("pretrain_bert.py", GPT),
           refused="trains BERT"),
    Script("NVIDIA/Megatron-LM v1.0/examples/pretrain_gpt2_distributed.sh", "python -m "
           f"torch.distributed.launch --nproc_per_node 8 --nnodes 1 pretrain_gpt2.py --model-parallel-size 1 {GPT} "
           "--batch-size 8 --checkpoint-activations --distributed-backend nccl --fp16", 8,
           {"tp": 1, "dp": 8, "micro_batch": 8, "recompute": "full"}, {"global_batch": 64, "attention": "unfused"}),
    Script("NVIDIA/Megatron-LM v2.6/examples/pretrain_gpt_distributed.sh", "python -m torch.distributed.launch "
           f"--nproc_per_node 8 --nnodes 1 pretrain_gpt.py {GPT} --micro-batch-size 8 --global-batch-size 64 --fp16 "
           "--activations-checkpoint-method uniform", 8, {"dp": 8, "micro_batch": 8, "recompute": "full"},
           {"global_batch": 64}),
    Script("epfLLM/Megatron-LLM/examples/finetune.sh", "TP=8\nN_NODES=1\nMODEL=$1\nshift\nwhile [[ $# -gt 0 ]]; do\n"
           "case $1 in\n--tp) TP=\"$2\"; shift; shift;;\n--nodes) N_NODES=$2; shift; shift;;\nesac\ndone\n"
           "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node 8 --nnodes $N_NODES finetune.py --bf16 "
           "--tensor_model_parallel_size $TP --pipeline_model_parallel_size 1 --global_batch_size 12 "
           "--micro_batch_size 1 --use_flash_attn --sequence_parallel --recompute_granularity selective", 24,
           {"tp": 4, "sp": True, "dp": 6, "recompute": "selective"}, {"global_batch": 12},
           options={"arguments": ("llama2", "--tp", "4", "--nodes", "3")}),
    Script("Slurm, one task a device", "#!/bin/bash\n#SBATCH -N 16 -J gpt\n#SBATCH --ntasks-per-node=4\n"
           f"export WORLD_SIZE=$SLURM_NTASKS\nsrun python pretrain_gpt.py {GPT} --micro-batch-size 2 --fp16 "
           "--global-batch-size 256 --tensor-model-parallel-size 4", 64, {"tp": 4, "dp": 16}),
    Script("MPI, as on machines of the national laboratories", "mpirun -np 16 -npernode 4 python -u pretrain_gpt.py "
           f"{GPT} --micro-batch-size 1 --global-batch-size 64 --bf16", 16, {"dp": 16}),
]  # fmt: skip
