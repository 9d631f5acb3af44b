"""State of an optimizer in a checkpoint, on one rank: what `save` writes `load` reads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from nest.errors import InputError  # noqa: E402
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


def _without(folder: Path) -> None:
    next(folder.glob("*.distcp")).unlink()


def _short(folder: Path) -> None:
    path = next(folder.glob("*.distcp"))
    path.write_bytes(path.read_bytes()[:-100])


def _garbled(folder: Path) -> None:
    path = next(folder.glob("*.distcp"))
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing written": (lambda folder: (folder / ".metadata").unlink(), "has no .metadata"),
    "metadata cut short": (
        lambda folder: (folder / ".metadata").write_bytes((folder / ".metadata").read_bytes()[:50]),
        r".metadata is damaged \(\w+\); load another checkpoint",
    ),
    "no file": (_without, r"__0_0.distcp is missing; copy it from where it was written"),
    "file cut short": (_short, r"__0_0.distcp is cut short, \d+ bytes were written; copy it again"),
    "other bytes": (_garbled, r"are damaged: .* Copy them again."),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    damage, told = DAMAGES[name]
    checkpoints.save([torch.nn.Linear(64, 64)], str(tmp_path))
    damage(tmp_path)
    with pytest.raises(InputError, match=told):
        checkpoints.load([torch.nn.Linear(64, 64)], str(tmp_path))


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (torch.nn.Linear(4, 3), r"weight is \[2, 4\] in the checkpoint, but \[3, 4\] in the module; make"),
        (torch.nn.Sequential(torch.nn.Linear(4, 2)), "has no '0.weight'; give the folder of .* of this module"),
    ],
)
def test_a_checkpoint_of_another_module_is_refused(tmp_path: Path, module: Any, told: str) -> None:
    checkpoints.save([torch.nn.Linear(4, 2)], str(tmp_path))
    before = [each.clone() for each in module.parameters()]
    with pytest.raises(InputError, match=told):
        checkpoints.load([module], str(tmp_path))
    assert all(torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))
