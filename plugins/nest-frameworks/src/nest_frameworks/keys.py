"""Common parts of readers of configurations: keys of nested maps, mistakes reported together, and notes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from attrs import define, field

from nest.deployment import LaunchOptions
from nest.errors import InputError, InputErrors
from nest.io import read_mapping_text

LARGEST = 10**12

DECIDING = re.compile(
    r"parallel|pipeline|shard|offload|autocast|recomput|remat|activation_checkpoint|gradient_checkpoint|zero|fsdp|schedule(?!r)"
    r"|attention\.|(^|[._])(tp|pp|vpp|cp|ep|etp|sp|dp|hsdp|mesh|stages?|layers?|hidden|heads?|experts?|vocab|quant\w*|qat|lora"
    r"|teacher|ref_model|ref_model_\w+|distill\w*|adapters?|freeze|frozen|unfrozen|micro_?batch|dtype|fp8|fp4|[48]bit|bits|mtp|mca)([._]|$)",
    re.IGNORECASE,
)
"""Words of keys that may change layout, memory or model."""

SCRIPT = re.compile(r"\A#!|^\s*(deepspeed|torchrun|accelerate launch|python3?|srun) ", re.MULTILINE)
"""What launch scripts have, and configurations lack."""

IDLE: tuple[Any, ...] = (None, False, 0, 1, "", "none", "no", "null", "false", "off", "disabled", "auto", [], {})
"""Values that ask for nothing, or for one device."""

UNKNOWN_OPTIMIZER = "whose state and step nest does not price; delete it, and say training.optimizer in a problem"

Chosen = TypeVar("Chosen")


def _asks(value: Any) -> bool:
    """Return whether a value asks for something; `true` does, which Python takes for 1."""
    return value is True or (value.lower() if isinstance(value, str) else value) not in IDLE


@define
class Keys:
    """Keys of a configuration, sections joined by dots, whose mistakes are collected until `finish` reports them.

    Attributes:
        content: sections and keys.
        asked: keys somebody has asked for.
        problems: mistakes found so far.
        notes: what the reader of the result should know, a sentence each.
        ranks_per_node: processes on each node of the launch; None: nobody says.
    """

    content: Mapping[str, Any]
    asked: set[str] = field(factory=set)
    problems: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)
    ranks_per_node: int | None = None

    def value(self, path: str) -> Any:
        """Value of the key; None if it is absent or empty."""
        self.asked.add(path)
        found: Any = self.content
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def integer(self, path: str, minimum: int = 1) -> int | None:
        """The whole number of a key; None where it is not given."""
        value = self.value(path)
        if value is None:
            return None
        if isinstance(value, str) and value.startswith("$"):
            self.problem(f"{path} is {value!r:.60}, which only a run would tell; write its value there.")
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= LARGEST:
            self.problem(f"{path} is {value!r:.60}; it must be a whole number of at least {minimum}.")
            return None
        return value

    def truth(self, path: str, default: bool = False) -> bool:
        """Return whether a key is true."""
        value = self.value(path)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(f"{path} is {value!r:.60}; it must be true or false.")
            return default
        return value

    def choice(self, path: str, choices: Mapping[Any, Chosen], default: Chosen) -> Chosen:
        """Entry of `choices` for the word of a key, without regard to case."""
        value = self.value(path)
        if value is None:
            return default
        word = value.lower() if isinstance(value, str) else value
        if not isinstance(word, (str, int)) or word not in choices:
            self.problem(f"{path} is {value!r:.60}, and nest knows {', '.join(map(str, choices))}.")
            return default
        return choices[word]

    def unpriced(self, paths: Mapping[str, str]) -> None:
        """Note which of the keys are set, with what is assumed in their place."""
        for path, assumed in paths.items():
            if self.value(path) not in (None, False, 0, "", "none", "disabled", [], {}):
                self.note(f"{path} is not priced{': ' + assumed if assumed else ''}.")

    def refuse(self, paths: Mapping[str, str]) -> None:
        """Refuse those of the keys that ask for something, with what is assumed in its place."""
        for path, assumed in paths.items():
            if _asks(self.value(path)):
                self.problem(f"{path} is {self.value(path)!r:.60}, but {assumed}; delete it to price the run so.")

    def on_host(self, path: str, state: bool) -> None:
        """Tell how parameters on the host are priced: not at all, but for the optimizer's `state` there."""
        if state:
            self.note(f"{path}: the optimizer's state and step are on the host; shards of weights and gradients are "
                      "priced on the device, and their copies as free.")  # fmt: skip
        else:
            self.refuse({path: "nest assumes parameters to stay on the device"})

    def problem(self, text: str) -> None:
        """Note a mistake: a sentence."""
        self.problems.append(text)

    def note(self, text: str) -> None:
        """Note what the reader of the result should know: a sentence."""
        self.notes.append(text)

    def finish(self, harmless: Sequence[str]) -> tuple[str, ...]:
        """The notes, with one on the keys that nobody has asked for and no pattern of `harmless` fits.

        Raises:
            InputErrors: there are mistakes, or a key among these may change layout, memory or model.
        """
        unread = {
            path: value
            for path, value in _paths(self.content)
            if not any(path == each or path.startswith(f"{each}.") for each in self.asked)
            and not any(fnmatchcase(path, pattern) for pattern in harmless)
        }
        for path, value in unread.items():
            if DECIDING.search(path) and _asks(value):
                self.problem(
                    f"{path} is {value!r:.60}, which nest does not read, and it may change layout, memory or model; "
                    "delete it to price the run without it."
                )
        if self.problems:
            raise InputErrors(dict.fromkeys(self.problems))
        if unread:
            self.note(f"these keys were not read: {', '.join(sorted(unread))}.")
        return tuple(self.notes)


def opened(text: str, file: str, what: str, sections: Sequence[str]) -> dict[str, Any]:
    """The content of a framework's file, of which at least one of `sections` must be there.

    Args:
        text: JSON, YAML or TOML.
        file: the name it usually has, which says the format.
        what: what `sections` are, such as `DeepSpeed's keys`.
        sections: some that such a file has.

    Raises:
        InputError: it is no such file.
    """
    try:
        content = read_mapping_text(text, file)
    except InputError:
        if not SCRIPT.search(text):
            raise
        raise InputError(f"this is a script; give a file with {what}, the one it names or one you write.") from None
    if not set(sections).intersection(content):
        raise InputError(f"the file has none of {what} {', '.join(sections)}.")
    return content


def _paths(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{path}.")
        elif value is not None:
            yield path, value


def said(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` without those that nobody says."""
    return {name: value for name, value in settings.items() if value is not None}


PER_MACHINE = 8
"""Processes of a machine where nobody says."""


def launched(keys: Keys, options: LaunchOptions) -> int | None:
    """Processes on the machines of a launch, told where they are assumed; None: nobody says how many machines."""
    if options.part is not None:
        keys.problem("--part goes with vision-language models, and nothing here names one.")
    keys.ranks_per_node = options.devices_per_node
    if options.nodes is None:
        return None
    each = options.machine or PER_MACHINE
    if options.devices_per_node is None:
        keys.note(f"nest assumes {each} processes to run on every machine; change this with --devices-per-node.")
    return options.nodes * (options.devices_per_node or each)
