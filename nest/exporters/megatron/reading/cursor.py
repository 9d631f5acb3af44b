"""The place in a launch script where a reader is."""

import re
from collections.abc import Container, Sequence

from nest.errors import InputError
from nest.exporters.megatron.reading.tokens import Token

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=", re.DOTALL)
DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
ENDS = frozenset({"\n", ";", "&"})
JOINTS = frozenset({"&&", "||", "|"})
REDIRECTIONS = frozenset({"<", ">", ">>", "<<", "<<<", "&>", ">&", "<&"})
CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
END = "end"
SUBMITTERS = frozenset({"sbatch", "qsub"})
SHELLS = frozenset({*SUBMITTERS, "bash", "sh"})


class Cursor:
    """Goes through tokens, the last of which is `END`."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = [*tokens, Token(tokens[-1].line if tokens else 1, operator=END)]
        self.at = 0

    @property
    def token(self) -> Token:
        """The next one."""
        return self.tokens[min(self.at, len(self.tokens) - 1)]

    def skip(self, operators: Container[str]) -> None:
        """Go past operators."""
        while self.token.operator in operators:
            self.at += 1

    def read_over(self) -> None:
        """Go past a list in parentheses."""
        line, depth = self.token.line, 0
        while self.token.operator != END:
            depth += {"(": 1, ")": -1}.get(self.token.operator, 0)
            self.at += 1
            if not depth:
                return
        raise InputError(f"line {line}: the parenthesis that opens here is never closed.")

    def close(self, *words: str) -> str:
        """Go past one of `words`, which must come next."""
        self.skip((*ENDS, ";;"))
        word = self.token.bare
        if word not in words:
            raise InputError(f"line {self.token.line}: expected `{'` or `'.join(words)}` here; is this a bash script?")
        self.at += 1
        return word


def counted(value: str) -> list[str]:
    """The values of `{1..4}`."""
    ends = re.fullmatch(r"\{(\d{1,4})\.\.(\d{1,4})\}", value)
    return [str(each) for each in range(int(ends[1]), int(ends[2]) + 1)] if ends else [value]


def assigns(token: Token) -> bool:
    """Whether a word is `NAME=...`."""
    first = token.pieces[0] if token.pieces else None
    return first is not None and first.kind == "text" and not first.quoted and bool(ASSIGNMENT.match(first.text))


def is_script(words: Sequence[str], place: int) -> bool:
    """Whether the word is what a shell is given with `-c`."""
    shell, option = words[place - 2 : place] if place > 1 else ("", "")
    return shell.rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", option) is not None
