"""Answers kept on disk (`NEST_CACHE`), so that explaining or reporting the same plan again asks nothing twice."""

from collections.abc import Callable
from json import dumps
from typing import Any

from nest.hooks.loader import only_own
from nest.io.kept import keep, kept_file, read_kept
from nest.spec import PlanDocument


def kept(
    question: tuple[str, int],
    plans: tuple[PlanDocument, ...],
    time_limit: float | None,
    versions: dict[str, str],
    answer: Callable[[], Any],
) -> Any:
    """The answer to a question on some plans: the one kept, or a new one, which is kept from now on.

    What is kept is an answer to this very question on these very plans by this very code. Where plug-ins of others take
    part, whose code is not looked at, and with a time limit, whose answers hang on the machine, nothing is kept.

    Args:
        question: a part of an explanation or a report, and the place among its questions.
        plans: what the answer follows from.
        time_limit: seconds for each search; None: as long as it takes.
        versions: what is installed, by distribution.
        answer: makes the answer.

    Raises:
        InputError: as `answer` does; or the folder cannot be written to.
    """
    if time_limit is not None or not only_own(versions):
        return answer()
    path = kept_file(dumps([question, *(plan.to_dict() for plan in plans)], sort_keys=True))
    found = None if path is None else read_kept(path)
    if found is None:
        found = answer()
        if path is not None:
            keep(path, found)
    return found
