"""Exporters of frameworks that do not exist, for tests of limits."""

from collections.abc import Mapping
from typing import Any

from nest.deployment import Limits
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.spec import PlanDocument


class Framework:
    """An exporter that writes one line, of a framework with limits; None: it does not say."""

    def __init__(self, name: str, limits: Limits | None) -> None:
        self.name = name
        if limits is not None:
            self.limits = lambda problem: limits

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        return {f"{self.name}.txt": f"{plan.batch_time}\n"}


class Plugin:
    """What a distribution with such exporters would bring."""

    def __init__(self, frameworks: Mapping[str, Limits | None]) -> None:
        self.frameworks = frameworks

    @hook
    def nest_exporters(self) -> list[Any]:
        return [Framework(name, limits) for name, limits in self.frameworks.items()]


def with_frameworks(**frameworks: Limits | None) -> Registry:
    """The registry, with exporters of frameworks by name."""
    return registry([Plugin(frameworks)])
