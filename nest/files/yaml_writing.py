"""Mappings as YAML text."""

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

WIDTH = 4096
"""Columns before a line is broken: never, in files that people look for keys in."""

PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z_][a-z0-9_./-]*", re.IGNORECASE)
"""Text that neither YAML 1.1 (https://yaml.org/type/bool.html) nor 1.2 reads as something else; all other is quoted."""


class _Representer(SafeRepresenter):
    """Quotes whatever some reader takes for a number, truth value, date or null."""

    def represent_str(self, text: str) -> ScalarNode:
        style = None if PLAIN.fullmatch(text) else '"'
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Representer.add_representer(str, _Representer.represent_str)


def yaml_text(mapping: Mapping[str, Any]) -> str:
    """`mapping` in block style, in the order given."""
    writer = YAML(typ="safe", pure=True)
    writer.Representer = _Representer
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel.yaml types it as None
    writer.width = WIDTH
    writer.allow_unicode = True
    stream = StringIO()
    writer.dump(dict(mapping), stream)
    return stream.getvalue()
