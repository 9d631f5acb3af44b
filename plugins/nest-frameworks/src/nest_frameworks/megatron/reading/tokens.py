"""Bash, taken apart into words and operators (POSIX.1-2017, Shell Command Language, 2.2 and 2.3), and gone through."""

import re
from collections.abc import Container, Sequence
from unicodedata import category
from unicodedata import name as name_of

from attrs import evolve, frozen

from nest.errors import InputError

OPERATORS = (";;&", ";&", ";;", "&&", "||", "<<<", ">>", "<<", "&>", ">&", "<&", *";&|()<>\n")
"""The longest first."""

UNKNOWN = "\0"
"""Around what in a word the script does not say, such as the output of a command, which stands in between."""

UNSET = re.compile(rf"{UNKNOWN}\$(\w+){UNKNOWN}")
"""A variable that nothing sets, or an argument that is not given: empty, if nothing around the script sets it."""

_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>\n\"'`$|&;]*[\w)]>")
"""Such as `<path to data>`, for somebody to fill in: no shell would read it so."""

IFS, WORDS = frozenset(" \t\n"), re.compile(r"[^ \t\n]+")
"""Separators of unquoted expanded words without `IFS`, and these words."""

_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_EXPANDED = f"$`{UNKNOWN}"
_SPECIAL = re.compile(r"""[ \t\r\n;&|()<>'"\\$`\0]""")


def check_seen(text: str, place: str = "") -> None:
    """Refuse letters that look like a space, or like nothing, and part no words for a shell.

    Raises:
        InputError: there is one; `place` begins the sentence.
    """
    if text.isascii() and text.isprintable():
        return
    unseen = next((letter for letter in text if letter.isspace() or category(letter) in ("Cc", "Cf")), None)
    if unseen is not None:
        called = name_of(unseen, "a control character").lower()
        raise InputError(
            f"{place}{text.replace(unseen, '?')!r:.60} has U+{ord(unseen):04X} ({called}) where ? stands, "
            "which a shell takes as a letter; write a plain space, or delete it."
        )


def printed(command: str) -> str:
    """The word that stands for what a command prints or reads: only a run would tell."""
    return f"{UNKNOWN}$({command}...){UNKNOWN}"


def named(text: str) -> str:
    """`text` with such variables as the script writes them."""
    return re.sub(r"\$\(line-(\d+):(\w+)[^)]*\)", r"$\2 of line \1", text)


def shown(text: str) -> str:
    """`text` as a reader of the script knows it."""
    return named(text).replace(UNKNOWN, "")


def is_printed(word: str) -> bool:
    """Return whether all of a word is what only a run would tell, so that it may be any number of words."""
    return bool(re.fullmatch(rf"{UNKNOWN}\$[({{][^{UNKNOWN}]*{UNKNOWN}", word))


def settled(text: str) -> str:
    """`text` with empty words for what nothing sets."""
    return UNSET.sub("", text)


def wanted(text: str) -> tuple[str, ...]:
    """Names of variables and numbers of arguments, which nothing sets and `text` hangs on."""
    return tuple(dict.fromkeys(re.findall(r"\$(\w+)", "".join(text.split(UNKNOWN)[1::2]))))


def remedy(text: str) -> str:
    """Words behind `--` that settle what `text` depends on; empty if none would help."""
    names = [name for name in wanted(text) if not name.isdecimal()]
    said = [" ".join(f"{name}=VALUE" for name in names)] if names else []
    last = max((int(name) for name in wanted(text) if name.isdecimal()), default=0)
    said += [f"the script's {last} arguments" if last > 1 else "the script's argument"] if last else []
    return f"`-- {' '.join(said)}`" if said else ""


@frozen
class Piece:
    """A part of a word.

    Attributes:
        kind: `text`, `variable` (`text` is what stands in the braces), `arithmetic`, or `command`, whose output nobody
            knows.
        text: what is written.
        quoted: whether it stands in quotes, so that spaces in it part no words.
    """

    kind: str
    text: str
    quoted: bool


@frozen
class Token:
    """A word, an array in parentheses behind `NAME=`, or an operator.

    Attributes:
        line: where it begins, 1 first.
        pieces: of a word; of an array, those of the name in front.
        operator: empty: it is none.
        array: the words in the parentheses; None: it is no array.
        document: of a word behind `<<`, the lines up to it.
    """

    line: int
    pieces: tuple[Piece, ...] = ()
    operator: str = ""
    array: "tuple[Token, ...] | None" = None
    document: str = ""

    @property
    def bare(self) -> str:
        """The word, where it is written without quotes and expansions; else empty."""
        plain = all(piece.kind == "text" and not piece.quoted for piece in self.pieces)
        return "".join(piece.text for piece in self.pieces) if plain else ""


