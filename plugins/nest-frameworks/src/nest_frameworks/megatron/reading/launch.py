"""The arguments of Megatron-LM in a script, a job of Kubernetes, a map or a log, and how many devices it runs on."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import evolve, field, frozen

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.io import read_mapping_text
from nest.units import whole_number
from nest_frameworks.megatron.reading.logs import printed
from nest_frameworks.megatron.reading.manifests import is_manifest, pods_of
from nest_frameworks.megatron.reading.primus import experiment, is_experiment
from nest_frameworks.megatron.reading.ranks import Ranks, count_ranks, launches
from nest_frameworks.megatron.reading.script import walk
from nest_frameworks.megatron.reading.tokens import UNKNOWN, UNSET, WORDS, remedy
from nest_frameworks.megatron.reading.walked import Call, Files, Walk

LONGEST = 2**20
"""Characters of a script; what people write has thousands."""

MAP = "MODEL_ARGS"
"""Section of flags in Megatron-LM's functional tests (tests/functional_tests/test_cases)."""

KNOWN = ("--tensor-model-parallel-size", "--micro-batch-size", "--num-layers", "--hidden-size", "--global-batch-size")
"""Of several Python programs, Megatron-LM is the one given most of these."""


@frozen
class Launch:
    """A call of Megatron-LM.

    Attributes:
        words: its arguments.
        devices: how many it runs on; None: the text does not say.
        notes: what was left open on the way, a sentence each.
        program: the Python program that is called; empty: nobody says.
        files: those that the script speaks of.
        printed: whether they are all arguments there are, as a log has them, and not those that somebody wrote.
        model: what the text calls the model, where no flags say its widths.
        denied: flags that are said not to be given; None: all that are not.
        layers: those of the named model, where the text says how many; None: as many as it has.
        trainable: `training.trainable`; None: everything.
        ranks_per_node: how many devices of each node it runs on; None: nobody says.
    """

    words: tuple[str, ...]
    devices: int | None
    notes: tuple[str, ...] = ()
    program: str = ""
    files: Files = field(factory=Files)
    printed: bool = False
    denied: Collection[str] | None = None
    model: str = ""
    layers: int | None = None
    trainable: Mapping[str, Any] | None = None
    ranks_per_node: int | None = None


def find_launch(text: str, options: LaunchOptions | None = None) -> Launch:
    """Find the arguments.

    `options`: what else is said of the launch; None: nothing.

    Raises:
        InputError: the text is no log, no script and no map, or has no arguments.
    """
    log = printed(text)
    if log is not None:
        return Launch(*log, printed=True)
    if len(text) > LONGEST:
        raise InputError(f"this has more than {LONGEST} characters; scripts that launch Megatron-LM have thousands.")
    if UNKNOWN in text:
        raise InputError("this has a NUL character, which no text has.")
    asked = options or LaunchOptions()
    try:
        if is_manifest(text):
            launch = _of_manifest(text, asked)
        elif re.search(rf"^{MAP}\s*:", text, re.MULTILINE):
            launch = _of_map(text, asked)
        elif is_experiment(text):
            said = experiment(text, asked.folder)
            launch = evolve(
                _of_flags(said.flags, {}, asked), model=said.model, layers=said.layers, trainable=said.trainable
            )
        else:
            launch = _of_script(text, asked)
    except RecursionError:
        raise InputError("this is nested too deeply to be read.") from None
    if not launch.words:
        raise InputError(
            f"there are no flags of Megatron-LM here: no call of a Python program, no array of flags, and no {MAP}."
        )
    return launch


def _of_map(text: str, options: LaunchOptions) -> Launch:
    content = read_mapping_text(text, "flags.yaml")
    flags, variables = content.get(MAP), content.get("ENV_VARS") or {}
    if not isinstance(flags, Mapping) or not isinstance(variables, Mapping):
        raise InputError(f"{MAP} and ENV_VARS must be maps of flags, and of variables, to their values.")
    if strange := [str(flag) for flag in flags if not str(flag).startswith("-")]:
        raise InputError(
            f"{MAP} has {strange[0]:.60}, a setting of another command line (NeMo's has such); nest reads flags of "
            "Megatron-LM there."
        )
    return _of_flags(flags.items(), variables, options)


