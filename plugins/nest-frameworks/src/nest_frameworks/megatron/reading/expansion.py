"""Expansion of words of a script, and its tests, as far as the script says (POSIX.1-2017, section 2.6)."""

import ast
import operator
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase

from nest_frameworks.megatron.reading.schedulers import node_count
from nest_frameworks.megatron.reading.tokens import (
    IFS,
    UNKNOWN,
    WORDS,
    Piece,
    Token,
    Tokenizer,
    settled,
    shown,
    wanted,
)

Variables = MutableMapping[str, tuple[str, ...]]
"""Values by name: one word, or those of an array."""

DEVICE_COUNT = f"{UNKNOWN}$(count-of-devices){UNKNOWN}"
"""Output of a command that counts the devices of a node."""

LARGEST = 2**63
DEEPEST = 20

_IN_PYTHON = ((re.compile("&&"), " and "), (re.compile(r"\|\|"), " or "), (re.compile("!(?!=)"), " not "),
              (re.compile(r"^(.*)\?(.*):(.*)$"), r"(\2) if (\1) else (\3)"))  # fmt: skip
"""Operators of arithmetic, and what Python calls them."""

_SHOWN = re.compile(r"""\s*(?:cat\s+|<\s*)(["']?)([^\s"'`|;&<>()*?-][^\s"'`|;&<>()*?]*)\1\s*(?:\|\s*xargs\s*)?""")
"""A command that prints a file, with or without its lines joined."""

_COUNTS = re.compile(
    r"""\S*python[\d.]*\s.*\bprint\(\s*[\w.]*\bdevice_count\(\)\s*\)["']?(?:\s*2>\S+)?|"""
    r"(?:\S*/)?(?:nvidia|rocm|amd)-smi\s(?:[^|]*\s)?(?:-L|--list-gpus|--query-gpu|list)\b[^|]*\|\s*"
    r"(?:wc\s+-l|grep\s+-c\b.*)",
    re.DOTALL,
)
"""A command that counts the devices of a node: lines of `nvidia-smi --help` and `amd-smi list`, or PyTorch's count."""

_PARAMETER = re.compile(r"(#?)([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(\[[^]]*\])?(.*)", re.DOTALL)
_EVERY = re.compile(r"@|\w+\[@\]")
"""All arguments, or all elements of an array: no word at all, even in quotes, where there are none."""

_DEFAULT = re.compile(r"(:?[-=+?])(.*)", re.DOTALL)


