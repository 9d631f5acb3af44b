"""Every reader by itself, on its samples with classes of bytes inserted, doubled and cut.

    python -m tests.mutated_inputs.readers --count 100000 --seed 1

What fails is printed with the number of its case: `--only NUMBER` shows that one. The largest memory of the process is
printed at the end. Command lines, with values mutated as well, are those of `python -m tests.mutated_inputs`.
"""

import argparse
import json
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import tests.bundled  # noqa: F401
from frameworks_tests.megatron_launchers import LAUNCHED
from frameworks_tests.megatron_scripts import SCRIPTS
from frameworks_tests.plans import plan
from frameworks_tests.relatives_files import FILES
from frameworks_tests.test_maxtext_read import LLAMA as MAXTEXT
from frameworks_tests.test_maxtext_read import SIXTEEN
from frameworks_tests.test_nanotron_read import TINY
from frameworks_tests.test_torchtitan_read import LLAMA as TITAN
from frameworks_tests.test_trainers import QWEN_FULL
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.formulate.cluster import from_file
from nest.formulate.from_flags import read_flags
from nest.hooks.architectures import architecture_of
from nest.hooks.registry import registry
from nest.io import read, read_mapping
from nest.spec import ClusterSpec, PlanDocument, Problem
from nest_calibrate.collective_measurements import read_collectives
from nest_calibrate.lines import read_lines
from nest_calibrate.logs import read_log
from tests.io.test_round_trip import as_toml, as_yaml
from tests.mutated_inputs.inputs import inputs

LIMIT = 10
"""Seconds of the process that a reader may take."""

CLASSES: dict[str, tuple[bytes, ...]] = {
    "control": (b"\0", b"\x01", b"\x07", b"\x08", b"\x1b[31m", b"\x7f", b"\x1c", b"\x1f"),
    "space": tuple(each.encode() for each in (" ", "\t", "\f", "\v", "\u00a0", "\u2028", "\u200b", "\ufeff", "\x85")),
    "line": (b"\n", b"\r", b"\r\n", b"\\\n", b"\n\n\n", b"\n---\n", b"\n...\n"),
    "fragment": (b"\x80", b"\xff\xfe", b"\xe2\x80", b"\xf0\x9f", b"\xed\xa0\x80", b"\xc3\x28", b"\x1f\x8b\x08"),
    "letter": tuple(each.encode() for each in ("é", "💥", "\u202e", "x", "İ", "²", "٣")),
    "quote": (b'"', b"'", b"`", b"\\", b'"""', b"'\\''", b"$'"),
    "bracket": (b"(", b")", b"[", b"]", b"{", b"}", b"((", b"))", b"[[", b"]]", b"<", b">", b"${", b"$(", b"$(("),
    "sign": (b";", b";;", b"&", b"&&", b"|", b"#", b"!", b"*", b"%", b"@", b"?", b"~", b"<<", b"<<E\n", b"$", b"$1"),
    "mark": (b":", b": ", b",", b"=", b"+=", b"- ", b"--", b"&a ", b"*a", b"<<: *a", b"!!x ", b"|-\n", b"%YAML 9\n"),
    "digit": (
        *(b"0", b"-1", b"9" * 20, b"9" * 290, b"9" * 5000, b"1e999", b"-1e-999", b"nan", b".inf"),
        *(b"0x1F", b"0x" + b"f" * 300, b"1_000", b"08"),
    ),
    "word": (
        b"null",
        b"true",
        b"if ",
        b"fi\n",
        b"done\n",
        b"case ",
        b"esac\n",
        b"while :; do ",
        b"function ",
        b"eval ",
    ),
    "deep": (b"(" * 300, b"[" * 300, b"{" * 300, b"$(" * 200, b"${a:-" * 100, b"if " * 100, b"- " * 200, b"<a>" * 300),
}
"""Pieces by the class of their bytes."""

NUMBERS = (*CLASSES["digit"], *(each.encode() for each in ("²", "٣", "1.2.3", "-", "", "2", "1000000007")))
"""What a number turns into."""

Reader = Callable[[Path], object]


def _framework(name: str) -> Reader:
    def reader(path: Path) -> object:
        try:
            return read_flags(path, name, LaunchOptions(), registry())
        except InputError:
            return read_flags(path, name, LaunchOptions(nodes=2, devices_per_node=8), registry())

    return reader


def _network(path: Path) -> object:
    return from_file(ClusterSpec(topology=str(path)), registry(), None)


READERS: dict[str, Reader] = {
    **{name: _framework(name) for name in registry().plan_readers()},
    "problem": lambda path: read(path, Problem),
    "plan": lambda path: read(path, PlanDocument),
    "model": lambda path: architecture_of(read_mapping(path, "nodes").mapping),
    "network": _network,
    "log": read_log,
    "runs": lambda path: read_lines([path]),
    "collectives": lambda path: read_collectives([path]),
}
"""Every reader of files, by the framework or what it reads."""


