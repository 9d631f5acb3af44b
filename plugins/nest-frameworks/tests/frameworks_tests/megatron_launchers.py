"""More public launch scripts, chosen for how they launch: schedulers, launchers and the idioms of shells around them.

As in `megatron_scripts`, each names the repository and the file that it is retyped after in its essentials.
"""

from frameworks_tests.megatron_script import Script

GPT = "--hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024"
ROPE = "--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights"
LUMI = """#!/bin/bash
#SBATCH --nodes=%d
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=mi250:8
wd=$(realpath workdir)
# if run without sbatch, invoke here
if [ -z $SLURM_JOB_ID ]; then
    mkdir -p logs
    sbatch "$0"
    exit
fi
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
set -euo pipefail
TOTAL_TOKENS=3_000_000_000_000
TOTAL_TOKENS=${TOTAL_TOKENS//_}    # drop "_" for bash math
TRAIN_SAMPLES=$((TOTAL_TOKENS/5120))
%s
GPT_ARGS=" --micro-batch-size 1 --global-batch-size $GBS --train-samples $TRAIN_SAMPLES --use-distributed-optimizer \\
    --bf16 --use-flash-attn --use-rotary-position-embeddings %s "
PARALLEL_ARGS="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel "
if (( VPP_SIZE > 1)); then
    PARALLEL_ARGS="$PARALLEL_ARGS \\
    --num-layers-per-virtual-pipeline-stage $VPP_SIZE"
fi
CMD=" pretrain_gpt.py $GPT_ARGS $PARALLEL_ARGS --train-data-path $TRAIN_DATA --recompute-activations "
c="fe"
BIND_MASK="0x${c}000000000000,0x${c}00000000000000"
if [ ! -d "$wd"/cray-deps ] ; then
  cp /usr/lib64/libcxi* $wd/cray-deps
fi
srun \\
    --label \\
    --cpu-bind=mask_cpu:$BIND_MASK \\
    singularity exec -B $PWD -B "$wd":/workdir "$CONTAINER" \\
    ./launch.sh \\
    $CMD
"""
IN_CONTAINER = """#!/bin/bash
if [ $SLURM_LOCALID -eq 0 ]; then
    rm -rf /dev/shm/*
else
    sleep 2
fi
export RANK=$SLURM_PROCID
python "$@"
"""
LUMI_70B = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --seq-length 5120 " \
    f"--max-position-embeddings 5120 {ROPE} --group-query-attention --num-query-groups 8"  # fmt: skip
SWISS = """#!/bin/bash
#SBATCH --nodes=%d
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --signal=SIGUSR2@600	# Send SIGUSR2 600 seconds before hitting the time limit
GBS=%d # Global batch size
SEQ_LEN=8192 # Sequence length
MOCK_DATA=false # Set to `true` to use mock data
export WORLD_SIZE=$SLURM_NPROCS
TRAINING_ARGS=(
	--micro-batch-size 1
	--global-batch-size $GBS
	--bf16
)
DISTRIBUTED_ARGS=(
%s	--use-distributed-optimizer
	--overlap-grad-reduce
	--overlap-param-gather
)
DATA_ARGS=(
	--split 100,0,0
	--seq-length $SEQ_LEN
)
if [ "$MOCK_DATA" = true ]; then
  DATA_ARGS="${DATA_ARGS[@]} --mock-data"
else
  DATA_ARGS="${DATA_ARGS[@]} --data-path $(python3 $MEGATRON_LM_DIR/scripts/tools/create_data_config.py -p $DATASETS)"
fi
CMD_PREFIX="numactl --membind=0-3"
TRAINING_CMD="python3 $MEGATRON_LM_DIR/pretrain_gpt.py \\
    ${TRAINING_ARGS[@]} ${DISTRIBUTED_ARGS[@]} \\
    %s \\
    $DATA_ARGS"
srun -lu bash -c 'echo $(hostname) $(nvidia-smi | grep -o "|\\\\s*[0-9]*MiB")' > $GPU_MEM_LOGGING
srun --cpus-per-task 72 -lu bash -c "RANK=\\$SLURM_PROCID LOCAL_RANK=\\$SLURM_LOCALID $CMD_PREFIX $TRAINING_CMD"
if [ -f $TRIGGER_DIR/exit ]; then
   scancel --jobname $SLURM_JOB_NAME
fi
"""
LLAMA3 = f"--transformer-impl transformer_engine --max-position-embeddings 8192 {ROPE} " \
    "--position-embedding-type rope --group-query-attention --num-query-groups 8"  # fmt: skip
