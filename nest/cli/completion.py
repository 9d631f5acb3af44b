"""What the shell completes besides commands, options and files: names that nest knows."""

from collections.abc import Iterable


def exporters(incomplete: str) -> list[str]:
    """Names of exporters."""
    from nest.hooks.registry import registry

    return _beginning(incomplete, registry().exporters())


def targets(incomplete: str) -> list[str]:
    """What `search.target` may name: exporters that say what their framework can run."""
    from nest.hooks.registry import registry

    able = (name for name, each in registry().exporters().items() if hasattr(each, "limits"))
    return _beginning(incomplete, [*able, "none"])


def planners(incomplete: str) -> list[str]:
    """Names of planners."""
    from nest.hooks.registry import registry

    return _beginning(incomplete, registry().planners())


def devices(incomplete: str) -> list[str]:
    """Names of devices."""
    from nest.catalogue import devices as known

    return _beginning(incomplete, known())


def clusters(incomplete: str) -> list[str]:
    """Names of clusters."""
    from nest.catalogue import clusters as known

    return _beginning(incomplete, known())


def models(incomplete: str) -> list[str]:
    """Names of models."""
    from nest.catalogue import library_models

    return _beginning(incomplete, library_models())


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
