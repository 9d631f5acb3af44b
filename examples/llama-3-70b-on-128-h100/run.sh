#!/bin/bash
# A launch that nest may be asked about: it is read, never run.
# nest evaluate --from megatron run.sh problem.yaml --against-best
MODEL="--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --seq-length 8192
  --group-query-attention --num-query-groups 8 --max-position-embeddings 8192 --position-embedding-type rope
  --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights"
ARGS=(
  --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 8
  --micro-batch-size 1 --global-batch-size 1024 --bf16
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap
  --recompute-granularity selective
)
torchrun --nnodes 16 --nproc-per-node 8 pretrain_gpt.py $MODEL "${ARGS[@]}" --vocab-size 128256
