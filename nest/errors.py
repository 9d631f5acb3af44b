"""The errors a user of nest can meet."""

from collections.abc import Iterable


class NestError(Exception):
    """Base of every error nest raises on purpose; its text is one or two plain sentences."""


class InputError(NestError):
    """Something the user wrote cannot be used: the text names the place and the remedy (exit code 2)."""


class InputErrors(InputError):  # noqa: N818 - the plural of InputError
    """Every mistake found in one input, reported together.

    Attributes:
        problems: one sentence or two for each mistake, each naming its place.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class InternalError(NestError):
    """Two parts of nest that must agree did not: a bug in nest, not in the input."""


class FieldError(ValueError):
    """One value of a record is not allowed.

    Attributes:
        place: the field, or a path such as `training.micro_batch[1]` relative to the record.
        sentence: what is wrong, to follow the place: `must be at least 1, is 0`.
    """

    def __init__(self, place: str, sentence: str) -> None:
        self.place = place
        self.sentence = sentence
        super().__init__(f"{place} {sentence}")