class Tokenizer:
    """Takes a script apart.

    Attributes:
        text: the script.
        at: place of the next character.
    """

    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at, self._first = 0, line
        self._counted = (0, line)  # A place and its line: counting from the start for every token takes minutes.

    def tokens(self) -> list[Token]:
        """All of them.

        Raises:
            InputError: a quote or a parenthesis is never closed.
        """
        tokens: list[Token] = []
        waiting: list[int] = []
        while (token := self.next()) is not None:
            tokens.append(token)
            if token.operator == "\n":
                for place in waiting:
                    tokens[place] = evolve(tokens[place], document=self._document(tokens[place]))
                waiting = []
            elif tokens[-2:-1] and tokens[-2].operator == "<<":
                waiting.append(len(tokens) - 1)
        return tokens

    def next(self) -> Token | None:
        """The next one; None: that was all."""
        self._skip_blanks()
        if self.at >= len(self.text):
            return None
        line = self._line()
        if self.text.startswith("((", self.at):
            at, inside = self.at, self._balanced("(", ")")
            if inside.endswith(")"):
                return Token(line, (Piece("arithmetic", inside[1:-1], quoted=False),), operator="((")
            self.at = at
        for operator in () if _PLACEHOLDER.match(self.text, self.at) else OPERATORS:
            if self.text.startswith(operator, self.at):
                self.at += len(operator)
                return Token(line, operator=operator)
        return self._word(line)

    def _word(self, line: int) -> Token:
        pieces: list[Piece] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in "'\"":
                pieces += self._quoted(letter)
            elif letter == "\\":
                pieces += self._escaped()
            elif letter in _EXPANDED:
                pieces.append(self._expanded(letter, quoted=False))
            elif placeholder := _PLACEHOLDER.match(self.text, self.at):
                self.at = placeholder.end()
                pieces.append(Piece("text", f"{UNKNOWN}{placeholder.group()}{UNKNOWN}", quoted=True))
            elif _SPECIAL.match(letter):
                break
            else:
                pieces.append(self._plain())
        word = Token(line, tuple(pieces))
        if _ASSIGNS.fullmatch(word.bare) and self.text.startswith("(", self.at):
            self.at += 1
            return Token(line, tuple(pieces), array=self._array(line))
        return word

    def _array(self, line: int) -> tuple[Token, ...]:
        elements: list[Token] = []
        while (token := self.next()) is not None:
            if token.operator == ")":
                return tuple(elements)
            if token.operator not in ("", "\n"):
                raise InputError(
                    f"line {token.line}: `{token.operator}` in an array must stand in quotes for the shell to take it "
                    "as it is."
                )
            elements += [] if token.operator else [token]
        raise InputError(f"line {line}: the array that begins here is never closed.")

    def _plain(self) -> Piece:
        match = _SPECIAL.search(self.text, self.at)
        end = match.start() if match else len(self.text)
        text = self.text[self.at : end]
        check_seen(text, f"line {self._line()}: ")
        self.at = end
        return Piece("text", text, quoted=False)

    def _escaped(self) -> list[Piece]:
        """The character behind a backslash; a line that goes on says nothing."""
        letter = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        return [] if letter == "\n" else [Piece("text", letter or "\\", quoted=True)]

    def _quoted(self, quote: str) -> list[Piece]:
        line, end = self._line(), self.text.find("'", self.at + 1)
        if quote == "'":
            if end < 0:
                raise InputError(f"line {line}: the quote that begins here is never closed.")
            text, self.at = self.text[self.at + 1 : end], end + 1
            return [Piece("text", text, quoted=True)]
        self.at += 1
        pieces: list[Piece] = []
        text = ""
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == '"':
                self.at += 1
                return [*pieces, Piece("text", text, quoted=True)]
            if letter == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                text += self.text[self.at + 1].replace("\n", "")
                self.at += 2
            elif letter in _EXPANDED:
                pieces += [Piece("text", text, quoted=True), self._expanded(letter, quoted=True)]
                text = ""
            else:
                text += letter
                self.at += 1
        raise InputError(f"line {line}: the quote that begins here is never closed.")

    def _expanded(self, mark: str, *, quoted: bool) -> Piece:
        if mark != "$":
            return self._between(mark, quoted=quoted)
        self.at += 1
        rest = self.text[self.at : self.at + 2]
        if rest == "((":
            return Piece("arithmetic", self._balanced("(", ")")[1:-1], quoted)
        if rest[:1] == "(":
            return Piece("command", self._balanced("(", ")"), quoted)
        if rest[:1] == "{":
            return Piece("variable", self._balanced("{", "}"), quoted)
        if rest[:1] == "'" and not quoted:
            return self._quoted("'")[0]
        name = _PLAIN_NAME.match(self.text, self.at)
        if name is None:
            return Piece("text", "$", quoted)
        self.at = name.end()
        return Piece("variable", name.group(), quoted)

    def _between(self, mark: str, *, quoted: bool) -> Piece:
        """Parse between two backquotes, or text expanded before another shell reads it."""
        end = self.text.find(mark, self.at + 1)
        if end < 0 and mark == "`":
            raise InputError(f"line {self._line()}: the backquote that begins here is never closed.")
        start, self.at = self.at, max(end, self.at) + 1
        if mark == "`":
            return Piece("command", self.text[start + 1 : end], quoted)
        return Piece("text", self.text[start : self.at], quoted)

    def _balanced(self, opened: str, closed: str) -> str:
        """Parse up to the bracket that closes this one."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            depth += (letter == opened) - (letter == closed)
            self.at += 1
            if not depth:
                return self.text[start + 1 : self.at - 1]
            if letter == "'" and opened == "(":  # Such as `$(cut -d '(' -f 1)`.
                end = self.text.find(letter, self.at)
                self.at = end + 1 if end >= 0 and "\n" not in self.text[self.at : end] else self.at
        self.at = start
        raise InputError(f"line {self._line()}: the `{opened}` that begins here is never closed.")

    def _skip_blanks(self) -> None:
        """Spaces, lines that go on, and comments."""
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def _document(self, token: Token) -> str:
        """The lines from here up to one that is the word of `token`."""
        start, last = self.at, "".join(piece.text for piece in token.pieces).removeprefix("-")
        while self.at < len(self.text):
            before = self.at
            stop = self.text.find("\n", before)
            self.at = stop + 1 if stop >= 0 else len(self.text)
            if self.text[before : self.at].strip() == last:
                return self.text[start:before]
        return self.text[start:]

    def _line(self) -> int:
        place, line = self._counted if self._counted[0] <= self.at else (0, self._first)
        self._counted = (self.at, line + self.text.count("\n", place, self.at))
        return self._counted[1]


ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=", re.DOTALL)
DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
ENDS = frozenset({"\n", ";", "&"})
ARM_ENDS = frozenset({";;", ";&", ";;&"})
JOINTS = frozenset({"&&", "||", "|"})
REDIRECTIONS = frozenset({"<", ">", ">>", "<<", "<<<", "&>", ">&", "<&"})
CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
END = "end"
SUBMITTERS = frozenset({"sbatch", "qsub"})
SHELLS = frozenset({*SUBMITTERS, "bash", "sh"})
READERS = frozenset({"cat", "echo", "chmod", "cp", "printf", "tee"})
"""Commands that run no script they are given."""
CHANGERS = frozenset({"sed", "cp", "mv", "tee", "install", "envsubst", "dd", "truncate", "wget", "curl"})
"""Commands that may write the files they are given."""
GO_WELL = frozenset({"cd", "conda", "echo", "mkdir", "module", "printf", "sleep", "ulimit", "wait"})
"""Commands that are taken to succeed; how others outside the script end, only a run would tell."""


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
        self.skip((*ENDS, *ARM_ENDS))
        word = self.token.bare
        if word not in words:
            raise InputError(f"line {self.token.line}: expected `{'` or `'.join(words)}` here; is this a bash script?")
        self.at += 1
        return word


def assigns(token: Token) -> bool:
    """Return whether a word is `NAME=...`."""
    first = token.pieces[0] if token.pieces else None
    return first is not None and first.kind == "text" and not first.quoted and bool(ASSIGNMENT.match(first.text))


def is_script(words: Sequence[str], place: int) -> bool:
    """Return whether the word is what a shell is given with `-c`."""
    shell, option = words[place - 2 : place] if place > 1 else ("", "")
    return shell.rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", option) is not None