class Expander:
    """Expands words.

    Attributes:
        variables: those the script has set so far.
        file: the content of a file by its name in the script; None: it is not here.
    """

    def __init__(self, variables: Variables, file: Callable[[str], str | None] = lambda _: None) -> None:
        self.variables = variables
        self.file = file
        self.depth = 0

    def words(self, token: Token) -> list[str]:
        """The words a token stands for: none, one, or several where an expansion is not quoted."""
        result: list[str] = []
        joined = none = False  # Whether the next text belongs to the last word found.
        for piece in token.pieces:
            parts = self._parts(piece)
            none = none or (not parts and _EVERY.match(piece.text) is not None)
            if not piece.quoted and piece.kind != "text":
                text = " ".join(parts)
                joined = joined and text[:1] not in IFS
                words = WORDS.findall(text)
            else:
                text, words = "".join(parts[-1:]), parts
            for index, word in enumerate(words):
                if joined and not index:
                    result[-1] += word
                else:
                    result.append(word)
            if words:
                joined = piece.quoted or piece.kind == "text" or text[-1:] not in IFS
            elif text:
                joined = False
        return [] if none and result == [""] else result

    def value(self, token: Token) -> str:
        """Value of a variable; expansions part no words."""
        return "".join(" ".join(self._parts(piece)) for piece in token.pieces)

    def _parts(self, piece: Piece) -> list[str]:
        if piece.kind == "text":
            return [piece.text]
        if piece.kind == "command":
            return [self._printed(piece.text)]
        if piece.kind == "arithmetic":
            return [self.arithmetic(piece.text)]
        return self._parameter(piece.text, piece.quoted)

    def _printed(self, command: str) -> str:
        """Return a command's certain output: the number of nodes or of their devices, or an existing file."""
        if _COUNTS.fullmatch(command.strip()):
            return DEVICE_COUNT
        file = _SHOWN.fullmatch(command)
        name = self._inner(file[2])[0] if file else UNKNOWN
        text = self.file(name) if file else node_count(command, self.variables)
        if text is not None:
            return text.rstrip("\n")
        return _unknown(f"$({command})" if UNKNOWN in name else f"$(<{name})")

    def _parameter(self, text: str, quoted: bool) -> list[str]:
        match = _PARAMETER.fullmatch(text)
        if match is None or self.depth > DEEPEST:
            return [_unknown(f"${{{text}}}")]
        length, name, index, rest = match.groups()
        value = self.variables.get(name)
        if length and not rest:
            return [str(len(value or ()) if index in ("[@]", "[*]") else len((value or ("",))[0]))]
        if name in "@*" and re.fullmatch(r":[1-9]\d?", rest):
            return list((value or ())[int(rest[1:]) - 1 :])
        if length or (rest and not _DEFAULT.fullmatch(rest)):
            return [_unknown(f"${{{text}}}")]
        chosen = value if name in "@*" and not index else self._element(value, index)
        if rest:
            return self._with_default(name, chosen, rest)
        if chosen is None:
            if name in "@*" or not re.fullmatch(r"\w+", name) or (index and index not in ("[@]", "[*]")):
                return [] if name in "@*" else [""]
            return [f"{UNKNOWN}${name}{UNKNOWN}"]
        return [" ".join(chosen)] if index == "[*]" and quoted else list(chosen)

    def _element(self, value: tuple[str, ...] | None, index: str | None) -> tuple[str, ...] | None:
        """Return the values of `$NAME`, `${NAME[@]}` or `${NAME[2]}`."""
        if value is None or index in ("[@]", "[*]"):
            return value
        place = self.arithmetic(index[1:-1]) if index else "0"
        if not re.fullmatch(r"-?[0-9]{1,9}", place):
            return (_unknown(str(index)),)
        return value[int(place) :][:1] or None

    def _with_default(self, name: str, value: tuple[str, ...] | None, rest: str) -> list[str]:
        """`${NAME:-word}` and its like."""
        match = _DEFAULT.fullmatch(rest)
        assert match is not None
        sign, word = match.groups()
        there = value is not None and (not sign.startswith(":") or any(map(settled, value)))
        if sign.endswith("+"):
            return self._inner(word) if there else []
        if there and value is not None:
            return list(value)
        if sign.endswith("?"):
            return [_unknown(f"${name}")]
        default = self._inner(word)
        if sign.endswith("="):
            self.variables[name] = tuple(default)
        return default

    def _inner(self, text: str) -> list[str]:
        """The word behind an operator of a parameter."""
        self.depth += 1
        try:
            tokens = [token for token in Tokenizer(text).tokens() if not token.operator]
            return [" ".join(self.value(token) for token in tokens)] if tokens else [""]
        finally:
            self.depth -= 1

    def arithmetic(self, text: str) -> str:
        """The whole number that `$((text))` is."""
        plain = self._inner(re.sub(r"[()*<>&|;?]", lambda match: "\\" + match.group(), text))[0].strip()
        for pattern, python in _IN_PYTHON:
            plain = pattern.sub(python, plain)
        try:
            return str(_computed(ast.parse(plain or "0", mode="eval").body, self.variables))
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
            names = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", self._named, "".join(text.split()))
            return f"{UNKNOWN}$(({names})){UNKNOWN}"

    def _named(self, match: re.Match[str]) -> str:
        """A name in arithmetic, behind a `$` where nothing sets it."""
        value = " ".join(self.variables.get(match[1], ()))
        return match[1] if settled(value) else f"${(*wanted(value), match[1])[0]}"


