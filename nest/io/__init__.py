"""Text to records and back: YAML, JSON and TOML read alike, every mistake with its place.

Belongs here: formats, places of mistakes, whole writes. Does not: what keys mean.

cattrs and ruamel.yaml load when a function needs them, not with this package.
"""

from nest.io.reading import (
    placed,
    read,
    read_mapping_text,
    read_records,
    read_text,
    steps_of,
    structure,
    structure_source,
)
from nest.io.source import is_file_name, read_mapping, read_value
from nest.io.structuring import unstructure
from nest.io.writing import (
    check_writable,
    replacing,
    there_is,
    toml_text,
    write_files,
    write_folder,
    write_text,
    yaml_text,
)

KEPT_IN = "NEST_CACHE"
"""Environment variable with the folder of kept answers; Python keeps none if it is unset or empty."""

KEPT_NOWHERE = "off"  # Its value that keeps nothing.
KEPT_WITH_CACHES = "default"  # Its value for the user's cache folder, the command's default.

__all__ = [
    "KEPT_IN", "KEPT_NOWHERE", "KEPT_WITH_CACHES", "check_writable", "is_file_name", "placed", "read",
    "read_mapping", "read_mapping_text", "read_records", "read_text", "read_value", "replacing", "steps_of",
    "structure", "structure_source", "there_is", "toml_text", "unstructure", "write_files", "write_folder",
    "write_text", "yaml_text",
]  # fmt: skip
