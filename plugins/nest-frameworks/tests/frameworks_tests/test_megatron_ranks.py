"""How many ranks a script launches, by the options of every launcher."""

from typing import Any

import pytest

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest_frameworks.megatron.reading.launch import find_launch

RUN = "pretrain_gpt.py --micro-batch-size 1"
SBATCH = "#!/bin/bash\n#SBATCH -N 128 --job-name=x\n#SBATCH --ntasks-per-node=1 --gres=gpu:a100:4  # a comment\n"
PBS = "#PBS -l select=4:ncpus=8:mpiprocs=4:ngpus=8\nN=$(sort -u $PBS_NODEFILE | wc -l)\n"
HETEROGENEOUS = "#SBATCH --nodes=2 --ntasks-per-node=8\n#SBATCH hetjob\n#SBATCH --nodes=1 --ntasks=8\n"
HOSTS = "cat > hosts <<EOF\nworker-1 slots=4\nworker-2 slots=4\nEOF\n"


@pytest.mark.parametrize(
    ("script", "ranks", "told"),
    [
        (
            f"torchrun --nnodes=2 --nproc-per-node=8 {RUN}",
            16,
            "2 nodes x 8, from torchrun --nnodes and --nproc",
        ),
        (f"torchrun --nnodes 2:2 --nproc_per_node 8 {RUN}", 16, "2 nodes x 8"),
        (f"torchrun --nproc_per_node 4 {RUN}", 4, "1 node x 4, from torchrun (without --nnodes)"),
        (f"torchrun --standalone --nproc-per-node 8 {RUN}", 8, "1 node x 8"),
        (f"python -m torch.distributed.run --nproc_per_node 8 --nnodes 3 {RUN}", 24, "3 nodes x 8"),
        (f"python3 -m torch.distributed.launch --nproc_per_node=8 {RUN}", 8, "1 node x 8"),
        (f"{SBATCH}srun torchrun --nnodes $SLURM_NNODES --nproc-per-node 4 {RUN}", 512, "128 nodes x 4"),
        (f"{SBATCH}srun torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc-per-node $SLURM_GPUS_ON_NODE {RUN}", 512, "x 4"),
        (f"{SBATCH}srun torchrun --nnodes $SLURM_NNODES --nproc-per-node gpu {RUN}", 512, "SLURM_GPUS_ON_NODE"),
        (f"{SBATCH}srun --ntasks-per-node=4 python {RUN}", 512, "128 nodes x 4"),
        (f"{SBATCH}srun -N2 --ntasks-per-node=4 python {RUN}", 8, "2 nodes x 4, from srun -N and --ntasks-per-node"),
        (f"{SBATCH}srun -n 512 python {RUN}", 512, "512 ranks, from srun -n"),
        (f"{SBATCH}srun python {RUN}", 128, "from SLURM_NTASKS"),
        (f"#SBATCH -n 24\nsrun python {RUN}", 24, "from SLURM_NTASKS"),
        (f"#SBATCH -n 24\n\n# A comment\n#SBATCH -n 16\nmodule load x\n#SBATCH -n 8\nsrun python {RUN}", 16, "NTASKS"),
        (f"{HETEROGENEOUS}srun --het-group=0 python {RUN}", 16, "from SLURM_NTASKS"),
        (f"{HETEROGENEOUS.replace('hetjob', 'packjob')}srun python {RUN}", 16, "from SLURM_NTASKS"),
        (f"{HETEROGENEOUS}srun --het-group=0,1 -n 24 python {RUN}", 24, "from srun -n"),
        (f"#PBS -l select=2:mpiprocs=4+1:ngpus=4:mpiprocs=4\nmpirun python {RUN}", 12, "3 nodes x 4"),
        (f"{SBATCH}srun -N 4 --ntasks-per-node 4 bash -c 'python {RUN}'", 16, "4 nodes x 4"),
        (f"{SBATCH}L='torchrun --nnodes 6 --nproc-per-node 4'\nC='{RUN}'\nsrun bash -c '$L $C'", 24, "6 nodes x 4"),
        (f"deepspeed --num_nodes 4 --num_gpus 8 {RUN}", 32, "4 nodes x 8, from deepspeed --num-nodes and --num-gpus"),
        (f"deepspeed --num_gpus 8 {RUN}", 8, "1 node x 8, from deepspeed (without a hostfile)"),
        (f"{HOSTS}deepspeed --hostfile hosts {RUN}", 8, "2 nodes x 4, from hosts and its slots"),
        (f"deepspeed --include localhost:0,1,2 {RUN}", 3, "3 ranks, from deepspeed --include"),
        (f"mpirun -np 16 -H a:8,b:8 python {RUN}", 16, "16 ranks, from mpirun -np"),
        (f"mpirun -H a:8,b:8 python {RUN}", 16, "from the slots of mpirun -H"),
        (f"{SBATCH}mpirun -npernode 4 python {RUN}", 512, "128 nodes x 4, from SLURM_NNODES and mpirun -npernode"),
        (f"{SBATCH}mpirun --map-by ppr:4:node python {RUN}", 512, "128 nodes x 4"),
        (f"accelerate launch --num_machines 2 --num_processes 16 {RUN}", 16, "16 ranks, from accelerate launch"),
        (f"WORLD_SIZE=1 python {RUN}", 1, "1 rank, from WORLD_SIZE"),
        (f"jsrun --nrs 48 --tasks_per_rs 1 --rs_per_host 6 python {RUN}", 48, "from jsrun --nrs and --tasks_per_rs"),
        (f"jsrun -n8 -a6 -c42 -g6 -r1 python {RUN}", 48, "48 ranks, from jsrun"),
        (f"jsrun -p 12 python {RUN}", 12, "12 ranks, from jsrun -p"),
        (f"#BSUB -nnodes 8\nN=$(cat $LSB_DJOB_HOSTFILE | uniq | wc -l)\njsrun -n $((N * 6)) python {RUN}", 48, "jsrun"),
        (f"aprun -n 16 -N 4 python {RUN}", 16, "16 ranks, from aprun -n"),
        (f"{PBS}mpiexec -n $((N * 8)) --ppn 8 python {RUN}", 32, "32 ranks, from mpirun -n"),
        (f"{PBS}mpirun python {RUN}", 16, "4 nodes x 4, from #PBS -l select and mpiprocs"),
        (f"#PBS -l nodes=2:ppn=4\nmpirun -np $(wc -l < $PBS_NODEFILE) python {RUN}", 8, "8 ranks, from mpirun -np"),
        (f"{PBS}torchrun --nnodes $N --nproc-per-node 8 {RUN}", 32, "4 nodes x 8"),
        (f"{SBATCH}N=$(scontrol show hostnames $L | wc -l)\ntorchrun --nnodes $N --nproc-per-node 4 {RUN}", 512, "128"),
        (f"sbatch -N 3 --ntasks-per-node=8 <<EOF\nsrun python {RUN}\nEOF", 24, "24 ranks"),
        (f"echo torchrun {RUN}\ntorchrun --nnodes 2 --nproc-per-node 8 {RUN}", 16, "2 nodes x 8"),
    ],
)
def test_ranks_and_what_says_so(script: str, ranks: int, told: str) -> None:
    launch = find_launch(script)
    assert launch.devices == ranks
    assert told in launch.notes[0]


