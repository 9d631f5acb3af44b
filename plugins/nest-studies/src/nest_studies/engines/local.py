"""Processes of this machine.

`concurrent.futures` would do but for two things: its processes hold both ends of their queue, so that they wait for
ever once the process that started them is killed (CPython 3.11, `concurrent/futures/process.py`, `_process_worker`);
and any of them takes the next item, where neighbours are to go to one.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from queue import Queue
from threading import Thread, current_thread, main_thread
from types import ModuleType
from typing import Any

from attrs import evolve, frozen

from nest.errors import InputError, InternalError
from nest.public.verbs import message


@frozen
class Local:
    """Processes of this machine; one alone is this process itself.

    Attributes:
        jobs: how many at most; None: as many as there are processors that this process may use.
    """

    jobs: int | None = None

    name = "local"
    summary = "processes of this machine"

    def configured(self, jobs: int | None, scheduler: str | None) -> "Local":
        """With so many processes."""
        if scheduler is not None:
            raise InputError("--scheduler needs `--engine dask`.")
        return evolve(self, jobs=jobs)

    @property
    def forks(self) -> bool:
        """True if `beside` forks this process."""
        return can_fork()

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Apply `function` to each item, as they come."""
        jobs = min(self.jobs or processors(), len(items))
        if jobs <= 1:
            yield from map(function, items)
            return
        workers = [_Worker(function) for _ in range(jobs)]
        try:
            yield from _answers(workers, items)
        finally:
            for worker in workers:
                worker.end()

    def beside(
        self, function: Callable[[Any], Any], items: Sequence[Any], forked: Callable[[Any], Any] | None = None
    ) -> Iterator[Any]:
        """As `submit`, with this process among them: it takes items from the front, the others from the back.

        So it goes on with what it has at hand while the others start.

        Args:
            function: answers an item.
            items: the questions.
            forked: does the same in a process forked from this one, where one can be (`can_fork`): it begins with all
                that this one has made so far. None: the others are started anew.
        """
        jobs = min(self.jobs or processors(), len(items))
        left, answers = deque(items), Queue[Any]()
        forks = can_fork()
        workers: list[_Worker] = []
        for _ in range(jobs - 1):
            workers.append(_Worker(forked, workers) if forked and forks else _Worker(function))
        try:
            for worker in workers:
                Thread(target=_fed, args=(worker, left, answers), daemon=True).start()
            for _ in items:
                mine = _taken(left) if answers.empty() else ()
                if mine:
                    yield function(*mine)
                    continue
                answer = answers.get()
                if isinstance(answer, (InputError, InternalError)):
                    raise answer
                yield answer
        finally:
            left.clear()
            for worker in workers:
                worker.end()


def _taken(left: deque[Any]) -> tuple[Any, ...]:
    """The first item, alone; none where there is none."""
    try:
        return (left.popleft(),)
    except IndexError:
        return ()


def _fed(worker: "_Worker", left: deque[Any], answers: "Queue[Any]") -> None:
    """Give a worker the last item as long as there are any, and put what comes of it with the answers."""
    while left:
        try:
            item = left.pop()
        except IndexError:  # Another took it.
            return
        try:
            worker.give(item)
            answers.put(worker.take())
        except Exception as error:  # What is not put there would be waited for.
            known = isinstance(error, (InputError, InternalError))
            answers.put(error if known else InternalError(f"a worker process: {message(error)}"))
            return


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    """Return whether this process may fork: on Linux, if no thread may hold a lock that the fork would keep.

    The thread that draws rich's line is no matter: what is forked draws none. (Libraries of macOS do not bear a fork:
    Python's documentation of `multiprocessing`, "Contexts and start methods".)
    """
    others = (each for each in threading.enumerate() if each is not main_thread())
    return sys.platform == "linux" and all(type(each).__module__.startswith("rich.") for each in others)


def _answers(workers: list["_Worker"], items: Sequence[Any]) -> Iterator[Any]:
    """Each worker walks a stretch of its own; one that is through with it takes the second half of the longest left."""
    count, parts = len(items), len(workers)
    stretches = [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
    by_connection = {worker.connection: index for index, worker in enumerate(workers)}
    busy: set[Connection] = set()

    def next_item(index: int) -> bool:
        if stretches[index][0] == stretches[index][1]:
            longest = max(range(parts), key=lambda each: stretches[each][1] - stretches[each][0])
            first, end = stretches[longest]
            middle = (first + end) // 2
            stretches[longest], stretches[index] = (first, middle), (middle, end)
        first, end = stretches[index]
        if first == end:
            return False
        stretches[index] = (first + 1, end)
        workers[index].give(items[first])
        return True

    for index, worker in enumerate(workers):
        if next_item(index):
            busy.add(worker.connection)
    while busy:
        for connection in wait(list(busy)):
            index = by_connection[connection]  # type: ignore[index]
            result = workers[index].take()
            if not next_item(index):
                busy.discard(workers[index].connection)
            yield result


class _Worker:
    """A process that calls one function with what it is given."""

    def __init__(self, function: Callable[[Any], Any], forked: "Sequence[_Worker] | None" = None) -> None:
        """Start it, forked from this process, where others have been forked before, or anew (None)."""
        context = get_context("spawn") if forked is None else get_context("fork")
        self.connection, other = context.Pipe()
        # What is forked has this process's ends, too: held on to, they hide from it and the others that this one died.
        held = () if forked is None else (self.connection, *(each.connection for each in forked))
        self._process = context.Process(target=_serve, args=(other, function, held), name="nest sweep", daemon=True)
        with _interrupts_ignored(), _script_left_out():
            self._process.start()
        other.close()  # Only the process holds that end, so that its death is noticed.

    def give(self, item: Any) -> None:
        with suppress(BrokenPipeError):  # It has ended, of which `take` tells.
            self.connection.send(item)

    def take(self) -> Any:
        try:
            result, raised = self.connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise InputError(
                f"a worker process ended ({_why(self._process.exitcode)}). Finished points are kept: run the same "
                "sweep again, with fewer --jobs if memory ran out."
            ) from None
        if raised is not None:
            raise InternalError(f"a worker process {raised}")
        return result

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self.connection.close()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Let a process that starts meanwhile ignore Ctrl-C, which reaches all: the one that waits ends the others.

    What is ignored stays so in a new program (POSIX.1-2017, `exec`), and Python leaves it so.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_STARTING = threading.Lock()


@contextmanager
def _script_left_out() -> Iterator[None]:
    """Let a process that starts anew not import the script that runs here, which would begin its work once more.

    All that is sent to it is nest's own. What tells `multiprocessing` to import it is the module (CPython 3.11,
    `multiprocessing/spawn.py`, `get_preparation_data`).
    """
    with _STARTING:
        script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


def _why(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}"


def _serve(connection: Connection, function: Callable[[Any], Any], held: Sequence[Connection]) -> None:
    """Answer until the other end is closed, be it that whoever has started this was killed; `held` is not needed."""
    for each in held:
        each.close()
    with suppress(EOFError, OSError):
        while True:
            item = connection.recv()
            try:
                connection.send((function(item), None))
            except Exception as error:  # Few errors can be sent as they are.
                connection.send((None, f"raised {message(error)}"))
