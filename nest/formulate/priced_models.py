"""Models priced before: problems with equal prices of layers share candidates."""

from collections.abc import Callable
from math import inf

from attrs import asdict, define, field, frozen

from nest.formulate.formulation import Formulation
from nest.formulate.options import Options
from nest.hooks.calls import Guarded
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.spec import DeviceSpec

MOST = 4  # Models kept: `nest explain` asks about one with many answers, and about others at bandwidths used once.


@frozen
class PricingKey:
    """Key of the costs of a model's layers, compared with `==`."""

    model: tuple[object, ...]  # The model, its training and its cost models.
    blocks: tuple[object, ...]  # Micro-batches, strategies and decisions.
    cluster: Cluster
    device: DeviceSpec | None  # The accelerator; None: the problem names none.
    builtin: bool  # Only nest's own strategies and cost models read it.

    def is_repriced(self, other: "PricingKey") -> bool:
        """True if graphs of `other` serve this one, on a network of as many levels; missing blocks are made.

        Built-in strategies only read which blocks a cluster admits.
        """
        if not self.builtin or self.device is None or other.device is None or self.model != other.model:
            return False
        return len(self.cluster.levels) == len(other.cluster.levels)


@define(eq=False, repr=False)
class PricedModels:
    """Recently used models priced with one registry.

    Attributes:
        most: number kept.
        begun: results of an earlier run were looked up.
    """

    most: int = MOST
    begun: bool = False
    _known: list[tuple[PricingKey, Formulation]] = field(factory=list, init=False)
    _of_few: list[tuple[PricingKey, Formulation]] = field(factory=list, init=False)

    def know(self, key: PricingKey, formulation: Formulation) -> None:
        """Keep a model priced elsewhere."""
        self._known.append((key, formulation))

    def of(
        self,
        key: PricingKey,
        price: Callable[[], Formulation],
        again: Callable[[Formulation, bool, Formulation | None], Formulation],
        *,
        keep: bool = True,
        up_to: float = inf,
        computed: float = 0.0,
    ) -> Formulation:
        """The model priced with this key, earlier or now; kept unless time ran out.

        Args:
            price: prices it from scratch.
            again: reprices what depends on the network, the number of devices, the device or, if told so, the blocks;
                gets the earlier prices of few candidates with this key.
            keep: `again` prices all of it, which is worth keeping.
            up_to: device seconds per sample to which it must be complete; slower candidates are dropped.
            computed: same for compute alone.
        """
        found = next((each for each in self._known if each[0] == key), None)
        if found is None:
            alike = self._most_alike(key)
            if alike is not None and not keep:
                few = next((each[1] for each in self._of_few if each[0] == key), None)
                of_few = again(*alike, few)
                self._of_few = [*(each for each in self._of_few if each[1] is not few), (key, of_few)][-self.most :]
                return of_few
            # Where few of many candidates were priced, as few are wanted now: `again` would price all.
            found = key, price() if alike is None or alike[0].bounded is not None else again(*alike, None)
        else:
            self._known.remove(found)
        its, wanted = found[1], found[1]
        if its.bounded is not None and keep:
            wanted = its.bounded.up_to(up_to, computed)
            reach = max(its.complete_to, up_to), max(its.computed_to, computed)
            if reach != (its.complete_to, its.computed_to):
                found = key, its.bounded.up_to(*reach)
        if found[1].complete_to:
            self._known.append(found)
            del self._known[: -self.most]
        return wanted

    def _most_alike(self, key: PricingKey) -> tuple[Formulation, bool] | None:
        """Best match for a key, marked as used: equal blocks, device and number of devices, most blocks; or None.

        Also tells whether its blocks differ; few nodes may have few of them.
        """
        alike = [each for each in reversed(self._known) if key.is_repriced(each[0])]
        if not alike:
            return None
        best = max(
            alike,
            key=lambda each: (
                each[0].blocks == key.blocks,
                each[0].device == key.device,
                # On as many devices a cluster admits the same blocks: none is sharded again.
                each[0].cluster.capacities == key.cluster.capacities,
                len(each[1].candidates),
            ),
        )
        self._known.remove(best)
        self._known.append(best)
        return best[1], best[0].blocks != key.blocks


def pricing_key(options: Options, registry: Registry, cluster: Cluster, device: DeviceSpec | None) -> PricingKey:
    """Key of the costs of a model's layers."""
    models = (registry.cost_models(), registry.layer_times(), registry.collective_models())
    read = (registry.model_importers(), registry.strategies(), *models)
    pricing = (each for registered in read for each in registered.values())
    # Built-ins read nothing of it, nor how much memory there is; plug-ins, which are guarded, may.
    builtin = not any(isinstance(each, Guarded) for each in pricing)
    training = options.training.of_layers if builtin else asdict(options.training, recurse=False)
    if builtin:
        cluster = cluster.without_memory()
    model = (
        options.model,
        training,
        (options.search.granularity, options.search.mixed),
        (options.costs, options.layer_times),
        options.collectives,
    )
    blocks = (options.micro_batches, options.listed, options.fixed.values)
    return PricingKey(model, blocks, cluster, device, builtin)