def _of_flags(flags: Iterable[tuple[Any, Any]], variables: Mapping[Any, Any], options: LaunchOptions) -> Launch:
    """Flags and values of a map, with the environment it sets."""
    said = {str(name): str(value) for name, value in variables.items()} | dict(options.variables)
    words = [word for flag, value in flags for word in _flag_words(str(flag), _filled(value, said))]
    per_node = options.devices_per_node or _whole(said.get("GPUS_PER_NODE", said.get("NPROC_PER_NODE", "")))
    per_node = per_node or (options.machine if options.nodes is not None else None)
    if options.nodes is not None and per_node is None:
        raise InputError("--nodes is given, and nothing says how many devices each has; give --devices-per-node.")
    if options.nodes is not None and per_node is not None:
        shape = f"{options.nodes} {'node' if options.nodes == 1 else 'nodes'} x {per_node}"
        return Launch(tuple(words), *world_size(options.nodes * per_node, shape), ranks_per_node=per_node)
    return Launch(tuple(words), *world_size(_whole(said.get("WORLD_SIZE", "")), "WORLD_SIZE"))


_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-?([^{}]*))?\}|(\w+))")
"""A variable, which may have a value where nothing sets it."""


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """A value of a map with what its variables stand for; one that nothing sets stays what only a run would tell."""
    if isinstance(value, list):
        return [_filled(each, variables) for each in value]
    if not isinstance(value, str) or "$" not in value:
        return value

    def known(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return variables.get(name, f"{UNKNOWN}${name}{UNKNOWN}" if match[2] is None else match[2])

    filled = _VARIABLE.sub(known, value)
    return {"true": True, "false": False}.get(filled, filled)


def _of_manifest(text: str, options: LaunchOptions) -> Launch:
    """The launch in the pods of a job of Kubernetes: of several that run something, the one with most flags."""
    pods = pods_of(text)
    users = [each for each in pods if each.devices and each.count]
    each_pod = {each.devices for each in users}
    found: list[Launch] = []
    for each in pods:
        script, asked = each.script(options)
        if not any(word in script for word in (".py", "-m ")) and not asked.arguments:
            continue
        try:
            found.append(_of_script(script, asked))
        except InputError:
            if len(each_pod) != 1 or (options.nodes, options.devices_per_node) != (None, None):
                raise
            nodes, devices = sum(each.count for each in users), next(iter(each_pod))
            launch = _of_script(script, evolve(asked, nodes=nodes, devices_per_node=devices))
            how = f"{nodes * devices} ranks: {nodes} pods x {devices} accelerators."
            found.append(evolve(launch, notes=(how, *launch.notes[1:])))
    if not found:
        raise InputError("no container here calls a Python program; what its image runs by itself is not known.")
    best = max(found, key=lambda launch: sum(word.partition("=")[0] in KNOWN for word in launch.words))
    asked_for = sum(each.count * each.devices for each in users)
    if asked_for and best.devices is not None and best.devices != asked_for and options.nodes is None:
        told = f"the pods ask for {asked_for} accelerators, of which {best.devices} run a rank."
        return evolve(best, notes=(*best.notes, told))
    return best


def world_size(devices: int | None, said_by: str) -> tuple[int | None, tuple[str, ...]]:
    """Number of ranks, and the sentence on it."""
    if devices is None:
        return None, ("nothing here is launched: all devices of the cluster are taken, unless --nodes and "
                      "--devices-per-node are given.",)  # fmt: skip
    return devices, (f"{devices} ranks, from {said_by}.",)


def _flag_words(flag: str, value: Any) -> list[str]:
    """A flag of the map as the arguments it becomes (tests/functional_tests/shell_test_utils/_run_training.sh)."""
    if value is False or value is None:
        return []
    if value is True or value == "true":
        return [flag]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [flag, *map(str, value)]
    written = str(value).replace("\\", "")
    listed = re.fullmatch(r"\[([^\[\]]*)\]", written)
    return [flag, *(listed.group(1).replace(",", " ").split() if listed else [written])]


DOMINO = (
    "the deepspeed launcher starts it without --deepspeed: nest prices Megatron-LM's tensor parallelism. DeepSpeed's "
    "Domino, whose examples are started so, hides its communication."
)


def _of_script(text: str, options: LaunchOptions) -> Launch:
    script = walk(text, options)
    calls = [(call, place) for call in script.calls if (place := _program(call.words)) is not None]
    untaken = [each for each in script.untaken if _program(each.words) is not None]
    notes, absent = undefined_variables(script), ", ".join(dict.fromkeys(script.absent))
    if not calls:
        check_branches(untaken)
        flags = () if absent else _arrays(script)
        unseen = unmatched_text(script)
        if unseen and not flags:
            raise InputError(f"no Python program is called here; {unseen}.")
        ranks = _unlaunched(script, options) if flags else None
        if ranks is None:
            return Launch(flags, None, (*(world_size(None, "")[1] if flags else ()), *notes))
        return Launch(flags, ranks.count, (ranks.said, *notes), ranks_per_node=ranks.per_node)
    call, place = max(calls, key=lambda each: (_flags_known(each), not each[0].branches))
    words = call.words
    rest = words[place + 1 :]
    notes += competing_launches(
        call,
        [other for other, at in calls if other.words[at + 1 :] != rest and _flags_known((other, at))],
        [each for each in untaken if _flags_known((each, 0))],
    )
    notes += unset_variables(rest, text)
    if any(word.rpartition("/")[2] == "deepspeed" for word in words[:place]) and "--deepspeed" not in rest:
        notes.append(DOMINO)
    if absent and not _flags_known((call, place)):
        raise InputError(
            f"{words[place]} is called without flags that say how it trains, and what the script sources is not here: "
            f"{absent}."
        )
    try:
        ranks = count_ranks((*call.around, *words[:place]), call.variables, options, script.files)
    except InputError as error:
        if options.arguments or not re.search(r"=[\"']?\$\{?[1-9]\b", text):
            raise
        raise InputError(f"{error} The script takes arguments; give them behind `--`.") from None
    notes = [ranks.said, *notes]
    return Launch(
        rest, ranks.count, tuple(notes), program=words[place], files=script.files, ranks_per_node=ranks.per_node
    )


def undefined_variables(script: Walk) -> list[str]:
    """Notes on lines and files that were passed over."""
    absent = ", ".join(dict.fromkeys(script.absent))
    return [
        *(
            f"line {line} was passed over: what it does hangs on what only a run would tell."
            for line in dict.fromkeys(script.passed_over)
        ),
        *([f"what the script sources is not here, and nest assumes that it sets nothing: {absent}."] if absent else []),
    ]


def _flags_known(call: tuple[Call, int]) -> int:
    return sum(word.replace("_", "-").partition("=")[0] in KNOWN for word in call[0].words)


def competing_launches(call: Call, others: Sequence[Call], untaken: Sequence[Call]) -> list[str]:
    """Notes on other calls, which train otherwise.

    Raises:
        InputError: a loop makes them, or a condition chooses, so that none of them is the one.
    """
    others = [other for other in others if other.words != call.words]
    check_branches([call, *others, *(other for other in untaken if other.words != call.words)])
    if any(other.loops == call.loops for other in others):
        for name, values in call.loops:
            if not name:
                raise InputError(
                    f"line {call.line} runs with other flags in each turn of a loop; write one of its runs."
                )
            if len(values) > 1:
                shown = ", ".join(values[:8]) + (", ..." if len(values) > 8 else "")
                raise InputError(
                    f"line {call.line} runs once for each {name} of {shown}; choose one, such as "
                    f"`-- {name}={values[0]}`."
                )
    lines = sorted({other.line for other in others if other.line != call.line})
    said = ", ".join(map(str, lines))
    return [f"line {call.line} is read; other runs are on line {said}."] if lines else []


def check_branches(calls: Sequence[Call]) -> None:
    """Refuse the first call if others take its place as a condition decides that the script does not.

    Raises:
        InputError: they do; the text has the lines.
    """
    for line, how in calls[0].branches if calls else ():
        rivals = sorted({call.line for call in calls if line in (at for at, _ in call.branches)})
        if len(rivals) > 1:
            remedy = f"give {how}" if how else "only a run would tell the condition: leave one of them"
            raise InputError(f"line {line} decides which of lines {', '.join(map(str, rivals))} trains; {remedy}.")


def unset_variables(words: Sequence[str], text: str) -> list[str]:
    """Notes on variables in place of flags, or after one that may take no value."""
    names = dict[str, None]()
    for before, word in pairwise(("", *words)):
        unset = UNSET.fullmatch(word)
        if unset and (not before.startswith("--") or _LIKE_FLAGS.search(unset[1])):
            names[unset[1]] = None
    assigned = set(re.findall(r"\b(\w+)\+?=", text)) if names else set()  # Set where a condition does not hold.
    return [
        f"nothing sets ${name}, and nest assumes it to be empty; {remedy(f'{UNKNOWN}${name}{UNKNOWN}')} says it."
        for name in names
        if name not in assigned
    ]


_LIKE_FLAGS = re.compile("arg|opt|extra|flag|param", re.IGNORECASE)


def unmatched_text(script: Walk) -> str:
    """Describe where else a program may be called; empty: nowhere."""
    if script.absent:
        return f"what the script sources is not here: {', '.join(dict.fromkeys(script.absent))}"
    if script.absent_runs:
        return f"the scripts that it runs are not here: {', '.join(dict.fromkeys(script.absent_runs))}"
    lines = [call.line for call in script.calls if call.words[0] == "eval" and UNKNOWN in "".join(call.words)]
    if lines or script.passed_over:
        lines = lines or script.passed_over
        return f"what only a run would tell may call one, on line {', '.join(map(str, dict.fromkeys(lines)))}"
    return ""


def _unlaunched(script: Walk, options: LaunchOptions) -> Ranks | None:
    """The ranks of a file that has flags, and no program that is called with them; None: nobody says."""
    launchers = [words for call in script.calls if launches(words := (*call.around, *call.words))]
    variables = script.texts
    asked = (options.nodes, options.devices_per_node) != (None, None) or _whole(variables.get("WORLD_SIZE", ""))
    if not launchers and not asked:
        return None
    return count_ranks(next(iter(launchers), ()), variables, options, script.files)


SHOWN = frozenset({"echo", "printf", "cat", "cp", "ls", "rm"})
"""Commands that run none of the words behind them."""


def _program(words: Sequence[str]) -> int | None:
    """Place of the Python program among the words of a command; None: it calls none."""
    if words[0] in SHOWN:
        return None
    for place, word in enumerate(words):
        if word.endswith(".py") and not any(letter.isspace() for letter in word):
            return place
        if word == "-m" and words[place + 1 : place + 2] and not words[place + 1].startswith("torch.distributed"):
            return place + 1
    return None


def _arrays(script: Walk) -> tuple[str, ...]:
    """Flags in variables, of a file that is to be sourced."""
    return tuple(
        word
        for words in script.variables.values()
        if words and words[0].lstrip().startswith("--")
        for each in words
        for word in (WORDS.findall(each) if len(words) == 1 else (each,))
    )


def _whole(text: str) -> int | None:
    return whole_number(text.strip(" \t\n")) or None
