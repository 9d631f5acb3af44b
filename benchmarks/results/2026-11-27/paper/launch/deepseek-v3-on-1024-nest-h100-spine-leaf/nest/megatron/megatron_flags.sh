#!/usr/bin/env bash
# Written by nest for Megatron-LM, checked against core_v0.16.1.
# Data, tokenizer, learning rate and checkpoints are yours to add.
# 992 ranks: 62 pipeline stages of 4 devices, 4 replicas; 512 micro-batches a step.
# Rank order tp-cp-ep-dp-pp. Ranks do not lie on the devices of the cluster in their order: launch them with the files that `nest export` writes for placement (ranks, slurm, torchrun, mpi).
# Neither plan nor flags have the layers that predict further tokens (num_nextn_predict_layers).
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
MODEL_ARGS=(
  --num-layers 61
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 128
  --multi-latent-attention
  --qk-layernorm
  --q-lora-rank 1536
  --kv-lora-rank 512
  --qk-head-dim 128
  --qk-pos-emb-head-dim 64
  --v-head-dim 128
  --kv-channels 128
  --normalization RMSNorm
  --position-embedding-type rope
  --max-position-embeddings 4096
  --seq-length 4096
  --vocab-size 129280
  --untie-embeddings-and-output-weights
  --swiglu
  --disable-bias-linear
  --num-experts 256
  --moe-router-topk 8
  --moe-ffn-hidden-size 2048
  --moe-shared-expert-intermediate-size 2048
  --moe-layer-freq '([0]*3+[1]*58)'
  --moe-grouped-gemm
  --norm-epsilon 1e-06
  --init-method-std 0.02
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --rotary-base 10000
  --rope-type yarn
  --rotary-scaling-factor 40
  --mscale 1.0
  --mscale-all-dim 1.0
  --moe-router-score-function sigmoid
  --moe-router-enable-expert-bias
  --moe-router-num-groups 8
  --moe-router-group-topk 4
  --moe-router-topk-scaling-factor 2.5
)
PARALLEL_ARGS=(
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 62
  --pipeline-model-parallel-layout 'Et|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|t|L'
  --context-parallel-size 1
  --sequence-parallel
  --expert-model-parallel-size 4
  --expert-tensor-parallel-size 1
)
BATCH_ARGS=(
  --micro-batch-size 1
  --global-batch-size 4096
)
COMMUNICATION_ARGS=(
  --moe-token-dispatcher-type alltoall
)
PRECISION_ARGS=(
  --bf16
  --attention-backend auto
)
OPTIMIZER_ARGS=(
  --optimizer adam
  --use-distributed-optimizer
)
MEGATRON_ARGS=(
  "${MODEL_ARGS[@]}"
  "${PARALLEL_ARGS[@]}"
  "${BATCH_ARGS[@]}"
  "${COMMUNICATION_ARGS[@]}"
  "${PRECISION_ARGS[@]}"
  "${OPTIMIZER_ARGS[@]}"
)
