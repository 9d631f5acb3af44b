"""What the links of a network carry, in the model of a case placed on it (PROBLEM.md section 1)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

    from nest.instance import NetworkModel
    from nest.solve.cpsat.cuts import Floats
    from nest.solve.cpsat.scaling import Scale

    Term = LinearExpr | int


@define(eq=False)
class LinkModel:
    """The links of a network in a CP-SAT model.

    Attributes:
        model: of OR-Tools.
        network: the network.
        scale: how seconds become integers.
        stages: how many.
        largest: ticks that no stage takes longer than.
    """

    model: CpModel
    network: NetworkModel
    scale: Scale
    stages: int
    largest: int
    _carried: dict[int, list[IntVar]] = field(factory=lambda: defaultdict(list))
    _used: dict[tuple[int, int], IntVar] = field(factory=dict)
    _shared: frozenset[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        devices = range(len(self.network.names))
        crossed: dict[int, int] = defaultdict(int)
        for one in devices:
            for two in devices:
                for link in self.network.path(one, two).tolist() if one != two else ():
                    crossed[link] += 1
        limited = numpy.isfinite(self.network.link_bandwidth)
        # A link that only two devices use carries one message at a time.
        self._shared = frozenset(link for link, count in crossed.items() if count > 1 and limited[link])

    def add_messages(
        self, boundary: int, here: Sequence[IntVar], there: Sequence[IntVar], cuts: Sequence[IntVar], sizes: Floats
    ) -> None:
        """Messages between a rank of stage `boundary` and its counterpart behind: activations, and gradients back.

        Args:
            boundary: the stage in front.
            here: for each device whether the rank lies there.
            there: the same of its counterpart.
            cuts: for each cut whether it is the boundary's.
            sizes: bytes that cross each of them.
        """
        sent = [literal for literal, size in zip(cuts, sizes.tolist(), strict=True) if size]
        anything: Term = 1 if len(sent) == len(cuts) else sum(sent)
        for one, first in enumerate(here):
            for two, second in enumerate(there):
                links = self._links(one, two) + self._links(two, one) if one != two else []
                if not links:
                    continue
                both = self.model.new_bool_var("")
                self.model.add_bool_or([first.negated(), second.negated(), both])
                self._load(links, both, cuts, sizes)
                self._mark((boundary, boundary + 1), links, both, anything)

    def add_ring(
        self, stage: int, chosen: IntVar, shares: dict[int, float], choices: Sequence[IntVar], sizes: Floats
    ) -> None:
        """A collective in every micro-batch of a stage.

        Args:
            stage: the stage.
            chosen: whether it runs on this ring.
            shares: what each link carries of its bytes.
            choices: for each choice of the stage whether it is taken.
            sizes: bytes of each.
        """
        sent = [literal for literal, size in zip(choices, sizes.tolist(), strict=True) if size]
        by_share: dict[float, list[int]] = defaultdict(list)
        for link, share in shares.items():
            if link in self._shared:
                by_share[share].append(link)
        for share, links in by_share.items():
            self._load(links, chosen, choices, sizes * share)
            self._mark((stage,), links, chosen, sum(sent))

    def limit(self, taken: Sequence[IntVar]) -> None:
        """No stage takes less than what crosses a link that it uses."""
        for (stage, link), used in self._used.items():
            self.model.add(taken[stage] >= sum(self._carried[link])).only_enforce_if(used)

    def _links(self, one: int, two: int) -> list[int]:
        return [link for link in self.network.path(one, two).tolist() if link in self._shared]

    def _load(self, links: Sequence[int], when: IntVar, literals: Sequence[IntVar], sizes: Floats) -> None:
        """Add to the links, in ticks, the bytes of the literal that holds."""
        flows: dict[float, IntVar] = {}
        for link in links:
            rate = float(self.network.link_bandwidth[link])
            if rate not in flows:
                flows[rate] = self.model.new_int_var(0, self.largest, "")
                ticks = [self.scale.ticks(size / rate) for size in sizes.tolist()]
                load = sum(count * literal for count, literal in zip(ticks, literals, strict=True) if count)
                self.model.add(flows[rate] >= load).only_enforce_if(when)
            self._carried[link].append(flows[rate])

    def _mark(self, stages: Sequence[int], links: Sequence[int], when: IntVar, anything: Term) -> None:
        """Stages use links where something is sent."""
        for stage in stages:
            for link in links:
                if (stage, link) not in self._used:
                    self._used[stage, link] = self.model.new_bool_var("")
                self.model.add(self._used[stage, link] >= when + anything - 1)
