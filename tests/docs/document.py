"""Markdown documents as programs: the commands, Python blocks and files they show, and what these print.

A fenced `console` block holds commands behind `$ `, each followed by what it prints; only `nest` and `python` commands
may stand there. A `python` block is run; where the next block is `text`, that is what it prints. A comment in front of
a block says more: `<!-- file: NAME -->` makes the block a file of that name, `<!-- exit: 1 -->` gives the exit code its
last command ends with, `<!-- columns: 80 -->` runs its commands on a terminal of that width, `<!-- install: FOLDER -->`
installs the distribution in that folder, `<!-- slow -->` leaves it to `pytest -m slow`, also behind an exit code
(`<!-- exit: 1, slow -->`), `<!-- not run -->` leaves it alone.
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import evolve, frozen

from tests import processes
from tests.cli.pseudo_terminal import on_terminal
from tests.docs.install import install

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^(```+)(\w*)\s*$")
REMARK = re.compile(r"^<!-- (?=\S)(?:(?:(file|exit|columns|install): (\S+?))?(?:, )?(not run|slow)?) -->$")
LONGEST = 120
"""Seconds after which a command counts as hung."""


@frozen
class Block:
    """A fenced block.

    Attributes:
        language: the word behind the fence.
        lines: its content.
        start: index of its first line in the document.
        file: the file it is, if any.
        exit: exit code its last command ends with.
        columns: of the terminal its commands run on; 0: on none.
        idle: whether it is left alone.
        slow: whether it takes too long for the default run.
        install: the folder of the distribution it installs, if any.
    """

    language: str
    lines: tuple[str, ...]
    start: int
    file: str | None = None
    exit: int = 0
    columns: int = 0
    idle: bool = False
    slow: bool = False
    install: str | None = None


@frozen
class Step:
    """Something a reader of the document does.

    Attributes:
        arguments: the command; empty for a file to be written.
        file: the file to be written.
        content: of the file, or of the standard input of the command.
        install: the folder of a distribution to be installed.
        expected: lines the command prints according to the document; None: it does not say.
        start: index in the document of the first of these lines.
        exit: exit code the command ends with.
        columns: of the terminal the command runs on; 0: on none.
        slow: whether it takes too long for the default run.
    """

    arguments: tuple[str, ...] = ()
    file: str = ""
    content: str = ""
    install: str = ""
    expected: tuple[str, ...] | None = None
    start: int = 0
    exit: int = 0
    columns: int = 0
    slow: bool = False


@frozen
class Outcome:
    """What a command did.

    Attributes:
        step: the command.
        printed: lines on standard output, then on standard error.
        exit: exit code.
    """

    step: Step
    printed: tuple[str, ...]
    exit: int


def documents() -> tuple[Path, ...]:
    """The Markdown files of the repository, relative to it."""
    places = [REPOSITORY.glob("*.md"), *(REPOSITORY.glob(f"{folder}/**/*.md") for folder in ("docs", "examples"))]
    places += [REPOSITORY.glob("benchmarks/**/*.md"), REPOSITORY.glob("plugins/*/README.md")]
    return tuple(sorted(path.relative_to(REPOSITORY) for place in places for path in place))


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document."""
    found: list[Block] = []
    fence, language, start, remark = "", "", 0, None
    lines = text.splitlines()
    for index, line in enumerate(lines):
        match = FENCE.match(line)
        if not fence and match is not None:
            fence, language, start = match[1], match[2], index + 1
        elif fence and line.strip() == fence:
            block = Block(language, tuple(lines[start:index]), start)
            found.append(_remarked(block, remark))
            fence, remark = "", None
        elif not fence and line.strip():
            remark = REMARK.match(line)
    return found


def _remarked(block: Block, remark: re.Match[str] | None) -> Block:
    if remark is None:
        return block
    block = evolve(block, idle=remark[3] == "not run", slow=remark[3] == "slow")
    value = int(remark[2]) if remark[1] in ("exit", "columns") else remark[2]
    return evolve(block, **({remark[1]: value} if remark[1] else {}))


def steps(text: str) -> list[Step]:
    """What a reader of the document does, in order."""
    found: list[Step] = []
    all_blocks = blocks(text)
    for index, block in enumerate(all_blocks):
        if block.file is not None:
            found.append(Step(file=block.file, content="\n".join(block.lines) + "\n"))
        elif block.idle:
            continue
        elif block.install is not None:
            found.append(Step(install=block.install))
        elif block.language == "console":
            found += _commands(block)
        elif block.language == "python":
            printed = next((each for each in all_blocks[index + 1 : index + 2] if each.language == "text"), None)
            found.append(
                Step(
                    arguments=("python", "-"),
                    content="\n".join(block.lines) + "\n",
                    expected=printed.lines if printed else None,
                    start=printed.start if printed else 0,
                    slow=block.slow,
                )
            )
    return found


def _commands(block: Block) -> Iterator[Step]:
    starts = [index for index, line in enumerate(block.lines) if line.startswith("$ ")]
    if not starts or starts[0] != 0:
        raise ValueError(f"line {block.start + 1}: a console block starts with a command behind '$ '")
    for index, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        arguments = tuple(shlex.split(block.lines[index][2:]))
        if arguments[0] not in ("nest", "python"):
            raise ValueError(f"line {block.start + index + 1}: {arguments[0]} is not a command that is run here")
        last = end == len(block.lines)
        yield Step(
            arguments,
            expected=block.lines[index + 1 : end],
            start=block.start + index + 1,
            exit=block.exit if last else 0,
            columns=block.columns,
            slow=block.slow,
        )


def run(text: str, folder: Path, only: Callable[[Step], bool] = lambda _: True) -> Iterator[Outcome]:
    """Do what the document says in `folder`, which sees the repository's folders, and yield what commands did."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("examples", "docs", "benchmarks", "plugins", "tools"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder.parent / "shared").symlink_to(REPOSITORY.parent / "shared")
    for step in filter(only, steps(text)):
        if step.file:
            path = folder / step.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.content)
        elif step.install:
            install(folder / step.install, folder)
        else:
            yield _outcome(step, folder)


def _outcome(step: Step, folder: Path) -> Outcome:
    program, *arguments = step.arguments
    if step.columns:
        errors, plain = folder.parent / "errors", {"NO_COLOR": "1"}
        shown = on_terminal(arguments, step.columns, folder=folder, environment=plain, seconds=LONGEST, errors=errors)
        lines = [*shown.lines, *shown.errors.splitlines()]
        errors.unlink()
        return Outcome(step, tuple(line.rstrip() for line in lines), shown.code)
    module = ["-m", "nest"] if program == "nest" else []
    done = processes.run([sys.executable, *module, *arguments], cwd=folder, given=step.content, timeout=LONGEST)
    printed = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return Outcome(step, tuple(line.rstrip() for line in printed), done.returncode)
