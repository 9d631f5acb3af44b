"""Extension points: hook signatures (`spec`), what plug-in objects offer (`protocols`), the `registry`."""

from nest.hooks.spec import VERSION, hook

__all__ = ["VERSION", "hook"]
