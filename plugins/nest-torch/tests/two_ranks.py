"""One of two ranks that train a small Llama compiled, under autocast, and with FSDP's number formats."""

import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy

import modules
import nest_torch

STEPS = 3
NARROW = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
TOKENS = {"tokens": torch.zeros(1, 16, dtype=torch.long)}


def trained(plan: str, autocast: bool = False, **options: object) -> dict[str, object]:
    """Losses of a few steps, and the formats of parameters and gradients."""
    torch.manual_seed(0)
    parallel = nest_torch.apply(modules.Llama(layers=2), plan, example_inputs=TOKENS, **options)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-3)
    torch.manual_seed(parallel.data_rank)
    tokens = torch.randint(0, 100, (parallel.batch, 17))
    losses = []
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            losses.append(float(parallel.step({"tokens": tokens[:, :-1]}, tokens[:, 1:])))
        grads = {str(each.grad.dtype) for each in parallel.parameters()}
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "formats": sorted({str(each.dtype) for each in parallel.parameters()} | grads)}


def main() -> None:
    """Train by the plan of the file, in each way; the first rank prints what came of it."""
    dist.init_process_group("gloo")
    plan = sys.argv[1]
    found = {
        "plain": trained(plan),
        **({"compiled": trained(plan, compiled={"backend": "aot_eager"})} if "compiled" in sys.argv else {}),
        "autocast": trained(plan, autocast=True),
        "policy": trained(plan, policy=NARROW),
    }
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


main()
