"""A launch script, walked through without running anything: what it sets, and what it would call."""

import re
from collections.abc import Mapping, Sequence

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest_frameworks.megatron.reading.expansion import Expander, holds
from nest_frameworks.megatron.reading.loops import Looping
from nest_frameworks.megatron.reading.schedulers import directives, submitted
from nest_frameworks.megatron.reading.tokens import (
    ARM_ENDS,
    ASSIGNMENT,
    CHANGERS,
    CLOSERS,
    DECLARATIONS,
    END,
    ENDS,
    GO_WELL,
    JOINTS,
    READERS,
    REDIRECTIONS,
    SHELLS,
    SUBMITTERS,
    UNKNOWN,
    UNSET,
    Token,
    Tokenizer,
    assigns,
    is_script,
    printed,
    settled,
    shown,
    wanted,
)
from nest_frameworks.megatron.reading.walked import (
    SETTERS,
    Call,
    Walk,
    beginning,
    called_with,
    count_tasks,
    set_by,
    set_differently,
)

MOST_WALKS = 1000
DEEPEST = 50

_INNER = re.compile(r"\S\s+\S*\.py\s")  # A word that is a command line itself.


def walk(text: str, options: LaunchOptions | None = None) -> Walk:
    """Walk through a script.

    `options`: what is said of the launch beside it; None: nothing.

    Raises:
        InputError: it is no script; the text names the line.
    """
    result = beginning(text, options or LaunchOptions())
    _Walker(Tokenizer(text).tokens(), result).block(active=True)
    return result


