"""Text to records and back: YAML, JSON and TOML read alike, every mistake with its place.

Heavy libraries load when a function is called, not when this module is.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from nest.files.source import Source

from nest.errors import InputError, PlacedErrors

T = TypeVar("T")

__all__ = [
    "check_writable",
    "placed",
    "read",
    "read_mapping",
    "read_mapping_text",
    "read_records",
    "read_text",
    "read_value",
    "structure",
    "there_is",
    "toml_text",
    "unstructure",
    "write_files",
    "write_folder",
    "write_text",
    "yaml_text",
]


def read(path: Path, cls: type[T]) -> T:
    """The record of class `cls` that the file at `path` holds.

    Raises:
        InputErrors: every mistake found, each with file, line, path and remedy.
    """
    return structure_source(read_mapping(path), cls)


def read_text(text: str, cls: type[T], name: str) -> T:
    """The record of class `cls` that `text` holds; `name` stands for the file in messages and gives the format.

    Raises:
        InputErrors: every mistake found.
    """
    from nest.files.source import parse

    return structure_source(parse(text, name), cls)


def read_mapping(path: Path, listed: str = "") -> "Source":
    """The file at `path` as a mapping that remembers where things were written.

    Args:
        path: of the file.
        listed: the key under which a list at its top is returned; empty: there must be a mapping.

    Raises:
        InputError: the file cannot be read or is not YAML, JSON or TOML with a mapping at its top.
    """
    from nest.files.source import read_source

    return read_source(Path(path), listed)


def read_mapping_text(text: str, name: str) -> dict[str, Any]:
    """What `text` says, as a mapping; `name` stands for the file in messages, and its suffix gives the format.

    Raises:
        InputError: it is not YAML, JSON or TOML with a mapping at its top.
    """
    from nest.files.source import parse

    return parse(text, name).mapping


def read_records(path: Path, class_of: Callable[[Mapping[str, Any]], Any]) -> tuple[Any, ...]:
    """The records in a file of JSON lines, one a line; `class_of` tells the class of each from its keys and values.

    Raises:
        InputErrors: every mistake found, each with file, line, path and remedy.
    """
    from nest.files.lines import read_records

    return read_records(Path(path), class_of)


def structure(mapping: Mapping[str, Any], cls: type[T]) -> T:
    """The record of class `cls` that `mapping` describes.

    Raises:
        InputErrors: every mistake found, each with its path.
    """
    from nest.files.source import Mistake, Source
    from nest.files.survey import survey

    source = Source("", "", "", dict(mapping))
    strange = survey(source.mapping, ())
    if strange:
        raise source.errors(Mistake(*row) for row in strange)
    return structure_source(source, cls)


def structure_source(source: "Source", cls: type[T]) -> T:
    """The record of class `cls` that `source` holds.

    Raises:
        InputErrors: every mistake found, each with its place in the source.
    """
    from nest.files.structuring import Mistakes, converter

    try:
        return converter().structure(source.mapping, cls)
    except Mistakes as mistakes:
        raise source.errors(mistakes.found) from None


def placed(path: Path, error: InputError, below: str = "") -> InputError:
    """`error`, found after the file at `path` was read, with the file and the line of what each sentence begins with.

    An error that names its file already stays as it is.

    Args:
        path: the file.
        error: its sentences may begin with a path, such as `fixed.tp is 3, ...`.
        below: the key of the file under which these paths begin; empty: at its top.
    """
    if isinstance(error, PlacedErrors):
        return error
    from nest.files.placing import place

    return place(path, error, below)


def read_value(text: str) -> Any:
    """`text` as YAML reads a single value: a number, truth value, list or word.

    Raises:
        InputError: it is not YAML.
    """
    from nest.files.source import parse_value

    return parse_value(text)


def unstructure(record: Any) -> Any:
    """`record` as plain mappings, lists and scalars, as `structure` reads them."""
    from nest.files.unstructuring import plain

    return plain(record)


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of scalars and lists as TOML, in the order given."""
    from nest.files.toml_writing import toml_text

    return toml_text(tables)


def yaml_text(mapping: Mapping[str, Any]) -> str:
    """`mapping` as YAML in block style, in the order given; readers of YAML 1.1 and 1.2 read the same."""
    from nest.files.yaml_writing import yaml_text

    return yaml_text(mapping)


def there_is(path: Path) -> str:
    """`file`, `folder` or `other`, what there is at `path`; empty: nothing, as where no file can have such a name."""
    from nest.files.writing import there_is

    return there_is(path)


def check_writable(path: Path, *read: object) -> None:
    """Make sure, before time is spent on what should be written, that `path` can name a file.

    Args:
        path: to be written.
        read: what is read; those that are paths must not be the same file, which would be lost.

    Raises:
        InputError: its folder does not exist, it is a folder itself, or it is read.
    """
    from nest.files.writing import check_writable

    check_writable(Path(path), *read)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all: to a temporary file beside it, which then takes its name.

    Raises:
        InputError: the folder does not exist or cannot be written to.
    """
    from nest.files.writing import replace

    replace(Path(path), text)


def write_folder(path: Path, texts: Mapping[str, str]) -> None:
    """Make a folder at `path` with files in it, whole or not at all.

    Args:
        path: of the folder, which does not exist yet.
        texts: contents by path in the folder.

    Raises:
        InputError: there is something at `path`, or it cannot be written to.
    """
    from nest.files.writing import create_folder

    create_folder(Path(path), texts)


def write_files(path: Path, texts: Mapping[str, str]) -> None:
    """Put files into the folder at `path`, made if need be: all of them, or none.

    Args:
        path: of the folder; what is in it already stays, files of the same names are replaced.
        texts: contents by path in the folder; scripts, which begin with `#!`, may be executed.

    Raises:
        InputError: they cannot be written there.
    """
    from nest.files.writing import fill_folder

    fill_folder(Path(path), texts)
