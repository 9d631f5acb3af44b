"""Scripts are read as bash reads them, and never run."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest_frameworks.megatron.reading.launch import find_launch
from nest_frameworks.megatron.reading.script import walk
from nest_frameworks.megatron.reading.tokens import UNKNOWN

TYPICAL = r"""#!/bin/bash
#SBATCH --job-name=train --nodes=4
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8 --ntasks-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1   # as Megatron-LM asks
TP=4; PP=${PP:-2}
GPUS=$((8 * 4))
ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size ${PP}   # a comment
    # --context-parallel-size 8
    --micro-batch-size "${MBS:-1}" \
    --global-batch-size $((GPUS*4))
    --pipeline-model-parallel-layout 'Et|tL'
    "--save /a path"
)
if [ "$TP" -gt 1 ]; then
    ARGS+=(--sequence-parallel)
elif [[ $TP == 1 ]]; then
    ARGS+=(--no-such-flag)
else
    ARGS+=(--nor-this)
fi
if [[ -n "$WANDB" && "$PP" == 2 ]]; then ARGS+=(--wandb-project x); fi
case $PP in
  1|3) ARGS+=(--odd) ;;
  2)   ARGS+=(--even) ;;
  *)   ARGS+=(--other) ;;
esac
OPTIONS=" --num-layers 4  --hidden-size 64 "
OPTIONS+="--bf16"
DATE=$(date +%s)
srun --mpi=pmix python -u pretrain_gpt.py ${ARGS[@]} $OPTIONS --tensorboard-dir "runs/$DATE" 2>&1 | tee log.txt
"""


def test_a_script_as_people_write_it() -> None:
    launch = find_launch(TYPICAL)
    assert launch.devices == 32
    assert list(launch.words[:12]) == [
        "--tensor-model-parallel-size",
        "4",
        "--pipeline-model-parallel-size",
        "2",
        "--micro-batch-size",
        "1",
        "--global-batch-size",
        "128",
        "--pipeline-model-parallel-layout",
        "Et|tL",
        "--save",
        "/a",
    ]
    rest = list(launch.words[12:])
    assert rest[:8] == ["path", "--sequence-parallel", "--even", "--num-layers", "4", "--hidden-size", "64", "--bf16"]
    assert rest[8] == "--tensorboard-dir"
    assert UNKNOWN in rest[9]
    assert launch.notes == ("32 ranks, from SLURM_NTASKS.",)


@pytest.mark.parametrize(
    "call",
    [
        "torchrun --nnodes=2 --nproc-per-node 8 pretrain_gpt.py $A",
        "torchrun --nproc_per_node $G --nnodes $N --node_rank 0 pretrain_gpt.py ${A[@]}",
        "python3 -m torch.distributed.launch --nproc_per_node=8 --nnodes=2 /opt/megatron/pretrain_gpt.py ${A[*]}",
        'CMD="torchrun --nnodes $N --nproc-per-node $G pretrain_gpt.py $A"\neval $CMD',
        'CMD="torchrun --nnodes $N --nproc-per-node $G pretrain_gpt.py $A"\n$CMD',
        'srun bash -c "torchrun --nnodes $N --nproc-per-node $G pretrain_gpt.py $A"',
        "sbatch <<EOF\n#!/bin/bash\ntorchrun --nnodes $N --nproc-per-node $G \\\n  pretrain_gpt.py \\$A\nEOF",
        "srun -N 2 --ntasks-per-node=8 python pretrain_gpt.py $A",
        "mpirun -np 16 python pretrain_gpt.py $A",
        "WORLD_SIZE=$((N * G))\npython pretrain_gpt.py $A",
        "exec numactl --membind 0 torchrun --nnodes 2 --nproc-per-node 8 -- pretrain_gpt.py $A",
    ],
)
def test_ways_to_launch(call: str) -> None:
    launch = find_launch(f'G=8\nN=2\nA="--micro-batch-size 3"\npython tools/preprocess_data.py --input x\n{call}\n')
    assert launch.words == ("--micro-batch-size", "3")
    assert launch.devices == 16


def test_nodes_of_the_command_line_count_more_than_those_of_the_file() -> None:
    text = "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --bf16"
    assert find_launch(text, LaunchOptions(16)).devices == 128


def test_a_file_of_arrays_that_is_sourced() -> None:
    assert find_launch("X=3\nA=(--bf16 --lr 1)\nB='--fp16  --x'\n").words == ("--bf16", "--lr", "1", "--fp16", "--x")


def test_nothing_is_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    text = (
        f"A=$(touch {trap})\nB=`touch {trap}`\ntouch {trap}\ntorchrun pretrain_gpt.py --lr $A --bf16 $(touch {trap})\n"
    )
    assert find_launch(text).words[0] == "--lr"
    assert not trap.exists()


def test_what_only_a_run_tells_is_one_word_in_a_command_of_another_shell() -> None:
    """As the scripts of BigScience have it: the address of a node stands in a command that is given to bash."""
    text = (
        "A=$(scontrol show hostnames $NODES | head -n 1)\n"
        'L="python -m torch.distributed.run --nnodes 4 --nproc_per_node 8 --rdzv_endpoint $A:6000"\n'
        'C="`pwd`/pretrain_gpt.py --num-layers 2 --name \\"$A\\" --lr 1"\n'
        'clear; srun bash -c "$L --node_rank $RANK $C" 2>&1 | tee log\n'
    )
    launch = find_launch(text)
    assert launch.devices == 32
    assert launch.words[:3] == ("--num-layers", "2", "--name")
    assert UNKNOWN in launch.words[3]
    assert launch.words[4:] == ("--lr", "1")


def test_what_hangs_on_a_run_is_told() -> None:
    text = "A=(--bf16)\nif [ -f x ]; then A+=(--fp16); fi\nwhile [ -f y ]; do A+=(--x); done\ntorchrun gpt.py ${A[@]}"
    launch = find_launch(text)
    assert launch.words == ("\0$(line-3:A...)\0",)
    assert [note[:6] for note in launch.notes[1:]] == ["line 2", "line 3"]


ARMS = "torchrun a.py --micro-batch-size 1", "torchrun a.py --micro-batch-size 2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'if [ "$SIZE" = big ]\nthen\n{}\nelse\n{}\nfi',
            "line 1 decides which of lines 3, 5 trains; give `-- SIZE=VALUE`",
        ),
        ("if [ -f x ]; then\n{}\nelif [ -f y ]; then\n{}\nfi", "line 1 decides which of lines 2, 4 trains; only a run"),
        ("case $1 in\na) {};;\nb) {};;\n*) exit 1;;\nesac", "line 1 decides which of lines 2, 3 trains; give"),
        ("case $(hostname) in\na) {};;\nb) {};;\nesac", "line 1 decides which of lines 2, 3 trains; only a run"),
    ],
)
def test_arms_that_both_train_are_told_with_what_picks_one(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        find_launch(text.format(*ARMS))
    chosen = find_launch(text.replace("-f x", "b = b").replace("$(hostname)", "b").replace("$1", "b").format(*ARMS),
                         LaunchOptions(variables={"SIZE": "small"}))  # fmt: skip
    assert chosen.words[-1] == ("1" if "-f x" in text else "2")


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("[ -f x ] && B=2", None),
        ("if [ -f x ]; then B=2; fi", None),
        ("case $(hostname) in a) B=2;; *) B=3;; esac", None),
        ("if [ -f x ]; then B=2; else B=2; fi", "2"),
        ("if [ -f x ]; then B=2; exit 1; fi", "1"),
        ("[ -f x ] || exit 1", "1"),
        ("if (( SIZE > 1 )); then B=2; fi", "1"),
        ("if [ $SIZE -gt 1 ]; then B=2; fi", "1"),
        ("if [ -f x ]; then A='--load x'; else A='--save x'; fi", "1"),
        ("f() { if [ $1 = b ]; then B=8; return 0; fi; B=4; }; f b", "8"),
        ("f() { [ $1 = b ] && return 0; B=8; }; f b", "1"),
        ("f() { [ -f x ] && return 0; B=8; }; f", None),
        ("f() { local B=8; }; f", "1"),
        ("f() { local C=8; B=$C; }; f", "8"),
        ("(cd x && B=8 && python c.py $B)", "1"),
        ("B=8 python c.py", "1"),
        ("for i in $(seq 2); do B=$((B*2)); done", None),
        ("for ((i=0; i<2; i++)); do B=$((B*2)); done", None),
        ("for i in 1 2; do B=$((B*2)); [ $i = 1 ] && break; done", "2"),
        ("for B in 2 4 8; do [ $B = 2 ] && continue; [ $B = 4 ] && break; done", "4"),
        ("for B in 2 4 8; do [ -f x ] && break; done", None),
        ("until [ $B -ge 8 ]; do ((B*=2)); done", "8"),
        ("while read i; do let B++; done < x", None),
        ("case ab in a*) B=4 ;& z) B=8 ;; *) B=9;; esac", "8"),
        ("case ab in a*) B=4 ;;& z) B=2 ;; *b) B=8 ;; esac", "8"),
        ("f() { B=4; }; f | cat; f 2>&1 | cat; { B=4; } 2>&1 | cat", "1"),
        ("f() { B=4; }; f & wait", "1"),
        ("f() { shift 2; B=$1; }; f 1 2 8", "8"),
        ("f() { shift 4; B=$1; }; f 8 2", "8"),
        ("f() { shift; B=${2:-8}; }; f 1 2", "8"),
        ("bash -c 'B=8; python c.py x'", "1"),
        ("bash <<< 'B=8'", "1"),
        ("bash <<E\nB=8\npython c.py\nE", "1"),
        ("for i in 1 2; do for j in 1 2; do B=$i$j; break 2; done; B=9; done", "11"),
        ("for i in 1 2; do for j in 1 2; do B=$i$j; continue 2; done; B=9; done", "21"),
        ("for i in 1 2; do for j in 1 2; do break 1; done; B=$i; done", "2"),
        ("for i in 1 2; do for j in 1 2; do [ -f x ] && break 2; done; B=3; done", None),
        ("eval 'B=8'", "8"),
        ("declare -n C=B; C=8", None),
        ("smi | grep -q H200 && B=8", None),
        ("python c.py || B=8", None),
        ("cd x && B=8", "8"),
    ],
)
def test_what_arms_set_differently_is_not_known_behind_them(line: str, size: str | None) -> None:
    words = find_launch(f"B=1\n{line}\ntorchrun a.py $A --micro-batch-size $B").words
    assert words[-1] == (size or "\0$(line-2:B...)\0")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A=(--bf16\n", "line 1: the array that begins here is never closed"),
        ("\nA='x\n", "line 2: the quote that begins here is never closed"),
        ("if true; then\nA=1\n", "expected `fi`|expected `elif` or `else` or `fi`"),
        ("", "no flags"),
        ("MODEL_ARGS: 3\n", "must be maps"),
        ("A=${B\n", "never closed"),
        ("A=( a | b )\n", "must stand in quotes"),
        ("(" * 5_000, "never closed|nested"),
        ("A=(" * 5_000, "never closed|nested"),
        ("if " * 5_000, "nested|expected"),
        ("x" * (2**20 + 1), "more than"),
    ],
)
def test_what_is_no_script_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        find_launch(text)


@given(st.text("ab'\"\\$`(){}[]|&;<>#=\n -+*01ETP@:", max_size=60))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    try:
        walk(text)
    except InputError:
        return


WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r", exclude_categories=("Cs",)), max_size=8),
    min_size=1,
    max_size=5,
)


@given(WORDS)
def test_quoted_words_come_out_as_they_went_in(words: list[str]) -> None:
    from shlex import quote

    found = walk("A=(" + " ".join(map(quote, words)) + ')\ncall "${A[@]}"\n')
    assert found.calls[0].words == ("call", *words)


EXPANSIONS = [
    'A=" a  b "; call $A x"$A"y $A',
    'A=(a "b c" d); call ${A[@]} / "${A[@]}" / "x${A[1]}y" ${#A[@]}',
    "A=; call ${A:-d e} ${B-f} ${A-g} ${B:+h} ${A+i}j",
    "A=5; call $((A*2+1)) $(( (A - 7) / 2 )) $((A%3)) $((2**A)) $((A>3))",
    "call a\\ b 'c\"d' \"e'f\\$g\" h''i",
    'A=x; A+=y; B=(1); B+=(2 "3 4"); call $A ${B[2]} "${B[*]}"',
    'A="b c"; call pre$A"post" "$A"$A',
    "call one; call two && call three || call four",
    'A=--x; if [ "$A" = "--x" ] && [ ! "$A" = y ]; then call yes; else call no; fi',
    "A=4; [ $A -gt 1 ] && call yes; [ $A -gt 5 ] && call no || call other; [[ -z $A ]] || call set",
    "A=4; [ $A = 4 ] &&\n  call next\ntrue || call never\nfalse && call never; call always",
    'A=(); B=(""); call "$@" x "${A[@]}" "${B[@]}" "$*" y"$@" "${A[*]}"',
    "A=b; case $A in a) call 1;; [bc]*) call 2;; *) call 3;; esac",
]


@pytest.mark.parametrize("text", EXPANSIONS)
def test_words_are_those_of_bash(text: str) -> None:
    script = 'call() { printf "<%s>" "$@"; echo; }\n' + text
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env={})
    found = [call for call in walk(text).calls if call.words[0] == "call"]
    told = ["".join(f"<{word}>" for word in call.words[1:]) for call in found]
    assert told == done.stdout.splitlines()


CALLED = """
launch() {
  torchrun --nnodes $1 --nproc-per-node ${GPUS:-8} pretrain_gpt.py $MODEL "${@:2}" --micro-batch-size $MBS
}
function unused { torchrun other.py; }
case $1 in 175b) MODEL="--num-layers 96";; *) MODEL="--num-layers 2";; esac
shift
MBS=${MBS:-1}
launch $1 --lr 1
"""


def test_arguments_the_environment_and_functions() -> None:
    launch = find_launch(CALLED, LaunchOptions(arguments=("175b", "4"), variables={"MBS": "3"}))
    assert launch.words == ("--num-layers", "96", "--lr", "1", "--micro-batch-size", "3")
    assert launch.devices == 32


def test_placeholders_are_no_redirections() -> None:
    values = 'A="--load <PATH TO CHECKPOINTS> --fp16 "\nD=<path to data>_document\n'
    text = f'{values}sh -c "torchrun gpt.py $A --data-path $D --x"\n'
    words = [word.replace(UNKNOWN, "") for word in find_launch(text).words]
    assert words == ["--load", "<PATH TO CHECKPOINTS>", "--fp16", "--data-path", "<path to data>_document", "--x"]


def test_sourced_files_are_read_where_they_are_and_told_where_not(tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text("A=(--bf16 --lr $1)\n")
    text = "source $(dirname $0)/common.sh 3\n. elsewhere.sh\ntorchrun gpt.py --num-layers 2 ${A[@]}\n"
    launch = find_launch(text, LaunchOptions(folder=tmp_path))
    assert launch.words == ("--num-layers", "2", "--bf16", "--lr", "3")
    assert "sets nothing: elsewhere.sh" in launch.notes[1]


def test_a_script_that_a_launcher_runs_is_read(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text("python pretrain_gpt.py --lr $1\n")
    launch = find_launch("srun -N 2 --ntasks-per-node 4 bash inner.sh 7\n", LaunchOptions(folder=tmp_path))
    assert launch.words == ("--lr", "7")
    assert launch.devices == 8


def test_a_script_in_a_shell_of_its_own_keeps_what_it_sets(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text("B=8\nexport WORLD_SIZE=16\npython pretrain_gpt.py --lr $B\nexit\n")
    options = LaunchOptions(folder=tmp_path)
    for call in ("bash inner.sh", "./inner.sh", "bash -c 'bash inner.sh'"):
        script = walk(f"B=1\n{call}\ntrue $B\n", options)
        assert script.calls[-1].words == ("true", "1")
        assert find_launch(f"B=1\n{call}\n", options).devices == 16


def test_functions_that_call_themselves_come_to_an_end() -> None:
    with pytest.raises(InputError, match=r"nested more than|more than 1000 times"):
        find_launch("f() { f; f; }\nf\n")


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        ("for i in 1 2; do A+=(--x $i); done", ("--x", "1", "--x", "2")),
        ("for i in {2..3}\ndo\n A+=(--x $i)\ndone", ("--x", "2", "--x", "3")),
        ("for i in $(seq 4); do B=$i; done", ()),
        ("for ((i=0; i<3; i++)); do B=$i; done", ()),
        ("i=0; until [ $i -eq 2 ]; do i=$((i + 1)); A+=(--x $i); done", ("--x", "1", "--x", "2")),
        ("while true; do A=(--x); sleep 5; done", ("--x",)),
        ("set -- a b; while [ $i ]; do A+=(--y); done", ()),
        ("if (( 2 > 1 && !0 )); then A+=(--yes); fi; ((1 > 2)) && A+=(--no)", ("--yes",)),
        ("if [ a = b ]; then A+=(--if); elif [ a = a ]; then A+=(--elif); else A+=(--else); fi", ("--elif",)),
        ("(cd x; A+=(--x))", ()),
        ("A+=(--x $((3 > 2 ? 7 : 8)))", ("--x", "7")),
    ],
)
def test_loops_and_branches(loop: str, words: tuple[str, ...]) -> None:
    assert find_launch(f"A=()\n{loop}\ntorchrun gpt.py --bf16 ${{A[@]}}").words == ("--bf16", *words)


SWEEP = "for BS in 1 2 4; do\n for node in a b; do\n ssh $node torchrun gpt.py --micro-batch-size $BS\n done\ndone\n"


def test_a_loop_that_launches_several_trainings_asks_which() -> None:
    with pytest.raises(InputError, match=r"line 3 runs once for each BS of 1, 2, 4; choose one, such as `-- BS=1`\."):
        find_launch(SWEEP)
    assert find_launch(SWEEP, LaunchOptions(variables={"BS": "4"})).words == ("--micro-batch-size", "4")
    with pytest.raises(InputError, match="other flags in each turn of a loop"):
        find_launch("B=1\nwhile [ $B -lt 9 ]; do torchrun gpt.py --micro-batch-size $B; B=$((B * 2)); done")


def test_the_run_that_is_read_is_told_where_there_are_others() -> None:
    launch = find_launch("torchrun gpt.py --hidden-size 8\ntorchrun gpt.py --hidden-size 9 --num-layers 2\n")
    assert launch.words[:2] == ("--hidden-size", "9")
    assert "line 2 is read; other runs are on line 1." in launch.notes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("eval $(compose)\n", "what only a run would tell may call one, on line 1"),
        ("TP=2 ./train.sh\n", r"the scripts that it runs are not here: \./train\.sh"),
        (
            "source flags.sh\ntorchrun gpt.py ${ARGS[@]} --save x\n",
            "gpt.py is called without flags .* not here: flags.sh",
        ),
    ],
)
def test_what_a_program_may_be_hidden_behind_is_told(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        find_launch(text)


def test_what_nothing_sets_is_told_where_it_may_be_flags() -> None:
    launch = find_launch("torchrun gpt.py --save $DIR --bf16 $EXTRA --lr 1 $A $@ $B\nif false; then B=1; fi\n")
    assert [note for note in launch.notes if "nothing sets" in note] == [
        "nothing sets $EXTRA, and nest assumes it to be empty; `-- EXTRA=VALUE` says it.",
        "nothing sets $A, and nest assumes it to be empty; `-- A=VALUE` says it.",
    ]
