"""How long a search may take, and on how many threads."""

from nest.errors import InputError


def check_effort(time_limit: float | None, workers: int = 1) -> None:
    """Refuse what is no time, or no number of threads.

    Args:
        time_limit: seconds; None: as long as it takes.
        workers: threads.

    Raises:
        InputError: it is none; the text says what it must be.
    """
    if time_limit is not None:
        if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)):
            raise InputError(f"the time limit must be a positive number of seconds, is {time_limit!r}.")
        if not 0 < time_limit < float("inf"):
            raise InputError(f"the time limit must be a positive number of seconds, is {time_limit:g}.")
    if workers < 1:
        raise InputError(f"the number of workers must be at least 1, is {workers}.")
