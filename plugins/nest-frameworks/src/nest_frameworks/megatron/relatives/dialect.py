"""A framework's names of what Megatron-LM has flags for, read and written through one table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from nest.deployment import LaunchOptions, Limits, Reading
from nest.errors import InputError, InputErrors
from nest.spec import Architecture, PlanDocument
from nest_frameworks.megatron.notation import FLAG as LAYOUT
from nest_frameworks.megatron.notation import SPEAKERS, STACK, Flags, Value, given_flags, read_pattern

if TYPE_CHECKING:
    from nest_frameworks.keys import Keys


Row = str | Mapping[Any, Flags]
"""Meaning of a key.

`--flag`: the flag's value, `--flag=1` with its default; of several flags the first stand alone, given any value.
`?--flag`: whether it is given. `!--flag`: whether it is not. `*--flag`: a list of numbers that the flag has as text. A
mapping: words, in lower case, and the flags of each."""

NOTHING: tuple[Any, ...] = (None, False, 0, "", "none", [], {})
"""Values of keys that ask for nothing."""

EVERY = tuple(flag for flags in SPEAKERS.values() for flag in flags)

DECIDED = {
    "tp": "--tensor-model-parallel-size",
    "cp": "--context-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
    "sp": "--sequence-parallel",
    "recompute": "--recompute-granularity",
    "zero": "--use-distributed-optimizer",
    "rank_order": "--use-tp-pp-dp-mapping",
}
"""The flag that says each decision."""

UNNAMED = "--num-layers and the other widths are missing"
BESIDE = "name one of the catalogue, or one whose config.json lies beside this file"

_FLAG = re.compile(r"--[a-z0-9][a-z0-9-]*")


@frozen
class Dialect:
    """A framework's names of Megatron-LM's flags.

    Attributes:
        name: what people call the framework.
        rows: what stands behind each key, sections joined by dots; read and written.
        read_only: further keys that are read only.
        defaults: flags that it runs with where its file says nothing, other than Megatron-LM.
        implied: flags that its files do not say: they change no cost, or follow from others.
        refused: keys with why nest does not price what they ask for.
        assumed: keys that change costs and are not priced, with what is assumed.
        harmless: patterns of keys that change no cost that nest counts.
        states_model: whether its files say the model.
        recipe: whether what its files leave out is decided elsewhere, and not by `defaults`.
        aliases: what else to call flags in messages, beside the keys of the table.
        half_stack: the software stack of its trainings in fp16.
    """

    name: str
    rows: Mapping[str, Row]
    read_only: Mapping[str, Row]
    defaults: Flags
    implied: Collection[str]
    refused: Mapping[str, str]
    assumed: Mapping[str, str]
    harmless: tuple[str, ...]
    states_model: bool = False
    recipe: bool = False
    aliases: Mapping[str, str] = field(factory=dict)
    half_stack: str = STACK

    def read(self, keys: Keys, devices: int | None, extra: Flags, known: Architecture | None = None) -> Reading:
        """Read the keys of the framework.

        Args:
            keys: of its file.
            devices: how many it is launched on; None: nobody says.
            extra: flags that follow from several keys; they win.
            known: the model, where something else than the file's keys says it.

        Raises:
            InputErrors: keys contradict each other, or say what nest cannot price; they are named as in the file.
        """
        from nest_frameworks.megatron.reading.launch import Launch
        from nest_frameworks.megatron.reading.read import read_launch

        said = {**self._stated(keys), **extra}
        if said.get(LAYOUT):  # It has the chunks, of which some frameworks want the number as well.
            said["--num-virtual-stages-per-pipeline-rank"] = None
        for path, reason in self.refused.items():
            if keys.value(path) not in NOTHING:
                keys.problem(f"{path} is {keys.value(path)!r:.60}: {reason}.")
        keys.unpriced(self.assumed)
        notes = keys.finish(self.harmless)
        denied = [flag for flag, value in said.items() if not value] if self.recipe else EVERY
        words = tuple(_words({**self.defaults, **said}))
        launch = Launch(words, devices, denied=denied, ranks_per_node=keys.ranks_per_node)
        try:
            found = read_launch(launch, known=known)
        except InputErrors as errors:
            raise InputErrors(self._named(text) for text in errors.problems) from None
        except InputError as error:
            raise InputError(self._named(str(error))) from None
        settings = dict(found.settings)
        if self.recipe:
            settings["fixed"], left = _without(settings["fixed"], said)
            notes = (*((f"left to the recipe, and to the problem: {', '.join(left)}.",) if left else ()), *notes)
        settings["training"] = {**settings["training"], "stack": self.half_stack if said.get("--fp16") else STACK}
        return evolve(found, settings=settings, notes=(*map(self._named, found.notes), *notes))

    def written(self, plan: PlanDocument, limits: Limits) -> dict[str, Any]:
        """The sections of a file that runs `plan`, which must be within `limits`.

        Raises:
            InputError: it is not, or the framework's files cannot say what it decides.
            InputErrors: it is not in several ways.
        """
        from nest.deployment import violations
        from nest.hooks.pipelines import deployed
        from nest_frameworks.megatron.flags import flag_groups

        beyond = violations(plan, limits, self.name)
        if beyond:
            raise InputErrors(f"{reason}." for reason in beyond)
        groups = flag_groups(plan, limits)
        flags: Flags = {
            flag: value
            for name, group in groups.items()
            if self.states_model or name != "MODEL_ARGS"
            for flag, value in group.items()
        }
        self.check(flags, [*self.defaults, *flags])
        every = {**groups["MODEL_ARGS"], **flags}
        chunks = deployed(plan).chunks
        every["--num-virtual-stages-per-pipeline-rank"] = chunks if chunks > 1 else None
        return self.sections(every)

    def sections(self, every: Flags, named: Collection[str] | None = None) -> dict[str, Any]:
        """The keys, in sections, of all flags; `named`: of these alone."""
        sections: dict[str, Any] = {}
        for path, row in self.rows.items():
            if named is not None and not {*named}.intersection(_names(row)):
                continue
            value = _value_of(row, every)
            if (value is None and not _sets_back(row)) or (
                named is None and _of_experts(row) and "--num-experts" not in every
            ):
                continue
            *above, key = path.split(".")
            section = sections
            for name in above:
                section = section.setdefault(name, {})
            section[key] = value
        return sections

    def check(self, flags: Flags, names: Collection[str]) -> None:
        """Refuse flags that no row can say.

        Args:
            flags: what the flags say.
            names: those that must be said.

        Raises:
            InputError: the framework's files cannot say one.
        """
        ours = {flag for row in self.rows.values() if isinstance(row, str) for flag in _FLAG.findall(row)}
        worded = [row for row in self.rows.values() if not isinstance(row, str)]
        for row in worded:
            named = _flags_in(row)
            if named.intersection(names) and _word_of(row, flags) is None:
                self._refuse(flags, sorted(named.intersection(names)))
            ours |= named
        ours |= {*self.implied}
        for flag in names:
            if flag not in ours and (flags.get(flag) or None) != (self.defaults.get(flag) or None):
                self._refuse(flags, [flag])

    def _refuse(self, flags: Flags, names: Collection[str]) -> None:
        said = " ".join(_words({name: flags.get(name) for name in names}))
        what = f"Megatron-LM does with {said}" if said else f"Megatron-LM does without {' and '.join(names)}"
        raise InputError(
            f"{self.name} cannot train this, because its files, as nest writes them, do not say what {what}."
        )

    def _stated(self, keys: Keys) -> Flags:
        """Flags by what the keys hold."""
        said: Flags = {}
        by: dict[str, str] = {}
        for path, row in {**self.rows, **self.read_only}.items():
            for flag, value in _flags_of(keys, path, row).items():
                before = said.get(flag)
                if before not in (None, False) and value not in (None, False, before):
                    keys.problem(f"{by[flag]} and {path} contradict each other.")
                if before in (None, False):
                    said[flag], by[flag] = value, path
        return said

    def _named(self, text: str) -> str:
        """`text` with the framework's keys in place of flags."""
        names = dict(self.aliases)
        for path, row in (*self.rows.items(), *self.read_only.items()):
            for flag in [_FLAG.findall(row)[-1]] if isinstance(row, str) else _flags_in(row):
                names.setdefault(flag, path)
        told = text if self.states_model or self.recipe else text.replace(UNNAMED, BESIDE)
        return _FLAG.sub(lambda match: names.get(match[0], match[0]), told)


