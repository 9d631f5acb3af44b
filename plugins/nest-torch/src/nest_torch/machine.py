"""The device at hand: its name, its memory, its stopwatch."""

import os
import platform
import re
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from nest.errors import InputError
from nest_torch.timing import CudaStopwatch, HostStopwatch, Stopwatch

FORMATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
"""PyTorch's names of the precisions that are measured; of the 8-bit ones that of forward passes (arXiv 2209.05433)."""

FREE_SHARE = 0.8
"""Share of the free memory that operands may take; allocators need some beside them."""

GPU_FLOPS, HOST_FLOPS = 2e13, 2e9
"""FLOP one run of the default grid may take: 20 ms at 1 PFLOP/s, 20 ms at 100 GFLOP/s."""

HOST_BYTES = 2.0**27
"""Bytes one run of the default grid may need where memory moves at some 10 GB/s: 13 ms."""


@frozen
class Machine:
    """A device that PyTorch can use.

    Attributes:
        device: PyTorch's.
        name: as the driver gives it.
        versions: of the software.
        stopwatch: times runs on it.
        most_flops: FLOP that one run of the default grid may take.
        most_bytes: bytes that one run of the default grid may need.
        memory: bytes that any run may need.
        cuda: whether kernels are enqueued for it (CUDA, ROCm).
    """

    device: Any
    name: str
    versions: dict[str, str]
    stopwatch: Stopwatch
    most_flops: float
    most_bytes: float
    memory: float
    cuda: bool


def machine(asked: str) -> Machine:
    """The device called `asked`: `cpu`, `cuda`, `cuda:1`; empty: a GPU where there is one.

    Raises:
        InputError: there is no such device.
    """
    if device_type(asked) == "cpu":
        return _host()
    device = torch.device(asked or "cuda")
    index = device.index if device.index is not None else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        raise InputError(f"--device {asked}: there are {torch.cuda.device_count()} GPUs, counted from 0.")
    torch.cuda.set_device(index)
    # Single precision is single precision: TF32 would be told as something it is not.
    torch.set_float32_matmul_precision("highest")
    free, _ = torch.cuda.mem_get_info(index)
    return Machine(
        device=torch.device("cuda", index),
        name=torch.cuda.get_device_name(index),
        versions=versions(cuda=True),
        stopwatch=CudaStopwatch(torch.device("cuda", index)),
        most_flops=GPU_FLOPS,
        most_bytes=free * FREE_SHARE,
        memory=free * FREE_SHARE,
        cuda=True,
    )


def device_type(asked: str) -> str:
    """`cpu` or `cuda`, for a device as `machine` takes it, which is left alone.

    Raises:
        InputError: there is no such device.
    """
    asked = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,4})?", asked):
        raise InputError(f"--device must be cpu, cuda or cuda:N, is {asked!r:.40}.")
    if asked != "cpu" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch finds no GPU here. Give --device cpu, or install a build for it.")
    return asked.partition(":")[0]


def versions(cuda: bool) -> dict[str, str]:
    """Versions of PyTorch and, with `cuda`, of what it runs on."""
    found = {"torch": str(torch.__version__), "python": platform.python_version()}
    if cuda:
        if torch.version.cuda:
            found["cuda"] = str(torch.version.cuda)
        if getattr(torch.version, "hip", None):
            found["hip"] = str(torch.version.hip)
        if torch.backends.cudnn.is_available():
            found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def _host() -> Machine:
    threads = torch.get_num_threads()
    return Machine(
        device=torch.device("cpu"),
        name=f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}",
        versions=versions(cuda=False),
        stopwatch=HostStopwatch(),
        most_flops=HOST_FLOPS,
        most_bytes=HOST_BYTES,
        memory=_host_memory() * FREE_SHARE,
        cuda=False,
    )


def _host_memory() -> float:
    """Bytes of memory that nobody uses; all there may be where the system does not say."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _processor() -> str:
    """Name of the processor, as far as the system says."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine() or "processor"