@cache
def samples() -> dict[str, list[tuple[str, bytes]]]:
    """Suffixes and contents of good files by reader."""
    found: dict[str, list[tuple[str, bytes]]] = {name: [] for name in READERS}
    for kind in found.keys() & inputs().keys():
        for suffix, content in inputs()[kind]:
            if isinstance(content, str):
                found[kind].append((suffix, content.encode()))
                continue
            found[kind] += [(".json", json.dumps(content, indent=1).encode()), (".yaml", as_yaml(content).encode())]
            if kind != "model" and not isinstance(content, list):
                found[kind].append((".toml", as_toml(content).encode()))
    found["megatron"] += [(".sh", each.text.encode()) for each in (*SCRIPTS, *LAUNCHED) if not each.refused]
    found["megatron"] += [(suffix, content.encode()) for suffix, content in inputs()["script"]]
    for each in FILES:
        found[each.reader].append((".txt", each.text.encode()))
    fixed: dict[str, Any] = {"tp": 2, "pp": 1, "dp": 8, "zero": 1, "micro_batch": 1, "recompute": "full"}
    for name in registry().plan_readers():
        files: dict[str, str] = {}
        for zero in (1, 3, 0):
            try:
                files = dict(registry().exporters()[name].export(plan({**fixed, "zero": zero})))
                break
            except InputError:
                continue
        for file, text in files.items():
            if file.endswith((".yaml", ".yml", ".json", ".toml", ".sh")):
                found[name].append((Path(file).suffix, text.encode()))
    found["torchtitan"].append((".toml", TITAN.encode()))
    found["nanotron"].append((".yaml", TINY.encode()))
    found["llama-factory"].append((".yaml", re.sub(r"deepspeed:.*\n", "", QWEN_FULL).encode()))
    found["maxtext"] += [(".sh", text.encode()) for text in (MAXTEXT, SIXTEEN)]
    return found


def draw(seed: int, number: int) -> tuple[str, str, bytes]:
    """The reader of a case, the suffix of its file and what is in it."""
    random = Random(f"{seed}/{number}")
    name = random.choice([name for name, known in samples().items() if known])
    suffix, data = random.choice(samples()[name])
    for _ in range(random.choice((1, 1, 2, 3))):
        data = changed(data, random)
    return name, suffix, data


def changed(data: bytes, random: Random) -> bytes:
    """`data` with pieces of one class inserted, something doubled, or something cut."""
    place = random.randrange(len(data) + 1)
    pieces = CLASSES[random.choice(list(CLASSES))]
    action = random.choice(("insert", "insert", "insert", "replace", "double", "cut", "end", "byte", "number"))
    if action == "insert":
        return data[:place] + random.choice(pieces) + data[place:]
    if action == "replace":  # Of one that is there, all that follow each other, with another of its class.
        there = [each for each in pieces if each in data]
        return data.replace(random.choice(there), random.choice(pieces), random.choice((1, -1))) if there else data
    length = random.choice((1, 2, 10, 100, 1000))
    if action == "double":
        times = random.choice((2, 2, 3, 50))
        return data[:place] + data[place : place + length] * times + data[place + length :]
    if action == "cut":
        return data[:place] + data[place + length :]
    if action == "number" and (numbers := list(re.finditer(rb"\d+", data))):
        found = random.choice(numbers)
        return data[: found.start()] + random.choice(NUMBERS) + data[found.end() :]
    if action == "end":
        return data[:place]
    return data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]


class TooLong(BaseException):
    """A reader takes longer than it may."""


def _stop(*_: object) -> None:
    raise TooLong


@contextmanager
def _limited() -> Iterator[None]:
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def outcome(name: str, suffix: str, data: bytes, folder: Path) -> str:
    """`read` or `refused`; else what went wrong."""
    path = folder / f"file{suffix}"
    path.write_bytes(data)
    try:
        with _limited():
            READERS[name](path)
    except InputError as error:
        return "refused" if str(error).strip() else "refused without a word"
    except TooLong:
        return f"longer than {LIMIT} s:\n{traceback.format_exc()[-1500:]}"
    except BaseException:
        return traceback.format_exc()[-3000:]
    return "read"


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutated_inputs.readers")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    slowest, failed = (0.0, -1), 0
    numbers = [asked.only] if asked.only is not None else range(asked.first, asked.first + asked.count)
    with tempfile.TemporaryDirectory(prefix="mutated-") as folder:
        for number in numbers:
            name, suffix, data = draw(asked.seed, number)
            if asked.only is not None:
                print(name, suffix, data)
            begun = time.process_time()
            found = outcome(name, suffix, data, Path(folder))
            slowest = max(slowest, (time.process_time() - begun, number))
            counts[name, found if found in ("read", "refused") else "failed"] += 1
            if found not in ("read", "refused"):
                failed += 1
                print(f"case {number} of seed {asked.seed}, {name}: {found}", flush=True)
    for name in READERS:
        print(f"{name:18}", *(f"{counts[name, end]:>8} {end}" for end in ("read", "refused", "failed")))
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"slowest: {slowest[0]:.2f} s, case {slowest[1]}; memory: {mebibytes:.0f} MiB; failures: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
