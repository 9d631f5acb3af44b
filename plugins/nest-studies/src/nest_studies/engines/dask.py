"""Dask: workers on this machine, or those of a scheduler (https://distributed.dask.org, release 2026.8.0)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from attrs import evolve, frozen

from nest.errors import InputError


@frozen
class Dask:
    """The workers of a Dask scheduler; without one, a cluster of this machine's processors that ends with the sweep.

    Attributes:
        jobs: worker processes on this machine; None: as Dask has it.
        scheduler: address of a scheduler, such as `tcp://10.0.0.1:8786`; None: workers on this machine.
    """

    jobs: int | None = None
    scheduler: str | None = None

    name = "dask"
    summary = "the workers of a Dask scheduler, on any number of machines"

    def configured(self, jobs: int | None, scheduler: str | None) -> "Dask":
        """With so many workers on this machine, or those of the scheduler at an address."""
        if jobs is not None and scheduler is not None:
            raise InputError("--jobs: the scheduler has its own workers; use --scheduler or --jobs.")
        return evolve(self, jobs=jobs, scheduler=scheduler)

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Apply `function` to each item, as they come; the items of a worker that ended go to another."""
        try:
            from distributed import Client, KilledWorker, LocalCluster, as_completed
        except ImportError:
            raise InputError("--engine dask needs Dask; install it with `pip install 'nest-planner[dask]'`.") from None
        with ExitStack() as open_until_done:
            try:
                where = self.scheduler or open_until_done.enter_context(
                    LocalCluster(n_workers=self.jobs, threads_per_worker=1)
                )
                client = open_until_done.enter_context(Client(where))
            except (OSError, ValueError) as error:
                raise InputError(
                    f"--scheduler {self.scheduler}: no scheduler answers there: {' '.join(str(error).split())}."
                ) from None
            futures = as_completed(client.map(function, items, pure=False))
            try:
                for future in futures:
                    yield future.result()
                    future.release()  # Nobody asks for it again: the scheduler need not keep it.
            except KilledWorker as error:
                raise InputError(
                    f"--engine dask: {' '.join(str(error).split())} Finished points are kept: run the same sweep "
                    "again, with more memory per worker."
                ) from None
