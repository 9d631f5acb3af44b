"""State of an optimizer in a checkpoint, on one rank: what `save` writes `load` reads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from nest_torch.parallel import checkpoints  # noqa: E402


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "without state": lambda module: torch.optim.SGD(module.parameters(), lr=0.1),
    "momentum": lambda module: torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
    "steps": lambda module: torch.optim.AdamW(module.parameters(), lr=0.1),
    "a part": lambda module: torch.optim.AdamW([module.bias], lr=0.1),
}


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_read_back(tmp_path: Path, name: str, steps: int) -> None:
    torch.manual_seed(0)
    modules = [torch.nn.Linear(4, 2, dtype=torch.bfloat16) for _ in range(2)]
    first, second = map(OPTIMIZERS[name], modules)
    for _ in range(steps):
        modules[0](torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
        first.step()
    for state in first.state.values():
        state["master"] = torch.full((2,), 1.00001)  # In single precision beside weights in bf16.
    checkpoints.save(modules[:1], str(tmp_path), first)
    checkpoints.load(modules[1:], str(tmp_path), second)
    torch.testing.assert_close(second.state_dict(), first.state_dict(), rtol=0, atol=0)