def _unknown(text: str) -> str:
    """A word that stands for what `text` would become; one word, whatever spaces there are."""
    words = text.split()
    return f"{UNKNOWN}{text if len(words) == 1 else f'{words[0]}...' if words else ''}{UNKNOWN}"


def unseen(word: str, where: str) -> str:
    """Note on a word that only a run would tell, which is `where`."""
    if file := re.fullmatch(r"\$\(<(.*)\)", shown(word)):
        return (
            f"the content of {file[1]} {where}, but that file is not here, or the script changes it; put it beside "
            "the script, or write its content into the script."
        )
    return (
        f"`{shown(word)}` {where}, and nest does not see what it prints, as it runs nothing; write that "
        "into the script."
    )


def _computed(tree: ast.expr, variables: Mapping[str, Sequence[str]], depth: int = 0) -> int:
    """The value of an arithmetic expression.

    Raises:
        ValueError: it is none, or too large.
    """
    if depth > DEEPEST:
        raise ValueError(depth)
    match tree:
        case ast.Constant(value=int() as number):
            return int(number)
        case ast.Name(id=name) if name in variables:
            value = (variables[name] or ("0",))[0] or "0"
            return _computed(ast.parse(value.strip(), mode="eval").body, variables, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_computed(operand, variables, depth + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not _computed(operand, variables, depth + 1))
        case ast.BoolOp(op=joint, values=operands):
            truths = [bool(_computed(each, variables, depth + 1)) for each in operands]
            return int(all(truths) if isinstance(joint, ast.And) else any(truths))
        case ast.IfExp(test=test, body=body, orelse=other):
            return _computed(body if _computed(test, variables, depth + 1) else other, variables, depth + 1)
        case ast.BinOp(left=left, op=sign, right=right) | ast.Compare(left=left, ops=[sign], comparators=[right]):
            first, second = (_computed(side, variables, depth + 1) for side in (left, right))
            outcome = int(_OPERATIONS[type(sign)](first, second)) if type(sign) in _OPERATIONS else LARGEST
            if abs(outcome) < LARGEST:
                return outcome
    raise ValueError(ast.dump(tree))


def _quotient(first: int, second: int) -> int:
    """Division drops the remainder, as C's does."""
    return abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)


_OPERATIONS: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Mod: lambda first, second: first - _quotient(first, second) * second,
    ast.Pow: lambda first, second: int(first**second) if 0 <= second < 64 else LARGEST,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


_NUMBERS = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def holds(words: Sequence[str]) -> bool | None:
    """Return whether the test in `words`, without its brackets, holds; None: the script does not say.

    Files are not looked at, so what hangs on them is not said either.
    """
    for joints, combined in ((("||", "-o"), either), (("&&", "-a"), _both)):
        for joint in joints:
            if joint in words:
                at = list(words).index(joint)
                return combined(holds(words[:at]), holds(words[at + 1 :]))
    if words[:1] == ["!"]:
        return negated(holds(words[1:]))
    if any(UNKNOWN in word for word in words):
        return None
    match list(words):
        case []:
            return False
        case [word] | ["-n", word]:
            return bool(word)
        case ["-z", word]:
            return not word
        case [first, "=" | "==", second]:
            return fnmatchcase(first, second)
        case [first, "!=", second]:
            return not fnmatchcase(first, second)
        case [first, comparison, second] if comparison in _NUMBERS:
            try:
                return bool(_NUMBERS[comparison](int(first), int(second)))
            except ValueError:
                return False
    return None


def either(first: bool | None, second: bool | None) -> bool | None:
    """Return whether one of two holds; None: that hangs on what nobody knows."""
    if first or second:
        return True
    return None if first is None or second is None else False


def _both(first: bool | None, second: bool | None) -> bool | None:
    return negated(either(negated(first), negated(second)))


def negated(value: bool | None) -> bool | None:
    """Return whether `value` does not hold."""
    return None if value is None else not value
