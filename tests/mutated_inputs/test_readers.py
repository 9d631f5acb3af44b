"""Every reader takes or refuses any bytes; `python -m tests.mutated_inputs.readers` makes any number of them."""

import sys
from pathlib import Path

import pytest

from nest.errors import InputError
from tests.mutated_inputs.readers import READERS, draw, outcome, samples
from tests.mutated_inputs.readers import main as run

ENDS = ("read", "refused")


@pytest.mark.longer
def test_every_reader_has_samples_that_it_reads(tmp_path: Path) -> None:
    for name, known in samples().items():
        assert "read" in {outcome(name, suffix, data, tmp_path) for suffix, data in known[:12]}, name


@pytest.mark.longer
def test_some_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    found = {number: outcome(*draw(23, number), tmp_path) for number in range(120)}
    assert {number: end for number, end in found.items() if end not in ENDS} == {}
    assert draw(23, 7) == draw(23, 7)


def test_what_goes_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> object:
        raise KeyError(path.name)

    def silent(path: Path) -> object:
        raise InputError("")

    def endless(path: Path) -> object:
        while True:
            pass

    monkeypatch.setattr("tests.mutated_inputs.readers.LIMIT", 0.05)
    for reader, told in ((broken, "KeyError: 'file.sh'"), (silent, "without a word"), (endless, "longer than")):
        monkeypatch.setitem(READERS, "megatron", reader)
        assert told in outcome("megatron", ".sh", b"", tmp_path)


LONG = 100_000
"""Characters of what took a square of them."""


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "suffix", "data"),
    [
        ("megatron", ".sh", b"-" * LONG),
        ("megatron", ".sh", b"python a.py " + b"".join(b"$a%d " % number for number in range(LONG // 6))),
        ("megatron", ".sh", b"python a.py --x" + b"\x1b" * LONG),
        ("megatron", ".sh", b"------ arguments ------\n" + b"a" * LONG),
        ("megatron", ".sh", b"\xc2\xa0" * LONG),
        ("maxtext", ".sh", b"\n" * LONG + b"x"),
        ("verl", ".sh", b"python a.py actor_rollout_ref." + b"a." * LONG + b"b=1"),
        ("nemo", ".yaml", b"run: " + b"[" * LONG),
        ("axolotl", ".yaml", b"{a: " * LONG),
        ("network", ".txt", b"\n" * LONG + b"x"),
        ("network", ".txt", b"1" * LONG),
        ("collectives", ".txt", b"a" * LONG),
        ("log", ".log", b"a" * LONG + b"\n" + b"9" * LONG),
    ],
)
def test_long_runs_take_as_long_as_they_are(name: str, suffix: str, data: bytes, tmp_path: Path) -> None:
    assert outcome(name, suffix, data, tmp_path) in ENDS


SMI = b"$ nvidia-smi topo -m\n$'\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tNV2\t0-15\nGPU1\tNV2\t X \t0-15\n"


MANY = b"9" * 290
HUGE = b"A=%s\nB=$A$A$A$A$A\nC=$B$B$B\n" % MANY
TITAN = b"world size: 8\n global batch size 8, sequence length 1024\nstep: 1  loss: 2  memory: 3.4GiB(6%)  tps: "
GPT = (
    b"pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    b"--max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 8 "
)
XPUS = (
    b'{"components": [{"name": "xpu", "count": 2, "choice": "xpu"}], "links": [{"name": "l", "physical": {"bandwidth": '
    b'{"gigabits_per_second": %s}}}], "edges": [{"ep1": {"component": "xpu[0]"}, "ep2": {"component": "xpu[1]"}, '
    b'"link": "%s"}]}'
)
XML = (
    b'<system version="1"><cpu numaid="0"><pci busid="0" class="0x030200"><gpu dev="0" sm="90">'
    b'<nvlink target="1" count="1" tclass="0x030200"/><c2c bw="%s" count="%s"/></gpu></pci>'
    b'<pci busid="1" class="0x030200"><gpu dev="1" sm="90"/></pci></cpu></system>'
)
SWITCH = b'Switch 4 "S-1" # "sw"\n[1] "H-1"[1] # "a" lid 1 %s999999999xNDR\n[2] "H-2"[1] # "b" lid 2 %s999999999xNDR\n'
VERL = b"python -m verl.trainer.main_ppo actor_rollout_ref"


@pytest.mark.parametrize(
    ("name", "suffix", "data"),
    [
        ("network", ".txt", SMI),
        ("maxtext", ".sh", b"python3 -m MaxText.train " + b"9" * 300 + b".yml"),
        ("model", ".json", b'{"transformer": "x"}'),
        ("log", ".log", b"step: 1  loss: 2  memory: 3.4.5GiB(6%)  tps: 7.8.9\n"),
        ("log", ".log", TITAN + b"0"),
        ("log", ".log", TITAN + b","),
        ("log", ".log", TITAN.replace(b"e: 8", b"e: 0") + b"7"),
        ("log", ".log", TITAN.replace(b"size 8", b"size ,") + b"7"),
        ("log", ".log", TITAN.replace(b"size 8", b"size " + b"1," * 400) + b"7"),
        ("log", ".log", TITAN[14:] + b"7\ndevice mesh with parallelism: " + b"tp=%s, " % MANY[:90] * 9),
        ("log", ".log", b"Total optimization steps = ,\n{'train_runtime': 9.0}\n"),
        ("network", ".conf", b"NodeName="),
        ("network", ".conf", b"NodeName=#n1 Gres=gpu:h100:8"),
        ("megatron", ".sh", HUGE + b"srun --ntasks $C : --ntasks 3 " + GPT),
        ("megatron", ".sh", HUGE + b"mpirun -H a:$C,b:4 " + GPT),
        ("megatron", ".sh", HUGE + b"mpirun --map-by ppr:$C:node " + GPT),
        ("megatron", ".sh", HUGE + b"SLURM_NNODES=$C\ntorchrun --nnodes $(scontrol show hostnames | wc -l) " + GPT),
        ("megatron", ".sh", HUGE + b"qsub -l select=$C:mpiprocs=8 <<E\nmpirun %s\nE\n" % GPT),
        ("megatron", ".sh", b"SLURM_NNODES=()\nsbatch --ntasks-per-node 8 <<E\nsrun %s\nE\n" % GPT),
        ("verl", ".sh", VERL + b".model.path+=x"),
        ("verl", ".sh", VERL + b"=x actor_rollout_ref.model.path"),
        ("verl", ".sh", VERL + b".actor=x"),
        ("network", ".json", XPUS % (MANY + MANY, b"l")),
        ("network", ".yaml", XPUS % (b"0x" + b"f" * 300, b"l")),
        ("network", ".json", XPUS % (b"1", b"pci gen5 x" + MANY * 2)),
        ("network", ".yaml", b"topology: [Ring]\nnpus_count: [0x" + b"f" * 300 + b"]\nbandwidth: [50]\nlatency: [5]\n"),
        ("network", ".xml", XML % (MANY, MANY)),
        ("network", ".txt", SWITCH % (MANY, MANY)),
    ],
)
def test_files_that_were_tracebacks_are_read_or_refused(name: str, suffix: str, data: bytes, tmp_path: Path) -> None:
    assert outcome(name, suffix, data, tmp_path) in ENDS


@pytest.mark.longer
def test_the_command_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["readers", "--count", "5", "--seed", "3"])
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == 0
    assert "failures: 0" in capsys.readouterr().out
