"""Extension points: hook signatures (`spec`), what plug-in objects offer (`protocols`), the `registry`."""

from nest.hooks.spec import hook

__all__ = ["hook"]