def machines(keys: Keys, options: LaunchOptions, nodes: str, each: str) -> int | None:
    """Processes of a launch whose file says machines under `nodes` and processes of each under `each`.

    What a user says stands in place of that; None: nobody says.
    """
    from nest_frameworks.keys import launched

    listed, counted = keys.value(each), options.devices_per_node
    if counted is None:
        counted = len(listed) if isinstance(listed, list) else keys.integer(each)
    said = keys.integer(nodes) if options.nodes is None else options.nodes
    return launched(keys, evolve(options, nodes=said, devices_per_node=counted))


def _flags_of(keys: Keys, path: str, row: Row) -> Flags:
    """The flags that a key stands for; none where it is not given."""
    value = keys.value(path)
    if isinstance(value, Mapping) and "_target_" in value:
        value = value["_target_"]  # Types of PyTorch, as dumps of configurations have them.
    if value is None or isinstance(value, Mapping):
        if value is not None:
            keys.asked.discard(path)
        return {} if value is not None else _unset(row, keys, path)
    if isinstance(value, str) and "${" in value:
        keys.problem(f"{path} is {value!r:.60}, which only a run would tell; write its value there.")
        return {}
    if not isinstance(row, str):
        word = value.lower() if isinstance(value, str) else value
        if isinstance(word, (str, int)) and word in row:
            return dict.fromkeys(_flags_in(row)) | row[word]
        keys.problem(f"{path} is {value!r:.60}, and nest knows {', '.join(map(str, row))}.")
        return {}
    *alone, flag = _FLAG.findall(row)
    if row[0] in "?!":
        if isinstance(value, str) and value.lower() in ("true", "false"):
            value = value.lower() == "true"
        if not isinstance(value, bool):
            keys.problem(f"{path} is {value!r:.60}; it must be true or false.")
            return {}
        return {flag: value == (row[0] == "?")}
    if isinstance(value, bool):
        if value:
            keys.problem(f"{path} is true; it must be a value.")
        return {flag: None}
    if row[0] == "*" and isinstance(value, list):
        listed = ",".join(map(str, value))
        return {flag: listed if flag == "--window-size" else f"[{listed}]"}
    said: Value = tuple(map(str, value)) if isinstance(value, list) else str(value)
    return {**dict.fromkeys(alone, True), flag: said or None}