SUMMIT = """#!/bin/bash
#BSUB -nnodes %d
#BSUB -W 1:00
#BSUB -alloc_flags "smt4 nvme"
nodes=($(cat ${LSB_DJOB_HOSTFILE} | sort | uniq | grep -v login | grep -v batch))
nnodes=${#nodes[@]}
get_master=`cat $LSB_DJOB_HOSTFILE | sort | uniq | grep -v batch | grep -v login | head -1`
ips=`ssh $get_master hostname -I`
read -ra arr <<< ${ips}
export MASTER_ADDR=${arr[0]}
time jsrun --nrs 48 --tasks_per_rs 1 --cpu_per_rs 7 --gpu_per_rs 1 --rs_per_host 6 --latency_priority CPU-CPU \\
  --launch_distribution packed --bind packed:1 python pretrain_gpt.py %s
"""
FRONTIER = """#!/bin/bash
#SBATCH -A STF218
#SBATCH -N %d
source /lustre/orion/miniconda3-frontier/bin/activate
HOSTS=.hosts-job$SLURM_JOB_ID
HOSTFILE=hostfile.txt
srun hostname > $HOSTS
sed 's/$/ slots=8/' $HOSTS > $HOSTFILE
scontrol show hostnames $SLURM_NODELIST > job.node.list
input="./job.node.list"
readarray -t arr <"$input"
first=${arr[0]}
ips=`ssh $first hostname -I`
read -ra arr <<< ${ips}
export MASTER_ADDR=${arr[0]}
ranks_per_node=8
ranks_total=$(($ranks_per_node*$SLURM_JOB_NUM_NODES))
export GPT_ARGS="%s"
time srun -u -n$ranks_total -c2 --ntasks-per-node=8 --gpus-per-node=8 --gpu-bind=closest bash -c "
source export_DDP_vars.sh
python %s \\
       $GPT_ARGS \\
       --master-addr=$MASTER_ADDR \\
       --data-path $DATA_PATH %s
"
"""
SAKURA = """#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
export MASTER_PORT=$((10000 + ($SLURM_JOBID % 50000)))
NUM_NODES=$SLURM_JOB_NUM_NODES
NUM_GPUS_PER_NODE=$(echo $SLURM_TASKS_PER_NODE | cut -d '(' -f 1)
NUM_GPUS=$((${NUM_NODES} * ${NUM_GPUS_PER_NODE}))
mpirun \\
  -np $NUM_GPUS \\
  --npernode $NUM_GPUS_PER_NODE \\
  -bind-to none \\
  -map-by slot \\
  -x MASTER_ADDR=$MASTER_ADDR \\
  bash train.sh
"""
SAKURA_TRAIN = f"""#!/bin/bash
source environment/scripts/mpi_variables.sh
ulimit -n 65536 1048576
TRAIN_DATA_PATH=""
TRAIN_DATA_PATH="${{TRAIN_DATA_PATH}} 14486363187 /data/stack_0000.jsonl_text_document"
python src/Megatron-LM/pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --bf16 \\
  --context-parallel-size 1 --sequence-parallel --use-distributed-optimizer --num-layers 40 --hidden-size 5120 \\
  --ffn-hidden-size 13824 --num-attention-heads 40 --seq-length 4096 --max-position-embeddings 4096 {ROPE} \\
  --micro-batch-size 2 --global-batch-size 1024 --data-path ${{TRAIN_DATA_PATH}} --position-embedding-type rope \\
  --recompute-activations --recompute-granularity "selective" --use-flash-attn --transformer-impl "transformer_engine"
"""
PBS_TASK = """#!/bin/bash
#PBS -q R9920251000
#PBS -l select=4
cd $PBS_O_WORKDIR
JOBID=${PBS_JOBID%%.*}
exec > ${TASK_DIR}/logs/train-${JOBID}.out 2> ${TASK_DIR}/logs/train-${JOBID}.err
SCRIPT_DIR=/groups/experiments/scripts/pretrain
source ${SCRIPT_DIR}/common/setup.sh
NUM_NODES=$(wc -l < $PBS_NODEFILE)
NUM_GPUS_PER_NODE=8
NUM_GPUS=$((${NUM_NODES} * ${NUM_GPUS_PER_NODE}))
source ${SCRIPT_DIR}/params/${PARAM_NAME}.sh
mpirun --oversubscribe -np $NUM_GPUS --npernode $NUM_GPUS_PER_NODE -bind-to none -map-by slot \\
  python src/Megatron-LM/pretrain_gpt.py \\
    ${ALL_PARAMS[@]}
"""
PBS_MOE = f"""#!/bin/bash
#PBS -v RTYPE=rt_HF
#PBS -l select=32:ncpus=8:mpiprocs=8:ngpus=8
#PBS -l walltime=168:00:00
JOB_ID=$(echo $PBS_JOBID | cut -d. -f1)
export MASTER_ADDR=$(head -n 1 $PBS_NODEFILE | hostname -f)
NUM_NODES=$(sort -u $PBS_NODEFILE | wc -l)
NUM_GPUS_PER_NODE=8
NUM_GPUS=$((${{NUM_NODES}} * ${{NUM_GPUS_PER_NODE}}))
MODEL_ARGS=(
    --num-layers 48 --hidden-size 2048 --ffn-hidden-size 768 --moe-ffn-hidden-size 768 --num-attention-heads 32
    --group-query-attention --num-query-groups 4 --kv-channels 128 --qk-layernorm {ROPE} --position-embedding-type rope
    --seq-length 4096 --max-position-embeddings 4096
)
MOE_ARGS=(
    --moe-router-topk 8
    --num-experts 128
    --moe-token-dispatcher-type alltoall
    --overlap-grad-reduce
    --overlap-param-gather
)
TRAINING_ARGS=(--micro-batch-size 2 --global-batch-size 1024 --bf16 --attention-backend flash)
MODEL_PARALLEL_ARGS=(
    --context-parallel-size 1
    --expert-model-parallel-size 8
    --sequence-parallel
    --use-distributed-optimizer
)
mpirun \\
    -np $NUM_GPUS \\
    --hostfile $PBS_NODEFILE \\
    --npernode $NUM_GPUS_PER_NODE \\
    -x PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True" \\
    -x PATH \\
    python src/Megatron-LM/pretrain_gpt.py \\
    "${{MODEL_ARGS[@]}}" "${{MOE_ARGS[@]}}" "${{TRAINING_ARGS[@]}}" \\
    "${{MODEL_PARALLEL_ARGS[@]}}"
"""
POLARIS = """#!/bin/bash
#PBS -q debug-scaling
#PBS -l select=2
#PBS -l filesystems=eagle:grand:home
export PPN=4
export PBS_JOBSIZE=$(cat $PBS_NODEFILE | uniq | wc -l)
export TP=1
export PP=1
export MBS=1
export BS=$((MBS*PBS_JOBSIZE*PPN/PP/TP))
APRUN_PMI=pmix aprun -n $((PBS_JOBSIZE*PPN)) -N $PPN --cc depth -d 16 ./local_rank.sh python3 $LAUNCHER \\
    ./pretrain_gpt_alcf.py --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --num-layers 32 \\
    --hidden-size 4096 --ffn-hidden-size 5504 --num-attention-heads 32 --micro-batch-size ${MBS} \\
    --global-batch-size ${BS} --seq-length 2048 --max-position-embeddings 2048 --cpu-optimizer --fp16 \\
    --use-rotary-position-embeddings --untie-embeddings-and-output-weights --swiglu --normalization layernorm \\
    --disable-bias-linear --num-key-value-heads 4 --zero-stage=2 --deepspeed_config=${MD}/ds_config-gpt.json --deepspeed
"""
PERLMUTTER = """#!/bin/bash --login
#SBATCH --nodes 128
#SBATCH --gpus 512
function sourceFile() {
    fp="$1"
    if [[ -f "${fp}" ]]; then
        source "${fp}"
    else
        echo "ERROR: UNABLE TO SOURCE ${fp}"
    fi
}
sourceFile "${HERE}/ALCF/helpers.sh" || exit
setParams || exit                   # 5. set command line arguments to pass to `"${EXEC}"`
custom_args=" $@"
export NGPU_PER_HOST="${SLURM_GPUS_ON_NODE:-$(nvidia-smi -L | wc -l)}"
run_cmd="srun --gpus ${NGPUS} -N ${NHOSTS} python3 ${EXEC} --micro-batch-size ${MICRO_BATCH} $ds_args $custom_args"
run_cmd=$(echo "${run_cmd}" | sed -e 's/  */ /g')
eval "${run_cmd}"
"""
GAUDI = """#!/bin/bash
TP=${HL_TP:-2}
PP=${HL_PP:-2}
DP=${HL_DP:-2}
NUM_NODES=${HL_NUM_NODES:-1}
DEVICES_PER_NODE=${HL_DEVICES_PER_NODE:-8}
LLAMA_VER=${HL_LLAMA_VER:-3.1} # 1 for LLaMA, 2 for LLaMA 2 & 3.1 for LLaMA 3.1
LLAMA_MODEL_SIZE=${HL_LLAMA_MODEL_SIZE:-8}
if [ $((NUM_NODES*DEVICES_PER_NODE)) -ne $((DP*TP*PP)) ]; then
    exit 1
fi
if [ "$LLAMA_VER" = "1" ]; then
    SEQ_LEN=${HL_SEQ_LEN:-2048}
    if [ $LLAMA_MODEL_SIZE -eq 65 ]; then
        N_LAYERS=${HL_NUM_LAYERS:-80} # must be divisible by PP
    else
        exit 1
    fi
elif [ "$LLAMA_VER" = "3.1" ]; then
    GLOBAL_BATCH=${HL_GBS:-2048} # (computed as `GLOBAL_BATCH / (DP * MICRO_BATCH)`) should be divisible by the PP
    SEQ_LEN=${HL_SEQ_LEN:-8192}
    if [ $LLAMA_MODEL_SIZE -eq 8 ]; then
        N_LAYERS=${HL_NUM_LAYERS:-32} # must be divisible by PP
        NHIDDEN=4096
        NHEADS=32 # must be divisible by TP
        NUM_KV_HEADS=8 # must be divisible by TP
    elif [ $LLAMA_MODEL_SIZE -eq 70 ]; then
        N_LAYERS=${HL_NUM_LAYERS:-80} # must be divisible by PP
    fi
else
    exit 1
fi
RUNTIME=`date +"%Y%m%d_%H%M"`
OUTPUT_DIR=./out/llama${LLAMA_VER}_${LLAMA_MODEL_SIZE}b/${RUNTIME}
DS_CONFIG=${OUTPUT_DIR}/ds_config.json
cat << EOT > $DS_CONFIG
{
  "zero_optimization": {
    "stage": ${HL_ZERO_STAGE:-0}
  },
  "bf16": {"enabled": true}
}
EOT
MULTINODE_CMD=""
if [ "$NUM_NODES" -ne "1" -a -f "$HOSTSFILE" ]; then
    MULTINODE_CMD="--hostfile=$HOSTSFILE"
fi
CMD=""
CMD="${CMD} \\
    python3 -u ${MEGATRON_DEEPSPEED_ROOT}/pretrain_gpt.py \\
    --deepspeed --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --num-layers ${N_LAYERS} \\
    --hidden-size ${NHIDDEN} --num-attention-heads ${NHEADS} --num-key-value-heads $NUM_KV_HEADS --bf16 \\
    --seq-length ${SEQ_LEN} --max-position-embeddings $SEQ_LEN --micro-batch-size 1 \\
    --global-batch-size ${GLOBAL_BATCH} --optimizer fusedadamw --deepspeed_config=${DS_CONFIG} --zero-stage=0 \\
    --use-fused-sdpa ${HL_USE_FUSED_SDPA:-1} \\
    --untie-embeddings-and-output-weights --swiglu --normalization rmsnorm --disable-bias-linear"
if [ ${HL_SEQ_PARALLEL:-1} -eq 1 ]
then
    CMD="${CMD} --sequence-parallel"
fi
deepspeed --num_nodes ${NUM_NODES} \\
          --num_gpus ${DEVICES_PER_NODE} \\
          --no_local_rank \\
          --no_python \\
          $MULTINODE_CMD \\
          /usr/bin/bash -c "$CMD" #2>&1 | tee ${OUTPUT_DIR}/log_${RUNTIME}.txt
"""
PAI = """#!/bin/bash
ENV=$1
CURRENT_DIR="$( cd "$( dirname "$0" )" && pwd )"
if [ $ENV = dsw ]; then
    NNODES=1
    GPUS_PER_NODE=`python -c "import torch; print(torch.cuda.device_count())"`
elif [ $ENV = dlc ]; then
    NNODES=${WORLD_SIZE}
    GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU:-8}
fi
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
BATCH_SIZE=$2
GLOBAL_BATCH_SIZE=$3
TP=$4
PP=$5
EP=$6
AC=$7
FL=$8
SAVE=$9
DATASET_PATH=${10}
if [ $FL = true ]; then
    exit -1
elif [ $FL = false ]; then
    attn_backend_option=" \\
        --attention-backend auto
    "
fi
if [ -z ${MP_VP} ]; then
    vp_option=""
else
    vp_option=" \\
        --num-layers-per-virtual-pipeline-stage ${MP_VP}"
fi
TP_COMM_OVERLAP=$(( ($TP > 1) ? 1 : 0 ))
if [ $TP_COMM_OVERLAP -eq 1 ]; then
    comm_overlap_option="--overlap-grad-reduce --overlap-param-gather"
fi
if [ $AC = full ]; then
    activation_checkpoint_options=" --recompute-method uniform --recompute-num-layers 1 --recompute-granularity full"
elif [ $AC = sel ]; then
    activation_checkpoint_options=" \\
        --recompute-activations"
fi
if [ -z ${MP_PP0_LAYERS} ];then
    uneven_split_option=""
elif [ ${PP} -gt 1 ]; then
    _check=$(( ( 61 - ${MP_PP0_LAYERS} ) % ( ${PP} - 1 ) ))
    if [ $_check != 0 ]; then
        exit -1
    fi
    uneven_split_option=" \\
        --decoder-first-pipeline-num-layers ${MP_PP0_LAYERS}
    "
fi
moe_options=" --moe-router-topk 8 --num-experts 256 --expert-model-parallel-size ${EP} \\
    --expert-tensor-parallel-size 1 --moe-ffn-hidden-size 2048 --moe-layer-freq '([0]*3+[1]*58)' \\
    --moe-shared-expert-intermediate-size $((2048 * 1 )) --q-lora-rank 1536 --kv-lora-rank 512 \\
    --qk-nope-head-dim 128 --qk-rope-head-dim 64 --v-head-dim 128 --moe-router-score-function sigmoid "
megatron_options=" --micro-batch-size ${BATCH_SIZE} --global-batch-size ${GLOBAL_BATCH_SIZE} --num-layers 61 \\
    --hidden-size 7168 --num-attention-heads 128 --ffn-hidden-size 18432 --seq-length 4096 --kv-channels 128 \\
    --max-position-embeddings 4096 --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --bf16 \\
    --use-rotary-position-embeddings --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights \\
    --disable-bias-linear --qk-layernorm --multi-latent-attention --sequence-parallel --use-distributed-optimizer "
run_cmd="torchrun $DISTRIBUTED_ARGS pretrain_deepseek.py
 ${megatron_options} ${activation_checkpoint_options} ${moe_options} ${vp_option} ${uneven_split_option} \\
 ${attn_backend_option} ${comm_overlap_option}"
echo ${run_cmd}
eval ${run_cmd}
"""
PRIMUS = """#!/bin/bash
export NNODES=${NNODES:-1}
SCRIPT_DIR=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
srun -N "${NNODES}" \\
     --ntasks-per-node=1 \\
     ${SLURM_TIME:+--time="${SLURM_TIME}"} \\
     bash -c "
          readarray -t node_array < <(scontrol show hostnames \\"\\$SLURM_JOB_NODELIST\\")
          if [ \\"\\$SLURM_NODEID\\" = \\"0\\" ]; then
              echo \\"========== Slurm cluster info ==========\\"
          fi
          export MASTER_ADDR=\\${node_array[0]}
          bash ${SCRIPT_DIR}/run_local_pretrain.sh \\"\\$@\\"
     " bash "$@" 2>&1 | tee "${LOG_FILE}"
"""
PRIMUS_LOCAL = """docker run --rm --env MASTER_ADDR --ipc=host \\
    rocm/primus:v25 /bin/bash -c "python3 examples/run_pretrain.py --env $ENV"
"""
UNIVERSAL = f"""TP=2
PP=2
DP=4
WORLD_SIZE=$((TP*PP*DP))
while [[ $# -gt 0 ]]
do
key="$1"
case $key in
    --no-deepspeed)
    USE_DEEPSPEED=0;
    shift
    ;;
    -z|--zero-stage)
    ZERO_STAGE=$2;
    shift
    ;;
    *)
    usage
    exit 1
    shift
    ;;
esac
done
options=" --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --num-layers 24 {GPT} \\
    --micro-batch-size 1 --global-batch-size 4 --bf16 --checkpoint-activations --position-embedding-type alibi"
run_cmd="deepspeed --master_port 29700 $WORKER_STR ${{DIR}}/pretrain_gpt.py $@ ${{options}}"
eval ${{run_cmd}}
"""
SC21 = """MODEL_SIZE=1.7B
if [ ${MODEL_SIZE} == "1.7B" ]; then
    TP=1
    PP=1
    MBS=16
    GBS=512
    DDP=torch
    NNODES=4
    MEGATRON_EXTRA_PARAMS="--activations-checkpoint-method uniform "
elif [ ${MODEL_SIZE} == "3.6B" ]; then
    TP=2
    NNODES=8
else
    exit 1
fi
export JOB_NAME=results_table_1_model_size_${MODEL_SIZE}
. `pwd`/CONFIG.sh
. `pwd`/SBATCH.sh
exit 0
"""
SC21_CONFIG = """export SLURM_PARTITION=<slurm partition, used to feed -p option in slurm>
export MEGATRON_PARAMS=" ${MEGATRON_EXTRA_PARAMS} --tensor-model-parallel-size ${TP} \\
    --pipeline-model-parallel-size ${PP} --micro-batch-size ${MBS} --global-batch-size ${GBS} --num-layers 24 \\
    --hidden-size 2304 --num-attention-heads 24 --DDP-impl ${DDP} --seq-length 2048 --fp16 \\
    --max-position-embeddings 2048 "
"""
SC21_SBATCH = """sbatch -p ${SLURM_PARTITION} \\
       --job-name=${JOB_NAME} \\
       --nodes=${NNODES} \\
       --export=MEGATRON_CODE_DIR,MEGATRON_PARAMS SRUN.sh
exit 0
"""
SC21_SRUN = """#!/bin/bash
#SBATCH -t 0:30:00 --exclusive --mem=0 --overcommit --ntasks-per-node=8
CMD="python -u ${MEGATRON_CODE_DIR}/pretrain_gpt.py ${MEGATRON_PARAMS}"
srun -l --container-image "nvcr.io#nvidia/pytorch:20.12-py3" --output=logs/%x_%j_$DATETIME.log sh -c "${CMD}"
"""
MEGABLOCKS = f"""TRAINING_STEPS=20000
if [ -n "${{2}}" ]; then
    TRAINING_STEPS=$2;
fi
%s
DISTRIBUTED_ARGUMENTS="\\
--nproc_per_node 8 \\
--nnodes 1"
MODEL_ARGUMENTS="\\
--num-layers 12 {GPT}"
COMPUTE_ARGUMENTS="\\
--bf16 \\
--DDP-impl local \\
--no-async-tensor-model-parallel-allreduce \\
--use-flash-attn"
torchrun ${{DISTRIBUTED_ARGUMENTS}} \\
       third_party/Megatron-LM/pretrain_gpt.py \\
       ${{MODEL_ARGUMENTS}} --micro-batch-size 32 --global-batch-size 512 --train-iters ${{TRAINING_STEPS}} \\
       ${{MOE_ARGUMENTS}} ${{COMPUTE_ARGUMENTS}} |& tee ./${{EXP_DIR}}/train.log
"""
DEEPSPEED = "--deepspeed --deepspeed_config ds_config.json"
GPT_1T = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 64 --num-layers 128 --hidden-size 25600 " \
    "--num-attention-heads 128 --seq-length 2048 --max-position-embeddings 2048 --fp16 "\
    "--micro-batch-size 1"  # fmt: skip
