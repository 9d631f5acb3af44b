"""Run on the device: `python -m benchmarks.one_device.train FILE`; needs nest-torch, PyTorch and transformers.

Trains each setting for 20 steps in a process of its own, and writes a line of JSON for each as soon as it is known.
"""

import argparse
import datetime
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from attrs import asdict
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import nest_torch
from benchmarks.one_device.settings import MODEL, Setting, ramps
from nest import api
from nest.io import structure
from nest.spec import Problem

STEPS = 20
WARM = 3
"""Steps that are not timed: the first compile, and make the optimizer's state."""

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class _Float8(torch.autograd.Function):
    """A product of 8-bit operands, each scaled by its largest element; the operands are saved in 16 bits."""

    @staticmethod
    def forward(context: Any, inputs: Any, weight: Any) -> Any:
        context.save_for_backward(inputs, weight)
        return _product(inputs, weight.t(), E4M3, E4M3)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        inputs, weight = context.saved_tensors
        gradient = gradient.contiguous()
        return _product(gradient, weight, E5M2, E4M3), _product(gradient.t(), inputs, E5M2, E4M3)


def _product(left: Any, right: Any, left_format: Any, right_format: Any) -> Any:
    """`left @ right`; the hardware reads rows of the left and columns of the right operand."""
    narrow_left, left_scale = _narrow(left, left_format)
    narrow_right, right_scale = _narrow(right, right_format)
    return torch._scaled_mm(
        narrow_left.contiguous(),
        narrow_right.t().contiguous().t(),
        scale_a=left_scale,
        scale_b=right_scale,
        out_dtype=torch.bfloat16,
    )


def _narrow(tensor: Any, number_format: Any) -> tuple[Any, Any]:
    largest = torch.finfo(number_format).max
    scale = tensor.abs().amax().float().clamp(min=1e-12) / largest
    return (tensor.float() / scale).clamp(-largest, largest).to(number_format), scale


class Float8Linear(nn.Linear):
    """A linear layer whose products are of 8-bit operands, scaled as they are now."""

    def forward(self, input: Any) -> Any:  # noqa: A002 the name is nn.Linear's.
        """The product, in bf16."""
        rows = input.flatten(0, -2).to(torch.bfloat16)
        return _Float8.apply(rows, self.weight.to(torch.bfloat16)).unflatten(0, input.shape[:-1])


def made(sizes: dict[str, Any], setting: Setting) -> Any:
    """The module, on the device and in single precision."""
    config = transformers.LlamaConfig(
        vocab_size=sizes["vocab"],
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["ffn"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
        tie_word_embeddings=sizes["tied_embeddings"],
        max_position_embeddings=setting.sequence,
        attn_implementation="sdpa",
        use_cache=False,
    )
    with torch.device(_kind()):
        module = transformers.LlamaForCausalLM(config)
    for layer in module.model.layers if setting.precision == "fp8" else ():
        for part in layer.modules():
            if type(part) is nn.Linear:
                part.__class__ = Float8Linear
    return module


def selective(block: nn.Module) -> None:
    """Save what products and attention give, and run all else again."""
    aten = torch.ops.aten
    kept = {
        aten.mm.default,
        aten._scaled_mm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    }

    def policy(context: Any, operator: Any, *arguments: Any, **keywords: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE

    forward: Any = block.forward
    contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
    block.forward = lambda *given, **named: checkpoint(  # type: ignore[method-assign]
        forward, *given, use_reentrant=False, context_fn=contexts, **named
    )


def unfused(logits: Any, targets: Any) -> Any:
    """Of logits in single precision."""
    return nn.functional.cross_entropy(logits.float().flatten(0, -2), targets.flatten())


class Seen:
    """The loss, and what the allocator holds when it is called first: all that the forward pass saved."""

    def __init__(self, loss: Callable[[Any, Any], Any]) -> None:
        self.loss = loss
        self.held: list[int] = []

    def __call__(self, logits: Any, targets: Any) -> Any:
        """As `loss`."""
        self.held.append(_allocated())
        return self.loss(logits, targets)


def trained(sizes: dict[str, Any], setting: Setting, steps: int) -> dict[str, Any]:
    """Train, and say what was seen.

    Returns:
        `seconds` of each step behind the warm-up, `peak_allocated`, `peak_reserved` and `used` (of the device) bytes,
        `static`: bytes between steps, `saved`: bytes more when the first loss of a step is called.
    """
    problem = setting.problem()
    problem["model"]["transformer"] = dict(sizes)
    plan = api.evaluate(structure(problem, Problem))
    module = made(sizes, setting)
    for layer in module.model.layers if setting.recompute == "selective" else ():
        selective(layer)
    loss = Seen(unfused if setting.loss == "unfused" else torch.compile(unfused))
    parallel = nest_torch.apply(
        module,
        _without_selective(plan),
        loss=loss,
        example_inputs={"input_ids": torch.zeros(1, 8, dtype=torch.long)},
        compiled={} if setting.kernels == "compiled" else None,
    )
    sharded = setting.weights == "fsdp"
    if sharded:  # `apply` shards nothing on one rank; FSDP holds weights once there as it does on many.
        formats = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = init_device_mesh(_kind(), (1,))
        for layer in module.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=formats)
        fully_shard(module, mesh=mesh, mp_policy=formats)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4, fused=_kind() == "cuda")
    tokens = torch.randint(0, sizes["vocab"], (parallel.batch, setting.sequence + 1), device=_kind())
    times = []
    for step in range(steps):
        if step == WARM:
            gc.collect()
            _reset()
        static = _allocated()
        loss.held.clear()
        started = time.perf_counter()
        with torch.autocast(_kind(), torch.bfloat16, enabled=not sharded):
            mean = parallel.step({"input_ids": tokens[:, :-1]}, tokens[:, 1:])
        optimizer.step()
        optimizer.zero_grad()
        _synchronised()
        times.append(time.perf_counter() - started)
        saved = loss.held[0] - static
    return {"seconds": times[WARM:], "loss": float(mean), "static": static, "saved": saved, **_peaks()}


