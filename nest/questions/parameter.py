"""A number of a problem that can be varied."""

from collections.abc import Callable
from math import isfinite

from attrs import field, frozen

from nest.errors import FieldError, FieldErrors, InputError
from nest.spec import Problem


@frozen
class Parameter:
    """A number of a problem that can be varied, all else as it is.

    Attributes:
        name: what tables call it: `bandwidth of rack`, `memory`, `global batch`.
        value: what the problem has.
        unit: SI unit, or what is counted: `bytes/s`, `bytes`, `FLOP/s`, `samples`, `devices`.
        change: the problem with another value.
        multiple_of: values are whole multiples of it; 0: any above 0.
        at_least: values are above it.
    """

    name: str
    value: float
    unit: str
    change: Callable[[Problem, float], Problem] = field(eq=False, repr=False)
    multiple_of: int = 0
    at_least: float = 0.0

    def allows(self, value: float) -> bool:
        """Whether the problem can have this value."""
        whole = not self.multiple_of or value % self.multiple_of == 0
        return isfinite(value) and value > self.at_least and whole

    def changed(self, problem: Problem, value: float) -> Problem:
        """The same problem with that value.

        Args:
            problem: self-contained: the one that the parameter is of, perhaps with other parameters changed.
            value: in the unit of the parameter.

        Raises:
            InputError: no such problem can be.
        """
        if not self.allows(value):
            kind = f"a multiple of {self.multiple_of}" if self.multiple_of else "a finite number"
            raise InputError(f"{self.name} must be {kind} above {self.at_least:g}, is {value:g}.")
        try:
            return self.change(problem, value)
        except (FieldError, FieldErrors) as error:
            raise InputError(f"{error}.") from None
