"""Processes and clusters that answer besides this process."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nest.catalogue import unknown_name
from nest.errors import InputError
from nest.hooks.loader import only_own
from nest.hooks.protocols import Engine
from nest.hooks.registry import Registry, registry

if TYPE_CHECKING:
    from nest_cpsat.open_cases import Beside


def processes(jobs: int | None, known: Registry) -> Engine | None:
    """Processes of this machine that answer as `known` does; None: one alone, or it has more than what is installed.

    Raises:
        InputError: that is no number of processes.
    """
    if jobs == 1 or known is not registry(strict=known.strict):
        return None
    return engine_called("local", jobs, None, known)


def forked_processes(jobs: int | None, known: Registry) -> "Beside | None":
    """`processes` forked from this one, for arguments that cannot be pickled; None with plug-ins of others.

    If this process cannot be forked when they are called, it answers alone.

    Raises:
        InputError: that is no number of processes.
    """
    engine: Any = processes(jobs, known)
    if engine is None or not only_own(known.installed()) or not hasattr(engine, "forks"):
        return None

    def beside(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        return iter(engine.beside(function, items, function) if engine.forks else map(function, items))

    return beside


def engine_called(name: str, jobs: int | None, scheduler: str | None, known: Registry) -> Engine:
    """Engine of this name, with so many workers or those of a scheduler.

    Raises:
        InputError: there is none, or it takes no such thing.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs is {jobs}; it must be at least 1.")
    if name not in known.engines():
        raise unknown_name("--engine", "engine", name, known.engines())
    engine: Engine = known.unguarded("engines", name)  # It runs for hours, which no guard would let it.
    if jobs is None and scheduler is None:
        return engine
    if not hasattr(engine, "configured"):
        raise InputError(f"--engine {name} takes neither --jobs nor --scheduler.")
    configured: Engine = engine.configured(jobs, scheduler)
    return configured