DSV3 = ("dlc", "1", "256", "8", "8", "8", "sel", "false", "1000", "d")
LO, AB, LJ = (
    "LumiOpen/Megatron-LM-lumi",
    "kojimano/Megatron-DeepSpeed-ABCI/abci/shells",
    "llm-jp/scripts/pretrain/scripts",
)

LAUNCHED = [
    Script(f"{LO}/launch_scripts/pretrain_viking_7B.sh",
           LUMI.replace("--recompute-activations", "") % (64, "GBS=1024\nTP=2\nPP=1", "--num-layers 32 "
           "--hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --seq-length 4096 "
           f"--max-position-embeddings 4096 {ROPE}"), 512,
           {"tp": 2, "sp": True, "pp": 1, "dp": 256, "micro_batch": 1, "zero": 1, "recompute": "none"},
           {"global_batch": 1024, "sequence_length": 4096, "precision": "bf16", "attention": "flash"},
           beside={"launch.sh": IN_CONTAINER}),
    Script(f"{LO}/launch_scripts/pretrain_71B.sh", LUMI % (16, "GBS=$((SLURM_JOB_NUM_NODES * 2))\nTP=8\nPP=8\n"
           "VPP_SIZE=2", LUMI_70B), 128, {"tp": 8, "pp": 8, "dp": 2, "schedule": "interleaved", "chunks": 5,
           "recompute": "selective"}, {"global_batch": 32, "sequence_length": 5120}),
    Script(f"{LO}/launch_71B_1024N.sh", LUMI % (1024, "GBS=1024\nTP=8\nPP=8\nVPP_SIZE=2", LUMI_70B), 8192,
           {"tp": 8, "pp": 8, "dp": 128, "chunks": 5, "zero": 1}, {"global_batch": 1024},
           beside={"launch.sh": IN_CONTAINER}),
    Script("databricks/megablocks/exp/dmoe/dmoe_125m_8gpu.sh", MEGABLOCKS % "MOE_ARGUMENTS=\"--moe-num-experts=64 "
           "--moe-top-k=1 --moe-expert-model-parallelism\"", refused="--moe-num-experts is no flag of Megatron-LM"),
    Script("databricks/megablocks/exp/gpt2/gpt2_760m_8gpu.sh", MEGABLOCKS % "MOE_ARGUMENTS=", 8, {"dp": 8, "zero": 0,
           "micro_batch": 32}, {"global_batch": 512, "precision": "bf16", "attention": "flash"}),
    Script("swiss-ai/Megatron-LM/submit-llama3-70b.sh", SWISS % (32, 1024, "	--tensor-model-parallel-size "
           "$SLURM_GPUS_PER_NODE\n	--sequence-parallel\n	--pipeline-model-parallel-size 8\n"
           "	--num-layers-per-virtual-pipeline-stage 5\n", f"{LLAMA3} --num-layers 80 --hidden-size 8192 "
           "--ffn-hidden-size 28672 --num-attention-heads 64"), 128,
           {"tp": 4, "sp": True, "pp": 8, "chunks": 2, "dp": 4, "zero": 1, "micro_batch": 1},
           {"global_batch": 1024, "sequence_length": 8192, "precision": "bf16"}),
    Script("swiss-ai/Megatron-LM/submit-llama3-8b.sh", SWISS % (16, 128, "	--tensor-model-parallel-size 1\n",
           f"{LLAMA3} --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32"), 64,
           {"tp": 1, "pp": 1, "dp": 64, "zero": 1}, {"global_batch": 128}),
    Script("sajal-vt/Megatron-DeepSpeed-Summit/launch_gpt3.sh", SUMMIT % (8, "--tensor-model-parallel-size 6 "
           "--pipeline-model-parallel-size 8 --num-layers 24 --hidden-size 2064 --num-attention-heads 24 --fp16 "
           "--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 1536 "
           f"--recompute-granularity full --recompute-method uniform {DEEPSPEED}"), 48,
           {"tp": 6, "pp": 8, "dp": 1, "micro_batch": 1, "zero": 1, "recompute": "full"},
           {"global_batch": 1536, "sequence_length": 2048, "precision": "fp16", "attention": "unfused"},
           beside={"ds_config.json": "{\"zero_optimization\": {\"stage\": 1}}"}),
    Script("sajal-vt/Megatron-DeepSpeed-Summit/launch_moe_6.7b.sh", SUMMIT % (16, f"--num-layers 32 {GPT} --fp16 "
           f"--num-experts 8 --micro-batch-size 1 --zero-stage 1 {DEEPSPEED}"),
           refused="--num-experts of Megatron-Deep"),
    Script(f"{LJ}/v3-13b-exp4-sakura/sbatch.sh", SAKURA, refused="give --devices-per-node",
           beside={"train.sh": SAKURA_TRAIN}),
    Script(f"{LJ}/v3-13b-exp4-sakura/sbatch.sh", SAKURA, 128, {"tp": 2, "sp": True, "pp": 2, "dp": 32,
           "micro_batch": 2,
           "zero": 1, "recompute": "selective"}, {"global_batch": 1024, "sequence_length": 4096, "precision": "bf16"},
           options={"devices_per_node": 8}, beside={"train.sh": SAKURA_TRAIN}),
    Script(f"{LJ}/v4-high-quality-abci/pretrain/qsub_train.sh", PBS_TASK, refused="is called without "
           "flags that say how it trains, and what the script sources is not here"),
    Script(f"{LJ}/v4-moe-ablation/exp1.sh", PBS_MOE, 256, {"tp": 1, "ep": 8, "dp": 256, "micro_batch": 2, "zero": 1},
           {"global_batch": 1024, "sequence_length": 4096, "precision": "bf16"}),
    Script("argonne-lcf/Megatron-DeepSpeed/train_llama_alcf_polaris_hzheng.sh", POLARIS, 8, {"tp": 1, "dp": 8,
           "zero": 2,
           "micro_batch": 1}, {"global_batch": 8, "precision": "fp16", "offload": ["optimizer"]}),
    Script("argonne-lcf/Megatron-DeepSpeed/train_llama_nersc_perlmutter.sh", PERLMUTTER,
           refused="what the script sources is not here: $HERE/ALCF/helpers.sh"),
    Script("HabanaAI/Megatron-DeepSpeed/scripts/run_llama.sh", GAUDI, 8, {"tp": 2, "sp": True, "pp": 2, "dp": 2,
           "zero": 1,
           "micro_batch": 1, "recompute": "none"}, {"global_batch": 2048, "sequence_length": 8192, "precision": "bf16",
           "optimizer": "adam", "attention": "flash"}),
    Script("alibaba/Pai-Megatron-Patch/examples/deepseek_v3/run_mcore_deepseek.sh", PAI,
           refused="The script takes arguments; give them behind `--`."),
    Script("alibaba/Pai-Megatron-Patch/examples/deepseek_v3/run_mcore_deepseek.sh", PAI, 128, {"tp": 8, "sp": True,
           "pp": 8, "ep": 8, "etp": 1, "dp": 2, "zero": 1, "micro_batch": 1, "recompute": "selective",
           "stages": [5, *[8] * 7]}, {"global_batch": 256, "sequence_length": 4096, "precision": "bf16"},
           options={"arguments": DSV3, "variables": {"WORLD_SIZE": "16", "MP_PP0_LAYERS": "5"}}),
    Script("AMD-AGI/Primus/examples/run_slurm_pretrain.sh", PRIMUS, refused="the scripts that it runs are not here"),
    Script("AMD-AGI/Primus/examples/run_slurm_pretrain.sh", PRIMUS, refused="few flags here are Megatron-LM's",
           beside={"run_local_pretrain.sh": PRIMUS_LOCAL}),
    Script("TurkuNLP/Megatron-DeepSpeed/run_bf16.sh", UNIVERSAL, refused="or `-- WORKER_STR=VALUE`"),
    Script("NVIDIA/Megatron-LM/examples/academic_paper_scripts/sc21/run_table_1.sh", SC21, 32, {"tp": 1, "pp": 1,
           "dp": 32,
           "micro_batch": 16, "zero": 0, "recompute": "full"}, {"global_batch": 512, "precision": "fp16",
           "attention": "unfused"}, beside={"CONFIG.sh": SC21_CONFIG, "SBATCH.sh": SC21_SBATCH, "SRUN.sh": SC21_SRUN}),
    Script("sajal-vt/Megatron-DeepSpeed-ORNL/launch_gpt1T_srun.frontier", FRONTIER % (128, GPT_1T,
           "pretrain_gpt_owt.py",
           ""), 1024, {"tp": 8, "pp": 64, "dp": 2, "zero": 0}, {"global_batch": 2, "precision": "fp16"}),
    Script("samanta-amit/Megatron-DeepSpeed/train_sbatch_pp64.sh",
           "#SBATCH --nodes 128\n#SBATCH --gpus 512\nPPSIZE=64 \\\n"
           "  GAS=$(( 8 * PPSIZE )) \\\n  MPSIZE=8 \\\n  ./ALCF/train-gpt3.sh\n", refused="./ALCF/train-gpt3.sh"),
]  # fmt: skip
