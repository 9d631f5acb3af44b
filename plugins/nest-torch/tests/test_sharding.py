"""Gradients that ranks of data parallelism take the mean of, where some ranks have none."""

import datetime
import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")
from nest_torch.parallel import sharding  # noqa: E402

SECONDS = 60


def _rank(rank: int, folder: Path, answers: Any) -> None:
    torch.set_num_threads(1)
    wait = datetime.timedelta(seconds=SECONDS)
    meeting = (folder / "meeting").as_uri()
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=wait)
    data = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    used, here, nowhere, frozen, row = (torch.nn.Parameter(torch.zeros(size)) for size in ((), (), (), (), (2,)))
    frozen.requires_grad_(False)
    used.grad = torch.tensor(1.0 + rank)
    if rank == 0:
        here.grad = torch.tensor(3.0)
    sharding.complete_gradients([used, here, nowhere, frozen, row], SimpleNamespace(data=data))
    answers.put([None if each.grad is None else each.grad.tolist() for each in (used, here, nowhere, frozen, row)])
    torch.distributed.barrier()


def test_a_number_that_one_rank_does_not_use_has_the_mean_gradient_on_all(tmp_path: Path) -> None:
    forks = multiprocessing.get_context("fork")
    answers = forks.SimpleQueue()
    ranks = [forks.Process(target=_rank, args=(rank, tmp_path, answers), daemon=True) for rank in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(SECONDS)
        assert each.exitcode == 0, "a rank waits for the other"
    assert [answers.get() for _ in ranks] == [[1.5, 1.5, None, None, None]] * 2
