"""The input of `nest solve` (FORMATS.md, "Problem")."""

from typing import Any

from attrs import field, frozen

from nest.errors import FieldError
from nest.spec.cluster import ClusterSpec
from nest.spec.fixed import Fixed
from nest.spec.model import TransformerSpec
from nest.spec.profile import ProfileSpec
from nest.spec.training import Training
from nest.spec.validators import each, not_empty, one_of

RANK_ORDERS = ("pp-inner", "dp-inner")
RECOMPUTE_MODES = ("none", "selective", "full")


@frozen
class Search:
    """What the search may choose from.

    Attributes:
        rank_order: rank orders (PROBLEM.md section 3).
        zero: ZeRO stages.
        recompute: names of recompute modes; None: all a candidate has.
        mixed: let stages of one plan use different candidates.
    """

    rank_order: tuple[str, ...] = field(
        default=RANK_ORDERS,
        validator=[not_empty, each(one_of(RANK_ORDERS))],
    )
    zero: tuple[int, ...] = field(
        default=(0, 1, 2, 3),
        validator=[not_empty, each(one_of((0, 1, 2, 3)))],
    )
    recompute: tuple[str, ...] | None = field(default=None, validator=not_empty)
    mixed: bool = False


@frozen
class Problem:
    """A model, a cluster and what may be chosen.

    Attributes:
        nest: version of the format.
        training: how the model is trained.
        cluster: the machines.
        model: a path or a name `nest models` lists, a `TransformerSpec`, or the content of a `config.json`
            (a mapping with `model_type`).
        profile: candidates as numbers, or the path of a file of them; in place of `model`.
        strategies: degrees each registered strategy may use, by name; a strategy left out may use all
            admissible ones.
        search: what the search may choose from.
        constraints: expressions every plan must satisfy.
        fixed: decisions already taken.
        costs: name of the cost model; None: the built-in one.
        collectives: name of the collective model; None: the built-in one.
    """

    nest: int = field(validator=one_of((1,)))
    training: Training
    cluster: ClusterSpec
    model: str | TransformerSpec | dict[str, Any] | None = None
    profile: str | ProfileSpec | None = None
    strategies: dict[str, tuple[int | bool, ...]] = field(factory=dict)
    search: Search = Search()
    constraints: tuple[str, ...] = ()
    fixed: Fixed | None = None
    costs: str | None = None
    collectives: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.model is None) == (self.profile is None):
            told = "is missing; give model or profile" if self.model is None else "and profile cannot both be given"
            raise FieldError("model", told)
        if self.model is not None and self.training.sequence_length is None:
            raise FieldError("training.sequence_length", "is missing; a model needs it")
        for index, size in enumerate(self.training.micro_batch or ()):
            if size > self.training.global_batch:
                raise FieldError(
                    f"training.micro_batch[{index}]",
                    f"is {size}, above the global batch of {self.training.global_batch}",
                )

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain mappings, lists and numbers, as FORMATS.md writes it."""
        from nest.files import unstructure

        written: dict[str, Any] = unstructure(self)
        return written
