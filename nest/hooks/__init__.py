"""Extension points: hook signatures (`spec`), what plug-in objects offer (`protocols`), the `registry`.

Belongs here: signatures, protocols, checks of answers, the registry. Does not: any registered object.
"""

from nest.hooks.spec import VERSION, hook

__all__ = ["VERSION", "hook"]