def _unset(row: Row, keys: Keys, path: str) -> Flags:
    """Flags of a key without value."""
    found: Any = keys.content
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return {}
        found = found[part]
    return {_FLAG.findall(row)[-1]: None} if isinstance(row, str) else {}


def _value_of(row: Row, flags: Flags) -> Any:
    """Value of a key for the flags of a plan."""
    if not isinstance(row, str):
        return _word_of(row, flags)
    value = flags.get(_FLAG.findall(row)[-1])
    if row[0] in "?!":
        return bool(value) == (row[0] == "?")
    if row[0] == "*" and isinstance(value, str):
        return [int(each) for each in value.split(",")] if "[" not in value else list(read_pattern(row[1:], value))
    if value is None and "=" in row:
        return int(row.partition("=")[2])
    return list(value) if isinstance(value, tuple) else value


def _sets_back(row: Row) -> bool:
    """Return whether a key that holds nothing takes back what a file may have that this one is laid over."""
    return isinstance(row, str) and row.startswith(("--recompute", "--pipeline", "--decoder", "--num-virtual", "--mtp"))


def _of_experts(row: Row) -> bool:
    return any(name.startswith(("--moe-", "--expert-", "--overlap-moe")) for name in _names(row))


def _names(row: Row) -> Collection[str]:
    """Flags of a row."""
    return _FLAG.findall(row) if isinstance(row, str) else _flags_in(row)


def _word_of(row: Mapping[Any, Flags], flags: Flags) -> Any:
    """The word that stands for what `flags` have of the row's; None: there is none."""
    named = _flags_in(row)
    for word, meant in row.items():
        if all((flags.get(flag) or None) == (meant.get(flag) or None) for flag in named):
            return word
    return None


def _flags_in(row: Mapping[Any, Flags]) -> set[str]:
    return {flag for meant in row.values() for flag in meant}


def _words(flags: Flags) -> Iterator[str]:
    for flag, value in given_flags(flags).items():
        yield flag
        if value is not True:
            yield from value if isinstance(value, tuple) else (str(value),)


def _without(fixed: Mapping[str, Any], said: Flags) -> tuple[dict[str, Any], list[str]]:
    """The decisions that are said, and the names of the others."""
    left = [name for name, flag in DECIDED.items() if name in fixed and flag not in said]
    if "zero" in left and (said.get("--use-megatron-fsdp") or said.get("--use-torch-fsdp2")):
        left.remove("zero")
    if {"tp", "cp", "pp"}.intersection(left):
        left.append("dp")
    if "pp" in left:
        left += ["schedule", "stages", "chunks"]
    if "micro_batch" not in fixed:
        left.append("micro_batch")
    return {name: value for name, value in fixed.items() if name not in left}, left