@pytest.mark.parametrize(
    ("script", "options", "ranks", "told"),
    [
        (f"torchrun --nnodes $N --nproc-per-node 8 {RUN}", {"nodes": 4}, 32, "4 nodes x 8, from --nodes and torchrun"),
        (f"torchrun --nnodes 2 --nproc-per-node $G {RUN}", {"devices_per_node": 4}, 8, "2 nodes x 4"),
        (f"srun python {RUN}", {"nodes": 3, "devices_per_node": 4}, 12, "from --nodes and --devices-per-node"),
        (f"srun -N 2 -n 16 python {RUN}", {"nodes": 4}, 32, "4 nodes x 8"),
        (f"python {RUN}", {"nodes": 2, "devices_per_node": 8}, 16, "2 nodes x 8"),
        (f"{SBATCH}torchrun --nnodes $SLURM_NNODES --nproc-per-node 4 {RUN}", {"nodes": 2}, 8, "2 nodes x 4"),
        ("MODEL_ARGS: {--bf16: true}", {"nodes": 2, "devices_per_node": 8}, 16, "2 nodes x 8"),
        ("A=(--bf16)", {"nodes": 2, "devices_per_node": 8}, 16, "2 nodes x 8"),
    ],
)
def test_the_command_line_counts_more(script: str, options: dict[str, Any], ranks: int, told: str) -> None:
    launch = find_launch(script, LaunchOptions(**options))
    assert launch.devices == ranks
    assert told in launch.notes[0]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            f"torchrun --nnodes $NNODES --nproc-per-node 8 {RUN}",
            r"torchrun --nnodes is '\$NNODES', which nothing sets; give --nodes, or `-- NNODES=VALUE`.",
        ),
        (f"torchrun --nnodes 1:4 --nproc-per-node 8 {RUN}", "torchrun --nnodes is '1:4', .* give --nodes."),
        (f'torchrun --nnodes "4\x1c" --nproc-per-node 8 {RUN}', r"torchrun --nnodes is '4\\x1c', .* give --nodes."),
        (f"torchrun --nnodes 2 --nproc-per-node gpu {RUN}", "all a node has; give --devices-per-node."),
        (f"torchrun --nnodes $(wc -l < h) --nproc-per-node $G {RUN}", "give --nodes and --devices-per-node."),
        (f"deepspeed {RUN}", "give --devices-per-node."),
        (f"deepspeed --hostfile nowhere --num_gpus 8 {RUN}", "the hostfile nowhere is not here; give --nodes."),
        (f"srun python {RUN}", "give --nodes and --devices-per-node."),
        (f"mpirun -npernode 8 python {RUN}", "give --nodes."),
        (f"python {RUN}", "no launcher calls the program; give --nodes and --devices-per-node."),
        (f"jsrun -n $N -a 6 python {RUN}", r"jsrun --nrs is '\$N', which nothing sets; .* or `-- N=VALUE`"),
        (f"mpirun -np $((8 * N)) python {RUN}", r"mpirun -np is .*, which nothing sets; give .*, or `-- N=VALUE`"),
        (f"torchrun $DIST {RUN}", r"torchrun is called with \$DIST, which nothing sets; .* or `-- DIST=VALUE`"),
        (f"N=$1\ntorchrun --nnodes $N {RUN}", "The script takes arguments; give them behind `--`."),
        (f"{HETEROGENEOUS}srun --het-group=0,1 python {RUN}", "--het-group=0,1: .* give --nodes and"),
        (f"#PBS -l select=2:mpiprocs=8+2:mpiprocs=4\nmpirun python {RUN}", "give --devices-per-node."),
        ("A=(--bf16)\nsrun ./wrapper ${A[@]}", "give --nodes and --devices-per-node."),
    ],
)
def test_what_cannot_be_known_is_asked_for(script: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        find_launch(script)


def test_a_file_that_launches_nothing_takes_the_cluster() -> None:
    launch = find_launch("A=(--bf16)")
    assert launch.devices is None
    assert "all devices of the cluster are taken" in launch.notes[0]


@pytest.mark.parametrize(
    "each",
    [
        "gpu",
        "$(python -c 'import torch; print(torch.cuda.device_count())')",
        '$(/opt/bin/python3.11 -c "from torch.cuda import *; print( device_count() )" 2>/dev/null)',
        "$(nvidia-smi -L | wc -l)",
        "`nvidia-smi --list-gpus | grep -c GPU`",
        "$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)",
        "$(amd-smi list | grep -c GPU:)",
    ],
)
def test_all_devices_of_a_node_are_those_of_the_cluster(each: str) -> None:
    launch = find_launch(f"torchrun --nnodes 2 --nproc-per-node {each} {RUN}", LaunchOptions(machine=4))
    assert (launch.devices, launch.ranks_per_node) == (8, 4)
    assert "from torchrun --nnodes and the machines of the cluster" in launch.notes[0]
    with pytest.raises(InputError, match="give --devices-per-node"):
        find_launch(f"torchrun --nnodes 2 --nproc-per-node {each} {RUN}", LaunchOptions())


@pytest.mark.parametrize(
    "each",
    [
        '$(python -c "print(4)")',
        "$(python count.py)",
        "$(python -c 'import torch; print(torch.cuda.device_count() // 2)')",
        "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader | head -1)",
        "$(nvidia-smi topo -m | wc -l)",
        "$(nvidia-smi -L | wc -l)0",
        "1$(nvidia-smi -L | wc -l)",
    ],
)
def test_what_another_command_prints_is_not_all_devices_of_a_node(each: str) -> None:
    for launcher in ("torchrun --nnodes 2 --nproc-per-node", "deepspeed --num_gpus"):
        for nodes in (None, 2):
            with pytest.raises(InputError, match=r"which only a run would tell; give --devices-per-node\."):
                find_launch(f"{launcher} {each} {RUN}", LaunchOptions(nodes, machine=4))
