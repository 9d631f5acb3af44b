"""The errors a user of nest can meet."""

from collections.abc import Iterable, Mapping


class NestError(Exception):
    """Base of every error nest raises on purpose; its text is one or two plain sentences."""


class InputError(NestError):
    """Unusable input: the text names the place and the remedy (exit code 2)."""


class InputErrors(InputError):  # noqa: N818 - the plural of InputError
    """Every mistake found in one input, reported together.

    Attributes:
        problems: one sentence or two for each mistake, each naming its place.
        others: by sentence, the path of a second place that it names, if any.
    """

    def __init__(self, problems: Iterable[str], others: Mapping[str, str] | None = None) -> None:
        self.problems = tuple(problems)
        self.others = dict(others or {})
        super().__init__("\n".join(self.problems))


class PlacedErrors(InputErrors):
    """Mistakes whose sentences already name their file."""


class NoPlanYet(NestError):  # noqa: N818 - says what there is
    """A search ended without a plan and without proof that there is none (exit code 1).

    Attributes:
        stopped: by the user, not the time limit.
    """

    def __init__(self, text: str, stopped: bool = False) -> None:
        self.stopped = stopped
        super().__init__(text)


class InternalError(NestError):
    """Two parts of nest that must agree did not: a bug in nest, not in the input."""


class NotKept(UserWarning):
    """An answer could not be kept for the next run; the text says where and why."""


Steps = tuple[str | int, ...]
"""A path: keys of mappings and indices of lists."""


def dotted(steps: Steps) -> str:
    """Format a path: `cluster.levels[1].fanout`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class FieldErrors(ValueError):  # noqa: N818 - the plural of FieldError
    """Invalid values of a record, or of a text.

    Attributes:
        errors: one for each value.
    """

    def __init__(self, errors: "Iterable[FieldError]") -> None:
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))

    def below(self, *steps: str | int) -> "list[FieldError]":
        """Return the errors with `steps` before their paths."""
        return [FieldError((*steps, *error.steps), error.sentence) for error in self.errors]


class FieldError(FieldErrors):
    """One invalid value.

    Attributes:
        steps: the path to it, relative to the record.
        sentence: the mistake, to follow the path: `must be at least 1, is 0`.
    """

    def __init__(self, steps: Steps, sentence: str) -> None:
        self.steps = steps
        self.sentence = sentence
        super().__init__([self])

    def __str__(self) -> str:
        return f"{dotted(self.steps)} {self.sentence}".lstrip()
