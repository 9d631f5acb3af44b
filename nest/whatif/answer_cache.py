"""Answers kept on disk (`NEST_CACHE`), so that explaining or reporting the same plan again asks nothing twice."""

from collections.abc import Callable
from typing import Any

from nest.io.kept import keep, kept_file, read_kept


def kept(question: tuple[str, int], plans: str, answer: Callable[[], Any]) -> Any:
    """The answer to a question on some plans: the one kept, or a new one, which is kept from now on.

    What is kept is an answer to this very question on these very plans by this very code.

    Args:
        question: a part of an explanation or a report, and the place among its questions.
        plans: what the answer follows from, as text.
        answer: makes the answer.

    Raises:
        InputError: as `answer` does; or the folder that the user names cannot be written to.
    """
    path = kept_file(f"{question} {plans}")
    found = None if path is None else read_kept(path)
    if found is None:
        found = answer()
        if path is not None:
            keep(path, found)
    return found
