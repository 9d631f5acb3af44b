"""Study files: a base problem and its variations (FORMATS.md, "A study")."""

from typing import Any

from attrs import field, frozen

from nest.errors import FieldError
from nest.records import Record
from nest.spec.validators import above, each, not_empty, one_of
from nest.units import Seconds


@frozen(eq=False, repr=False)
class Study(Record):
    """A base problem and its variations.

    Attributes:
        nest: version of the format.
        base: path of a problem file, relative to the study's folder.
        vary: values by path of a key of the problem, such as `cluster.levels[1].bandwidth`; the points are their
            product, in the order written, the last key fastest. `null` omits the key.
        points: further points, each with values by path; they follow the product. A key that begins with `label.` names
            a point.
        time_limit: seconds for each point, after which its best plan so far counts, with its bound; None: no limit.
    """

    nest: int = field(validator=one_of((1,)))
    base: str = field(validator=not_empty)
    vary: dict[str, tuple[Any, ...]] = field(factory=dict, validator=each(not_empty))
    points: tuple[dict[str, Any], ...] = ()
    time_limit: Seconds | None = field(default=None, validator=above(0))

    def __attrs_post_init__(self) -> None:
        if not self.vary and not self.points:
            raise FieldError(("vary",), "is missing; give vary, points or both")
