"""Writing: files whole or not at all, and mappings as TOML and YAML text."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from io import StringIO
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import Lock
from typing import Any

from nest.errors import InputError


def check_writable(path: Path, *read: object) -> None:
    """Check, before hours of work, that a file can be written at `path`.

    Raises:
        InputError: its folder does not exist, it is a folder itself, or it is `read` and would be lost.
    """
    if there_is(path) == "folder":
        raise InputError(f"{path}: cannot write a file here, there is a folder of that name.")
    if there_is(path.parent) != "folder":
        raise InputError(f"{path}: cannot write here, there is no folder {str(path.parent)!r}.")
    if any(_is_file(path, each) for each in read if isinstance(each, str | Path)):
        raise InputError(f"{path}: this would overwrite the input; write to another file.")


def there_is(path: Path) -> str:
    """Return the kind at `path`: `file`, `folder` or `other`.

    Empty: nothing, or inaccessible, such as a loop of links or an impossible name.
    """
    with suppress(OSError, ValueError):
        mode = path.stat().st_mode
        return "file" if S_ISREG(mode) else "folder" if S_ISDIR(mode) else "other"
    return ""


def _is_file(path: Path, read: str | Path) -> bool:
    """Return whether both name one file; a terminal or the like, which loses nothing, is none."""
    with suppress(OSError, ValueError, RuntimeError):
        return path.is_file() and path.samefile(read)
    return False


def write_text(path: Path, text: str | bytes) -> None:
    """Write text or bytes to `path` atomically; the target of a link is replaced, and a device is written directly.

    Raises:
        InputError: the folder does not exist or cannot be written to.
    """
    try:
        check_writable(path)
        target = _target(path)
        data = text if isinstance(text, bytes) else text.encode()
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot write here: {reason}.") from None


def _target(path: Path) -> Path:
    """Return the target of `path`, which need not exist.

    Raises:
        OSError: there is none: a loop of links, a name that is too long.
    """
    with suppress(FileNotFoundError):
        path.stat()
    return Path(os.path.realpath(path))


def write_folder(path: Path, texts: Mapping[str, str]) -> None:
    """Make a folder at `path` from texts by relative path: beside it under another name, then renamed.

    Raises:
        InputError: there is something at `path`, or it cannot be written to.
    """
    if os.path.lexists(path):
        raise InputError(f"{path}: this exists already; choose another name.")
    if there_is(path.parent) != "folder":
        raise InputError(f"{path}: cannot write here, there is no folder {str(path.parent)!r}.")
    try:
        temporary = _temporary_folder(path.parent)
        try:
            for name, text in texts.items():
                file = temporary / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", newline="\n")
            temporary.chmod(0o777 & ~_umask())
            temporary.rename(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot write here: {error.strerror or error}.") from None


def write_files(path: Path, texts: Mapping[str, str]) -> None:
    """Write texts by relative path into the folder at `path`, made if need be: all of them, or none.

    They are written beside each other first, then renamed; on failure, replaced files are restored. A text that begins
    as a script, with `#!`, may be executed.

    Raises:
        InputError: there is a folder, or no regular file, in the place of one of the files, or it cannot be written to.
    """
    for name in texts:
        target = path / name
        if there_is(target) not in ("", "file"):
            raise InputError(f"{target}: cannot write a file here, there is something else of that name.")
    made: list[Path] = []
    try:
        made = _made_folders([path, *((path / name).parent for name in texts)])
        temporary = _temporary_folder(path)
        try:
            _move_in(temporary, path, texts)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, ValueError) as error:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot write here: {reason}.") from None


def _temporary_folder(within: Path) -> Path:
    from tempfile import mkdtemp

    return Path(mkdtemp(dir=within, prefix=".nest-", suffix=".tmp"))


def _made_folders(folders: Iterable[Path]) -> list[Path]:
    made: list[Path] = []
    for folder in folders:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir()
            made.append(each)
    return made


def _move_in(temporary: Path, folder: Path, texts: Mapping[str, str]) -> None:
    """Write `texts` into a temporary folder, then move each to its place; restore replaced files on failure."""
    new = [temporary / f"{index}.new" for index in range(len(texts))]
    for file, text in zip(new, texts.values(), strict=True):
        file.write_text(text, encoding="utf-8", newline="\n")
        file.chmod((0o777 if text.startswith("#!") else 0o666) & ~_umask())
    moved: list[tuple[Path, Path | None]] = []
    try:
        for index, (file, name) in enumerate(zip(new, texts, strict=True)):
            target = _target(folder / name)
            old = temporary / f"{index}.old" if target.exists() else None
            if old is not None:
                shutil.copy2(target, old)
            file.replace(target)
            moved.append((target, old))
    except BaseException:
        for target, old in moved:
            if old is None:
                target.unlink(missing_ok=True)
            else:
                old.replace(target)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty file beside `path` that replaces it at the end; on failure `path` stays.

    Raises:
        InputError: the folder does not exist or cannot be written to.
    """
    check_writable(path)
    try:
        with _replacing(_target(path)) as temporary:
            yield temporary
    except OSError as error:
        raise InputError(f"{path}: cannot write here: {error.strerror or error}.") from None


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    from tempfile import mkstemp

    handle, name = mkstemp(dir=path.parent, prefix=".nest-", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _replace(path: Path, data: bytes) -> None:
    with _replacing(path) as temporary:
        temporary.write_bytes(data)


def _umask() -> int:
    with _ASKING:  # It can be asked only by being set: two threads at once would leave the other's in place.
        mask = os.umask(0o077)
        os.umask(mask)
    return mask


_ASKING = Lock()

BARE_KEY = r"[A-Za-z0-9_-]+"  # Keys that need no quotes (TOML 1.0, "Keys").
DELETE = "\x7f"  # The one control character that JSON leaves in strings and TOML forbids there.


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write tables by name, in the order given, as TOML for the standard library's `tomllib`.

    Values are text, numbers, truth values and lists of them, also in lists.
    """
    return "\n".join(_table(name, values) for name, values in tables.items())


def _table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{_key(name)}]", *(f"{_key(key)} = {toml_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(BARE_KEY, name) else _string(name)


def toml_value(value: Any) -> str:
    """Write text, a number, a truth value, or a list of such."""
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Sequence):
        if any(not isinstance(item, str) and isinstance(item, Sequence) for item in value):
            return "[\n" + "".join(f"  {toml_value(item)},\n" for item in value) + "]"
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    raise TypeError(f"no TOML for {type(value).__name__}")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace(DELETE, "\\u007f")


WIDTH = 4096  # Columns before a line break: none, in files that people search for keys.

PLAIN = r"(?i)(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z_][a-z0-9_./-]*"
"""Text that neither YAML 1.1 (https://yaml.org/type/bool.html) nor 1.2 misreads; all other is quoted."""


@cache
def _representer() -> Any:
    """Return ruamel.yaml's representer, quoting text that some reader takes for a number, truth value, date or null."""
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        def represent_str(self, text: str) -> Any:
            style = None if re.fullmatch(PLAIN, text) else "|" if "\n" in text else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

        def represent_float(self, number: float) -> Any:
            node = super().represent_float(number)
            if "." not in node.value:  # PyYAML takes 1e-08 for a word.
                node.value = node.value.replace("e", ".0e")
            return node

    Representer.add_representer(str, Representer.represent_str)
    Representer.add_representer(float, Representer.represent_float)
    return Representer


def yaml_text(mapping: Mapping[str, Any]) -> str:
    """Write `mapping` as YAML in block style, in the order given, alike for readers of YAML 1.1 and 1.2."""
    from ruamel.yaml import YAML

    writer = YAML(typ="safe", pure=True)
    writer.Representer = _representer()
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel.yaml types it as None
    writer.width = WIDTH
    writer.allow_unicode = True
    stream = StringIO()
    writer.dump(dict(mapping), stream)
    return stream.getvalue()