class _Walker(Looping):
    """Walks through tokens; what is not active is read over."""

    def __init__(self, tokens: Sequence[Token], result: Walk, depth: int = 0, around: tuple[str, ...] = ()) -> None:
        super().__init__(tokens, result)
        self.depth = depth
        self.around = around
        self.tested = False  # Whether the last command was a test.
        self.outside = False  # Whether only a run would tell how it ended.
        self.local: dict[str, tuple[str, ...] | None] | None = None  # What the function's own variables hide.

    def block(self, *, active: bool) -> None:
        """Commands up to a word that closes them."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"line {self.token.line}: the script is nested more than {DEEPEST} levels deep.")
        joint, doubted, piped = "", False, False
        result: bool | None = None
        listed = element = dict(self.result.variables)  # Before `a && b`, and before what stands between two `|`.
        while (token := self.token).operator not in (END, ")", *ARM_ENDS) and token.bare not in CLOSERS:
            if token.operator in ENDS or token.operator in JOINTS:
                if token.operator == "&":
                    self.result.restore(listed)
                element, piped = dict(self.result.variables), False
                if token.operator in (";", "&") or (token.operator == "\n" and joint not in JOINTS):
                    listed, doubted = element, False
                if token.operator != "\n":  # What is joined may stand on the next line.
                    joint = token.operator
                self.at += 1
            else:
                active = active and not self.result.left
                runs, piped = self._runs(joint, result), piped or joint == "|"
                doubted = doubted or (joint in ("&&", "||") and result is None and self.outside)
                if runs is None and active:
                    self.join(token.line, self.asked, [self.arm(token.line, "", alone=True)], taken=False)
                arm = self.arm(token.line, "", alone=True) if doubted and active and runs is False else None
                ran = self.command(active=active and runs is True)
                if doubted and active and runs is not None:
                    self.doubt(token.line, arm or self.result, element)
                if piped or self.token.operator == "|":
                    self.result.restore(element)
                result = ran if runs else result
                joint = ""
        self.depth -= 1

    def _runs(self, joint: str, result: bool | None) -> bool | None:
        """Return whether a command behind `&&` or `||` runs; commands nobody knows the end of are taken to go well."""
        if joint not in ("&&", "||"):
            return True
        return None if result is None and self.tested else (result is not False) == (joint == "&&")

    def arm(self, line: int, how: str, *, alone: bool = False) -> Walk:
        """Effects of the commands from here on, or of the first `alone`, if `line` lets them run."""
        walker = _Walker(self.tokens, self.result.apart(line, how), self.depth, self.around)
        walker.at, walker.local = self.at, self.local
        if alone:
            walker.command(active=True)
        else:
            walker.block(active=True)
        self.result.walks = walker.result.walks
        return walker.result

    def command(self, *, active: bool) -> bool | None:
        """One command; whether it succeeds, None: nobody knows."""
        token = self.token
        compound = {
            "if": self.branch_if,
            "case": self.branch_case,
            "for": self.loop_for,
            "while": self.loop_while,
            "until": self.loop_while,
        }
        if token.operator == "(":
            self.at += 1
            with self.result.aside():
                self.block(active=active)
            if self.token.operator != ")":
                raise InputError(f"line {token.line}: the parenthesis that opens here is never closed.")
            self.at += 1
        elif token.operator == "((":
            self.at += 1
            value = self.expander.value(token)
            self.tested, self.asked = True, self.asked + value
            if unset := wanted(value):  # Zero, as bash has it.
                known = {**dict.fromkeys(unset, ("0",)), **self.result.variables}
                value = Expander(known, self.result.files.text).value(token)
            if active:
                value = self.compute(token.pieces[0].text, value)
            return None if UNKNOWN in value else value != "0"
        elif token.operator in REDIRECTIONS:
            self.at += 2
        elif token.operator:
            raise InputError(f"line {token.line}: `{token.operator}` stands where a command should.")
        elif token.bare in compound:
            compound[token.bare](active)
        elif token.bare == "function":  # Its parentheses may be left out.
            name = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
            self.at += 2
            self._function(token.line, [name])
        elif token.bare == "{":
            self.at += 1
            self.block(active=active)
            self.close("}")
        else:
            return self._simple(active)
        return None

    def _simple(self, active: bool) -> bool | None:
        """Assignments, then a command and its words."""
        line = self.token.line
        parts: list[Token] = []
        documents: list[Token] = []
        written: list[Token] = []
        target = ""
        while (token := self.token).operator not in (END, ")", *ARM_ENDS, *ENDS):
            inside = bool(parts) and parts[0].bare == "[["
            if token.operator in REDIRECTIONS:
                if parts and parts[-1].bare.isdigit():
                    parts.pop()
                self.at += 1
                if active and self.token.document and parts and parts[0].bare in SHELLS:
                    documents.append(self.token)
                elif active and self.token.document:
                    written.append(self.token)
                elif active and ">" in token.operator:
                    target = self.expander.value(self.token)
                    self.result.files.changed.add(target)
                self.at += 1
                continue
            if token.operator in JOINTS and not inside:
                break
            if token.operator == "(":
                self._function(line, parts)
                return None
            parts.append(token)
            self.at += 1
            if inside and token.bare == "]]":
                break
        for document in documents:  # The shell has put the values of variables in before.
            text = document.document
            self._asked_for(self._document(document), [word for part in parts for word in self.words_of(part)])
            with self.result.aside():
                self._inner(text.replace("\\$", "$"), document.line + 1)
        if written and parts[:1] and parts[0].bare == "tee":
            target = self.expander.value(parts[-1])
        for token in written:
            self.result.files.written[target] = self._document(token)
            self.result.files.changed.discard(target)
        return self._perform(parts, line) if active else None

    def _document(self, token: Token) -> str:
        """Text of a here-document, unexpanded if its word is quoted."""
        if any(piece.quoted for piece in token.pieces):
            return token.document
        quoted = token.document.replace('"', '\\"')
        return "".join(self.expander.value(each) for each in Tokenizer(f'"{quoted}"').tokens())

    def _inner(self, text: str, line: int, around: tuple[str, ...] = ()) -> None:
        """Walk through what another shell is given, with the variables known here."""
        self._walk(Tokenizer(text, line).tokens(), around)

    def _walk(
        self, tokens: Sequence[Token], around: Sequence[str], arguments: Sequence[str] | None = None, own: str = ""
    ) -> None:
        """Walk through tokens that stand elsewhere, with `$1` and so on where arguments are given."""
        self.result.walks += 1
        if self.result.walks > MOST_WALKS:
            raise InputError(f"line {self.token.line}: the script calls its functions more than {MOST_WALKS} times.")
        walker = _Walker(tokens, self.result, self.depth, (*self.around, *around))
        walker.local = {} if own else self.local
        outer, self.result.left_with = self.result.left_with, []
        with called_with(self.result.variables, arguments):
            walker.block(active=True)
            self.turn(self.token.line)
        self.result.left, self.result.left_with = "", outer
        self._restore(walker.local or {} if own else {})

    def _restore(self, variables: Mapping[str, tuple[str, ...] | None]) -> None:
        """Give variables their values from before; None: they had none."""
        self.result.variables |= {name: value or () for name, value in variables.items()}
        for name in (name for name, value in variables.items() if value is None):
            del self.result.variables[name]

    def _perform(self, parts: list[Token], line: int) -> bool | None:
        """Assignments, of which those in front of a command are its own, then that command."""
        rest, self.tested, self.outside = list(parts), False, False
        at = next((place for place, token in enumerate(rest) if not assigns(token)), len(rest))
        if 0 < at < len(rest) and rest[at].bare not in DECLARATIONS:
            words = [word for token in rest[at:] for word in self.words_of(token)]
            before = dict(self.result.variables)
            prefixed = [self._assign(token) for token in rest[:at]]
            result = self._called(rest[at:], line, words)
            self._restore({name: before.get(name) for name in prefixed})
            return result
        while rest and (rest[0].bare in DECLARATIONS or assigns(rest[0])):
            token = rest.pop(0)
            if token.bare in DECLARATIONS:
                rest = self._declare(token.bare, rest)
            else:
                self._assign(token)
        return self._called(rest, line, [word for each in rest for word in self.words_of(each)]) if rest else True

    def _declare(self, command: str, rest: Sequence[Token]) -> list[Token]:
        """`local` and its like; what they assign is returned."""
        words = [word for each in rest if not assigns(each) for word in self.words_of(each)]
        flags = "".join(word for word in words if word.startswith("-"))
        names = [each.pieces[0].text.partition("=")[0].rstrip("+") for each in rest if assigns(each)]
        bare = [word for word in words if word.isidentifier()]
        if self.local is not None and command in ("local", "declare", "typeset") and "g" not in flags:
            for name in (*names, *bare):
                self.local.setdefault(name, self.result.variables.get(name))
            for name in bare:
                self.result.variables.pop(name, None)
        self.result.declare(words)
        if "n" not in flags or command == "export":
            return [each for each in rest if assigns(each)]
        for each in filter(assigns, rest):  # What is set by another name is not known.
            name = self.expander.value(each).partition("=")[2]
            self.result.variables[name] = (set_differently(name, each.line),)
        return []

    def _called(self, rest: list[Token], line: int, words: list[str]) -> bool | None:
        """A command and its words."""
        first = rest[0].bare
        if first in ("[", "[[", "test"):
            self.tested = True
            self.asked += "".join(self.expander.value(token) for token in rest)
            return holds(self._test_words(rest))
        if first == "unset":
            for token in rest[1:]:
                self.result.variables.pop(token.bare, None)
            return True
        self.outside = True
        if words[:1] == ["!"]:
            return None
        words = words[1:] if words and UNSET.fullmatch(words[0]) else words  # Such as $DEBUG or $SUDO.
        if words and words[0] in self.result.functions:
            self._walk(self.result.functions[words[0]], (), words[1:], own=first)
            return None
        self.outside = False
        if first in ("break", "continue", "return"):
            count = "".join(words[1:2])
            self.result.left = f"{first} {count}" if count.isdecimal() and first != "return" else first
        elif first in ("source", ".") and words[1:]:
            self._source(words[1], (), words[2:] or None)
        elif first == "cd" and words[1:]:
            self.result.files.enter(words[1])
        elif first in SETTERS or " ".join(words[:2]) in SETTERS:
            set_by(words, self.result.variables)
        elif first == "eval" and (_INNER.search(" ".join(words)) or ASSIGNMENT.match(" ".join(words[1:]))):
            self._inner(" ".join(words[1:]), line)
        elif first == "let":
            return self.compute(",".join(words[1:]), UNKNOWN) != "0" or None
        elif words:
            self.outside = first not in GO_WELL
            words += [printed("xargs")] if first == "xargs" else []
            self.result.files.changed |= {*words[1:]} if first in CHANGERS else set()
            loops, branches = tuple(self.result.loops), self.result.branches
            self.result.calls.append(Call(line, tuple(words), self.around, loops, branches, self.result.texts))
            self.result.ends = self.result.ends or first == "exit"
            for place, word in enumerate(words):  # Such as `bash -c "torchrun ..."`.
                if _INNER.search(word) or is_script(words, place):
                    with self.result.aside():
                        self._inner(word, line, tuple(words[:place]))
            at = next((place for place, word in enumerate(words) if word.endswith(".sh")), None)
            if at is not None and first not in READERS:
                self._run(words, at)
        if first == "getopts" and not self.result.variables.get("@"):
            return False
        return {"true": True, ":": True, "false": False}.get(first)

    def _run(self, words: Sequence[str], at: int) -> None:
        """Walk through the script that a command runs, where it is here."""
        text = self.result.files.text(words[at])
        if text is None:
            self.result.absent_runs.append(shown(words[at]))
            return
        if words[0] in SUBMITTERS:
            self._asked_for(text, words[:at])
        with self.result.aside():
            self._source(words[at], words[:at], words[at + 1 :])

    def _asked_for(self, text: str, words: Sequence[str]) -> None:
        """Set what a script's lines for the scheduler say, and the options it is submitted with, which win."""
        said = (*directives(text), *(submitted(words[1:]) if words[0] in SUBMITTERS else ()))
        self.result.variables |= {name: (value,) for name, value in said if UNKNOWN not in value}
        count_tasks(self.result.variables)

    def _source(self, name: str, around: Sequence[str], arguments: Sequence[str] | None) -> None:
        """Walk through another script, where it is here."""
        text = self.result.files.text(name)
        if text is None:
            self.result.absent.append(shown(name))
        else:
            self._walk(Tokenizer(text).tokens(), around, arguments)

    def words_of(self, token: Token) -> list[str]:
        """Words that a token stands for."""
        if token.array is None:
            return self.expander.words(token)
        return [self.expander.value(token), *self._elements(token)]

    def _elements(self, token: Token) -> tuple[str, ...]:
        return tuple(word for each in token.array or () for word in self.expander.words(each))

    def _test_words(self, tokens: list[Token]) -> list[str]:
        """The words of a test, one for each token: `[[` parts no words, and `[` has quotes where it counts."""
        words = [token.operator or settled(self.expander.value(token)) for token in tokens[1:]]
        return words[:-1] if tokens[0].bare != "test" and words[-1:] in (["]"], ["]]"]) else words

    def _assign(self, token: Token) -> str:
        """Set a variable, whose name is returned."""
        match = ASSIGNMENT.match(token.pieces[0].text)
        assert match is not None
        name, index, added = match.groups()
        before = self.result.variables.get(name, ()) if added else ()
        if token.array is not None:
            self.result.variables[name] = (*before, *self._elements(token))
            return name
        value = self.expander.value(token)[match.end() :] if not index else f"{UNKNOWN}{name}{index}{UNKNOWN}"
        self.result.variables[name] = ("".join(before[:1]) + value, *before[1:])
        return name

    def _function(self, line: int, parts: Sequence[Token]) -> None:
        """`name() { ... }`; anything else with a parenthesis behind words is read over."""
        if self.token.operator == "(":
            self.read_over()
        self.skip({"\n"})
        if self.token.bare != "{":
            self.result.passed_over.append(line)
            return
        start = self.at + 1
        self.command(active=False)
        if parts:
            self.result.functions[parts[-1].bare] = self.tokens[start : self.at - 1]
