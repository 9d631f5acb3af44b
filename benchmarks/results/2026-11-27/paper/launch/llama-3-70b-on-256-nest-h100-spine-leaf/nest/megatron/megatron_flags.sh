#!/usr/bin/env bash
# Written by nest for Megatron-LM, checked against core_v0.16.1.
# Data, tokenizer, learning rate and checkpoints are yours to add.
# 256 ranks: 8 pipeline stages of 2 devices, 16 replicas; 256 micro-batches a step.
# Rank order tp-cp-ep-dp-pp. Ranks lie on the devices of the cluster in their order.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
MODEL_ARGS=(
  --num-layers 80
  --hidden-size 8192
  --ffn-hidden-size 28672
  --num-attention-heads 64
  --kv-channels 128
  --group-query-attention
  --num-query-groups 8
  --normalization RMSNorm
  --position-embedding-type rope
  --max-position-embeddings 4096
  --seq-length 4096
  --vocab-size 128256
  --untie-embeddings-and-output-weights
  --swiglu
  --disable-bias-linear
  --norm-epsilon 1e-05
  --init-method-std 0.02
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --rotary-base 500000
)
PARALLEL_ARGS=(
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 8
  --context-parallel-size 1
  --sequence-parallel
)
BATCH_ARGS=(
  --micro-batch-size 1
  --global-batch-size 4096
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
  "${PRECISION_ARGS[@]}"
  "${OPTIMIZER_ARGS[@]}"
)