def _without_selective(plan: Any) -> Any:
    """`apply` refuses selective recomputation, which the blocks bring themselves."""
    document = plan.to_dict()
    for stage in document["stages"]:
        if stage["recompute"] == "selective":
            stage["recompute"] = "none"
    return document


def _kind() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _allocated() -> int:
    return torch.cuda.memory_allocated() if _kind() == "cuda" else 0


def _reset() -> None:
    if _kind() == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _synchronised() -> None:
    if _kind() == "cuda":
        torch.cuda.synchronize()


def _peaks() -> dict[str, int]:
    if _kind() != "cuda":
        return {"peak_allocated": 0, "peak_reserved": 0, "used": 0}
    free, total = torch.cuda.mem_get_info()
    return {
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
        "used": total - free,
    }


def _child(sizes: dict[str, Any], setting: Setting, steps: int, file: Path) -> None:
    """One setting in this process; its line goes to `file`."""
    line: dict[str, Any] = {"setting": asdict(setting), "steps": steps}
    try:
        if setting.allocator == "expandable":
            torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        torch.distributed.init_process_group(
            "nccl" if _kind() == "cuda" else "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        torch.manual_seed(0)
        line.update(trained(sizes, setting, steps))
    except torch.OutOfMemoryError as error:
        line.update(out_of_memory=True, message=str(error)[:300], **_peaks())
    except Exception as error:  # One setting that fails must not cost the others.
        line.update(failed=f"{type(error).__name__}: {error}"[:2000])
    _add(file, line)


def _run(sizes: dict[str, Any], setting: Setting, steps: int, file: Path) -> dict[str, Any]:
    """The line that `file` gets of a setting, trained in a fork of this process, which has not touched the device."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if not process:
        _child(sizes, setting, steps, file)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.waitpid(process, 0)
    line: dict[str, Any] = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    if line.get("setting") != asdict(setting):
        line = {"setting": asdict(setting), "failed": "the process died"}
        _add(file, line)
    return line


def _add(file: Path, line: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def facts() -> dict[str, Any]:
    """The device and the software, asked in a process of their own."""
    import subprocess

    question = (
        "import json, torch; p = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None; "
        "free, total = torch.cuda.mem_get_info() if p else (0, 0); "
        "print(json.dumps({'device': p.name if p else 'cpu', 'context': total - free, 'memory': total, "
        "'cuda': torch.version.cuda}))"
    )
    told = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True).stdout
    seen: dict[str, Any] = json.loads(told.splitlines()[-1])
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "cuda": seen.pop("cuda")}
    return {**seen, "date": datetime.date.today().isoformat(), "versions": versions}


def main() -> None:
    """Run the command; settings that the file has are not trained again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_device.train", description=__doc__)
    parser.add_argument("file", type=Path, help="Lines of JSON are added to this file.")
    parser.add_argument("--seconds", type=float, default=1e9, help="No setting is begun later.")
    parser.add_argument("--tiny", action="store_true", help="A model of two small layers: does the script run?")
    given = parser.parse_args()
    started = time.monotonic()
    sizes = dict(MODEL)
    if given.tiny:
        sizes.update(layers=2, hidden=256, ffn=512, heads=4, kv_heads=2, vocab=512)
    done = [json.loads(line) for line in given.file.read_text().splitlines()] if given.file.exists() else []
    done = [line for line in done if "setting" in line and "failed" not in line]
    _add(given.file, facts())
    for ramp in ramps():
        for setting in ramp:
            if time.monotonic() - started > given.seconds:
                return
            line = next((line for line in done if line["setting"] == asdict(setting)), None)
            if line is None:
                line = _run(sizes, setting, 5 if given.tiny else STEPS, given.file)
                middle = statistics.median(line["seconds"]) if "seconds" in line else None
                short = {key: line.get(key) for key in ("peak_allocated", "peak_reserved", "used", "static", "saved")}
                told = f"{setting}: {middle} {short} {line.get('failed', '')}"
                print(f"{time.monotonic() - started:.0f} s: {told}", flush=True)
            if line.get("out_of_memory"):
                break


if __name__ == "__main__":
    main()
