"""What logs of training frameworks say, read from public ones and from lines as frameworks print them."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

from nest.errors import InputError
from nest_calibrate.logs import read_log

LOGS = Path(__file__).parent / "logs"
GIB = 2**30

FIGURES = {
    # Medians of the steps after the first fifth, by hand.
    "megatron-lm-52b": ("Megatron-LM", 126.5389, 24460.0 / 1024),
    "megatron-lm-18b": ("Megatron-LM", 1.3806, 30806.0 / 1024),
    "megatron-deepspeed-52b": ("Megatron-LM", 137.62720, 23270.0 / 1024),
    "megatron-lm-mixtral": ("Megatron-LM", 5.48935, 61480.0 / 1024),
    "megatron-bridge-deepseek": ("Megatron-Bridge", 2.23, None),
    "nemo-qwen3": ("NeMo", 26.73, 57675874304 / GIB),
    "nemo-gpt3": ("NeMo", 25.699, None),
    "deepspeed-pipeline-52b": ("DeepSpeed", 145.206, None),
    "torchtitan-llama3-8b": ("torchtitan", 8 * 8192 / (7046.5 * 8), 49.59),
    "deepspeed-1b": ("DeepSpeed", 16.1425, 15.59),
    "maxtext-deepseek2": ("MaxText", 5.668, None),
    "hf-trainer-25b": ("Hugging Face Trainer", 56.0, None),
}


@pytest.mark.parametrize("name", FIGURES)
def test_public_logs_are_read(name):
    framework, seconds, peak = FIGURES[name]
    found = read_log(LOGS / f"{name}.log")
    assert found.framework == framework
    assert found.seconds == pytest.approx(seconds, rel=1e-3)
    assert (found.peak and found.peak / GIB) == (peak and pytest.approx(peak, rel=1e-6))
    assert not found.failed


def test_every_log_has_its_figures():
    assert {path.stem for path in LOGS.glob("*.log")} == set(FIGURES)


@pytest.fixture
def reading(tmp_path):
    def read(text):
        path = tmp_path / "run.log"
        path.write_text(text, newline="")
        return read_log(path)

    return read


ITERATION = " iteration {:8d}/ 100 | elapsed time per iteration (ms): {:.1f} | global batch size: {:5d} |\n"


def test_steps_of_a_batch_that_grows_do_not_count(reading):
    grown = [ITERATION.format(step, 1000.0, 64) for step in range(1, 20)]
    whole = [ITERATION.format(step, 4000.0, 256) for step in range(20, 30)]
    found = reading("".join(grown + whole))
    assert (found.seconds, found.batch) == (4.0, 256)


def test_several_ranks_that_print_one_step_count_once(reading):
    line = "[rank{}]:[titan] 2025-10-15 - root - INFO - step: {:2d}  loss: 1.0  memory: {:.2f}GiB(9%)  tps: {:,}\n"
    text = "".join(line.format(rank, step, 40 + rank, 5000 + step) for step in range(1, 11) for rank in range(4))
    mesh = "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=2, cp=2, tp=1, ep=2\n"
    batch = "Trainer is initialized with local batch size 1, global batch size 8, sequence length 1024, total steps 9\n"
    found = reading(mesh + batch + text)
    assert (found.devices, found.steps, found.peak) == (4, 8, 43 * GIB)
    assert found.seconds == pytest.approx(8 * 1024 / (5006.5 * 4))


def test_colours_and_carriage_returns_part_no_line(reading):
    bars = "".join(
        f"\r{step:3d}%|#| {step}/20 [{step // 2:02d}:{30 * (step % 2):02d}<00:10, 30.0s/it]" for step in range(21)
    )
    found = reading(f"\x1b[32m  Total optimization steps = 20\x1b[39m\n{bars}\n")
    assert found.seconds == pytest.approx(30.0)


NANOTRON = (
    "08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]:  Memory usage: 64.15MiB. Peak allocated 309.29MiB. Peak reserved: "
    "496.00MiB\n08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]: iteration: {} / 15 | consumed_tokens: 512 | "
    "elapsed_time_per_iteration_ms: {} | tokens_per_sec: 109 | global_batch_size: {} | lm_loss: 5.32 |\n"
)
NOTEBOOK = "<progress value='{0}' max='536'></progress>\n [{0}/536 {1} < 02:00, 0.33 it/s, Epoch 1/4]\n"
FACTORY = '{{"current_steps": {}, "total_steps": 93, "loss": 5.7, "elapsed_time": "{}", "remaining_time": "0:36:15"}}\n'


@pytest.mark.parametrize(
    ("lines", "seconds", "framework"),
    [
        ([NANOTRON.format(step, "4.71K" if step < 3 else "912", 2) for step in range(1, 16)], 0.912, "nanotron"),
        ([NANOTRON.format(1, "4.71K", "1.02K")], 4.71, "nanotron"),
        ([NOTEBOOK.format(135, "06:45")], 3.0, "Hugging Face Trainer"),
        ([NOTEBOOK.format(50, "1:00:00"), NOTEBOOK.format(100, "1:05:00")], 6.0, "Hugging Face Trainer"),
        (["[536/536 26:48, Epoch 4/4]"], 3.0, "Hugging Face Trainer"),
        ([FACTORY.format(5, "0:02:03"), FACTORY.format(10, "0:04:03")], 24.0, "LLaMA-Factory"),
        ([FACTORY.format(5, "23:59:00"), FACTORY.format(10, "1 day, 0:01:00")], 24.0, "LLaMA-Factory"),
    ],
)
def test_lines_of_other_trainers_tell_seconds(reading, lines, seconds, framework):
    found = reading("".join(lines))
    assert (found.seconds, found.framework) == (pytest.approx(seconds), framework)
    assert found.peak == (496 * 2**20 if framework == "nanotron" else None)
    assert found.batch == (2 if "_size: 2 " in lines[0] else None)


def one_run(first, seconds, peak, batch=64, steps=20):
    lines = [ITERATION.format(step, 1000.0 * seconds, batch) for step in range(first, first + steps)]
    arguments = f"------ arguments ------\n  seconds ... {seconds}\n------ end of arguments ------\n"
    return arguments + lines[0] + f"[Rank 0] memory (MB) | max reserved: {peak}\n" + "".join(lines[1:])


def test_a_bar_that_has_not_moved_tells_no_time(reading):
    bars = [f"{step}/20 [00:{3 * step:02d}<00:10, 3.0s/it]\n" for step in (0, 10, 20, 0)]
    assert reading("Total optimization steps = 20\n" + "".join(bars)).seconds == pytest.approx(3.0)
    with pytest.raises(InputError, match="no training steps found"):
        reading(NOTEBOOK.format(0, "00:00"))


@pytest.mark.parametrize(
    ("text", "seconds", "peak", "left_out"),
    [
        (one_run(1, 9.0, 900) + one_run(1, 4.0, 400), 4.0, 400, 1),
        (one_run(1, 4.0, 900) + one_run(11, 4.0, 400), 4.0, 900, 0),
        (one_run(1, 9.0, 900) + one_run(1, 4.0, 400) + one_run(1, 60.0, 600, steps=1), 4.0, 400, 2),
        (one_run(1, 4.0, 900, batch=32) + one_run(1, 4.0, 400), 4.0, 400, 1),
    ],
)
def test_of_several_runs_in_a_log_the_last_counts_and_those_of_its_time(reading, text, seconds, peak, left_out):
    found = reading(text)
    assert (found.seconds, found.peak, found.left_out) == (seconds, peak * 2**20, left_out)
    assert found.arguments == text[text.rindex("------ arguments") :].partition(" iteration")[0]


def test_other_progress_bars_are_no_training(reading):
    with pytest.raises(InputError, match="no training steps found"):
        reading("Map: 50%|#| 50/100 [00:10<00:10, 5.0 examples/s]\nMap: 100%|#| 100/100 [00:20<00:00]\n")


def test_the_trainer_s_runtime_tells_where_no_bar_does(reading):
    found = reading("  Total optimization steps = 5,000\n{'train_runtime': 9000.0, 'train_steps_per_second': 0.556}\n")
    assert found.seconds == pytest.approx(1.8)


def test_the_trainer_s_memory_is_a_sum(reading):
    text = "  Total optimization steps = 10\n{'train_runtime': 100.0}\n"
    memory = {"init_mem_gpu_alloc_delta": 1000, "train_mem_gpu_alloc_delta": 2000, "train_mem_gpu_peaked_delta": 4000}
    found = reading(text + "".join(f"  {name} = {size}MB\n" for name, size in memory.items()))
    assert (found.peak, found.peak_kind) == (7000 * 2**20, "allocated")


THROUGHPUT = "[2024-04-{} 02:45:{:02d},722] [INFO] epoch=0/micro_step=3/global_step={}, RunningAvgSamplesPerSec=7\n"


@pytest.mark.parametrize("day", ["31", "00", "99"])
def test_a_day_that_no_month_has_tells_no_time(reading, day):
    lines = [THROUGHPUT.format("30", 2 * step, step) for step in range(8)]
    whole, damaged = reading("".join(lines)), lines.copy()
    damaged[3] = lines[3].replace("-30 ", f"-{day} ")
    assert reading("".join(damaged)).seconds == whole.seconds == 2.0


TITAN = "step: {}  loss: 2.0  memory: {}GiB(6%)  tps: {}\n"
SAYING = "world size: 8\n global batch size 16, sequence length 1024\n"


def test_nothing_and_what_no_run_has_count_as_not_said(reading):
    steps = "".join(TITAN.format(step, 40.0, 512) for step in range(9, 15))
    expected = reading(SAYING + steps)
    assert (expected.seconds, expected.peak) == (16 * 1024 / (512 * 8), 40 * GIB)
    for tokens in ("0", ",", "9," * 50):
        found = reading(SAYING + TITAN.format(8, 0.0, tokens) + steps)
        assert (found.seconds, found.peak) == (expected.seconds, expected.peak)
    for said in ("world size: 0\n", "global batch size ,\n", f"sequence length {'9' * 30}\n"):
        assert reading(SAYING + said + steps) == expected
    assert reading(TITAN.format(1, "0.00", 512)).peak is None
    assert reading(TITAN.format(1, "1e999", 512)).peak is None
    memory = "before_init_mem_gpu = 0\ntrain_mem_gpu_peaked_delta = 0\n"
    assert reading(ITERATION.format(7, 1000.0, 64) + memory).peak_kind is None


@pytest.mark.parametrize(
    "text",
    [
        SAYING + TITAN.format(1, 40.0, 0),
        ITERATION.format(1, 0.0, 64),
        ITERATION.format(1, 1000.0, 64).replace("1000.0", "1e999"),
        "  Total optimization steps = 5\n{'train_runtime': 0.0}\n",
        "  Total optimization steps = 0\n{'train_runtime': 9.0}\n",
    ],
)
def test_steps_that_take_no_time_or_for_ever_tell_none(reading, text):
    with pytest.raises(InputError, match="no training steps found"):
        reading(text)


STEP = ITERATION.format(7, 1000.0, 64)
FAILURES = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1024.00 MiB (GPU 0; 15.90 GiB total capacity)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm.",
    "RuntimeError: Resource exhausted: Failed to allocate request for 32.00MiB (33554432B) on device ordinal 0",
    "node:2134736:2285781 [0] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
)


@pytest.mark.parametrize("failure", FAILURES)
def test_memory_that_runs_out_is_a_failure_unless_steps_go_on(reading, failure):
    assert reading(failure + "\n").failed
    assert reading(STEP + failure + "\n").failed
    assert not reading(failure + "\n" + STEP).failed


def test_a_warning_of_the_allocator_is_no_failure(reading):
    warning = "W bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB; no failure\n"
    assert not reading(STEP + warning).failed


def test_a_log_without_steps_is_refused_with_what_is_known(tmp_path):
    path = tmp_path / "empty.log"
    path.write_text("hello\n")
    with pytest.raises(InputError, match=r"empty\.log: no training steps found; nest reads logs of Megatron-LM"):
        read_log(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_log(tmp_path / "none.log")


@settings(max_examples=24, deadline=None, derandomize=True)
@given(
    seconds=strategies.lists(strategies.floats(0.5, 500.0), min_size=1, max_size=30),
    noise=strategies.lists(strategies.text(max_size=60), max_size=10),
)
def test_what_is_written_is_read(tmp_path_factory, seconds, noise):
    path = tmp_path_factory.mktemp("logs") / "run.log"
    lines = [ITERATION.format(step, each * 1000, 64) for step, each in enumerate(seconds, 1)]
    harmless = [each.replace("\n", " ").replace("\r", " ") + "\n" for each in noise]
    path.write_text("".join(harmless + lines), encoding="utf-8", errors="replace")
    found = read_log(path)
    assert min(seconds) - 1e-3 <= found.seconds <= max(seconds) + 1e-3
    assert found.steps == (len(seconds) - -(-len(seconds) // 5) if len(seconds) > 1 else 1)
