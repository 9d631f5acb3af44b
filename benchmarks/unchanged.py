"""Whether a change of the code changed an answer: what nest writes and prints, before and after, byte by byte.

`python -m benchmarks.unchanged record DIRECTORY` runs the commands below on the examples (and, with --data, on the
files of a folder of real-world data) and keeps standard output, standard error and exit code of each, and the files it
wrote. `python -m benchmarks.unchanged compare BEFORE AFTER` prints every file that differs. With `--words FILE` lines
of `old<TAB>new` are applied to texts and pages of both sides first, and columns are not compared, so that a renamed
word is no difference while a changed figure still is.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SLOW_TO_SOLVE = ("deepseek-v3-on-2048-h100",)  # Left out unless --all: 40 s.
SLOW_TO_QUESTION = (
    "llama-3-70b-on-128-h100",
    "llama-3.1-405b-on-1024-h100",
    "llama-3-8b-at-131072-tokens",
    "mixtral-8x7b-on-64-h100",
)


def _run(directory: Path, name: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    finished = subprocess.run(
        [sys.executable, "-m", "nest", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "100", "PYTHONHASHSEED": "0", "NEST_CACHE": ""},
        check=False,
    )
    text = f"{finished.stdout}\n--- standard error\n{finished.stderr}\n--- exit code {finished.returncode}\n"
    text = text.replace(str(directory), "DIRECTORY").replace(str(EXAMPLES.parent), "CHECKOUT")
    (directory / f"{name}.txt").write_text(text, encoding="utf-8")
    return finished


def _example(directory: Path, example: Path, exporters: list[str], questions: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    problem, plan = str(example / "problem.yaml"), str(directory / "plan.json")
    _run(directory, "solve", ["solve", problem, "--output", plan])
    _run(directory, "solve-as-json", ["solve", problem, "--json"])
    _run(directory, "solve-everything", ["solve", problem, "--target", "none", "--time-limit", "300"])
    _run(directory, "check", ["check", plan])
    _run(directory, "evaluate", ["evaluate", problem])
    _run(directory, "evaluate-as-json", ["evaluate", problem, "--json"])
    _run(directory, "simulate", ["simulate", plan, "--trace", str(directory / "trace.json")])
    _run(directory, "simulate-as-json", ["simulate", plan, "--json", "--jitter", "0.1", "--runs", "3"])
    _run(directory, "shortlist", ["solve", problem, "--best", "3"])
    for exporter in exporters:
        _run(directory, f"export-{exporter}", ["export", plan, "--to", exporter, "--nearest"])
    without = [] if questions else ["--without", "alternatives", "--without", "frontier", "--without", "sensitivity"]
    _run(directory, "report", ["report", plan, "--output", str(directory / "report.html"), *without])
    if questions:
        _run(directory, "explain", ["explain", plan])
        _run(directory, "explain-as-json", ["explain", plan, "--json"])
    if (script := example / "run.sh").exists():
        _run(directory, "evaluate-script", ["evaluate", problem, "--from-megatron", str(script), "--against-best"])
        _run(directory, "compare", ["compare", problem, "--from-megatron", str(script)])


def _listings(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for listing in ("devices", "clusters", "stacks", "strategies", "models"):
        _run(directory, listing, [listing])
        _run(directory, f"{listing}-as-json", [listing, "--json"])
    _run(directory, "exporters", ["export", "--list"])


def _data(directory: Path, data: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, config in enumerate(sorted((data / "hf_configs").glob("*.json"))):
        _run(directory, f"model-{number:02}-{config.stem}", ["models", str(config), "--json"])
    for network in sorted(path for path in (data / "topologies").rglob("*") if path.is_file()):
        name = "-".join(network.relative_to(data / "topologies").parts)
        _run(directory, f"topology-{name}", ["topology", "import", str(network)])
    for line, row in enumerate((data / "fidelity" / "measured.jsonl").read_text(encoding="utf-8").splitlines()[::25]):
        problem = directory / f"measured-{line:02}.json"
        problem.write_text(json.dumps(json.loads(row)["problem"]), encoding="utf-8")
        _run(directory, f"measured-{line:02}", ["evaluate", str(problem), "--json"])
    for line, row in enumerate((data / "small" / "optima.jsonl").read_text(encoding="utf-8").splitlines()[::8]):
        problem = directory / f"small-{line:02}.json"
        problem.write_text(json.dumps(json.loads(row)["problem"]), encoding="utf-8")
        _run(directory, f"small-{line:02}", ["solve", str(problem), "--json", "--verify"])


def record(directory: Path, data: Path | None, everything: bool, only: list[str]) -> None:
    """Writes what every command says, a folder for each example, for the listings and for the data."""
    directory.mkdir(parents=True)
    directory = directory.resolve()
    listed = json.loads(_run(directory, "exporters", ["export", "--list", "--json"]).stdout)
    exporters = [entry["name"] for entry in listed["exporters"]]
    with ThreadPoolExecutor(max_workers=2) as pool:
        waited = [pool.submit(_listings, directory / "listings")]
        if data is not None:
            waited.append(pool.submit(_data, directory / "data", data.resolve()))
        for example in sorted(path for path in EXAMPLES.iterdir() if (path / "problem.yaml").exists()):
            if example.name in only or (not only and (everything or example.name not in SLOW_TO_SOLVE)):
                questions = everything or example.name not in SLOW_TO_QUESTION
                waited.append(pool.submit(_example, directory / example.name, example, exporters, questions))
        for work in waited:
            work.result()


def _texts(directory: Path, words: list[tuple[str, str]]) -> dict[str, str]:
    texts = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        if path.suffix in {".txt", ".html"}:
            for old, new in words:
                text = text.replace(old, new)
            if words:  # A word of another length moves what stands behind it, and the rule below it.
                text = re.sub(r"-{2,}", "--", re.sub(r" +", " ", text))
        texts[str(path.relative_to(directory))] = text
    return texts


def differences(before: Path, after: Path, words: list[tuple[str, str]]) -> Iterator[str]:
    """Unified differences, file by file; none where both sides hold the same files with the same bytes."""
    one, other = _texts(before, words), _texts(after, words)
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other:
            yield f"only {'after' if name in other else 'before'}: {name}"
        elif one[name] != other[name]:
            lines = difflib.unified_diff(
                one[name].splitlines(), other[name].splitlines(), f"before/{name}", f"after/{name}", "", "", 0, ""
            )
            yield "\n".join(line[:400] for line in list(lines)[:40])


def main() -> int:
    """Exit code 1 where `compare` found a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record")
    recording.add_argument("directory", type=Path)
    recording.add_argument("--data", type=Path, help="folder of real-world files and measured runs")
    recording.add_argument("--all", action="store_true", help="also what takes minutes")
    recording.add_argument("--only", action="append", default=[], metavar="EXAMPLE", help="may be repeated")
    comparing = actions.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--words", type=Path, help="lines of old<TAB>new: renamed words")
    asked = parser.parse_args()
    if asked.action == "record":
        record(asked.directory, asked.data, asked.all, asked.only)
        return 0
    words = []
    if asked.words is not None:
        words = [
            (old, new)
            for old, new in (line.split("\t") for line in asked.words.read_text(encoding="utf-8").splitlines() if line)
        ]
    found = list(differences(asked.before, asked.after, words))
    print("\n".join(found) if found else "no difference")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
