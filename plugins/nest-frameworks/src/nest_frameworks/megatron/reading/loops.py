"""Loops of a script, and what else only a run would tell the end of."""

import re
from abc import abstractmethod

from nest_frameworks.megatron.reading.branches import Branching
from nest_frameworks.megatron.reading.expansion import negated
from nest_frameworks.megatron.reading.tokens import ASSIGNMENT, END, ENDS, UNKNOWN, Token
from nest_frameworks.megatron.reading.walked import Walk

MOST_TURNS = 100
"""Most turns of a loop that nest follows one by one."""

_COMPUTED = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:([-+*/%]?)=(?!=)(.*)|(\+|-)\4)\s*", re.DOTALL)
"""`TP *= 2` or `TP++` in arithmetic."""


def _outside(left: str) -> str:
    """Remainder of `return`, `break 2` or `continue 2` behind a loop; empty: none."""
    way, _, loops = left.partition(" ")
    return left if way == "return" else f"{way} {int(loops) - 1}" if loops and int(loops) > 1 else ""


def counted(value: str) -> list[str]:
    """The values of `{1..4}`."""
    ends = re.fullmatch(r"\{(\d{1,4})\.\.(\d{1,4})\}", value)
    return [str(each) for each in range(int(ends[1]), int(ends[2]) + 1)] if ends else [value]


class Looping(Branching):
    """Walks through turns."""

    @abstractmethod
    def words_of(self, token: Token) -> list[str]:
        """Words that a token stands for."""

    def loop_for(self, active: bool) -> None:
        """Each value in turn, as bash takes them; one that stands for all, where only a run would tell them."""
        header = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        counting = ASSIGNMENT.match("".join(piece.text for piece in header.pieces).strip())
        name = counting[1] if header.operator and counting else header.bare
        self.at += 2
        self.skip({"\n"})
        values = list(self.result.variables.get("@", ()))
        if self.token.bare == "in":
            self.at += 1
            values = []
            while self.token.operator not in (END, *ENDS):
                values += [each for value in self.words_of(self.token) for each in counted(value)]
                self.at += 1
        self.close("do")
        if name in self.result.chosen:
            values = [self.result.chosen[name]]
        elif header.operator or len(values) > MOST_TURNS or any(UNKNOWN in value for value in values):
            values = [f"{UNKNOWN}${name}...{UNKNOWN}"]
        start, before = self.at, dict(self.result.variables)
        self.result.loops.append((name, tuple(values)))
        for value in values if active else ():
            self.at = start
            self.result.variables[name] = (value,)
            self.block(active=True)
            if self.turn(header.line):
                break
        if not active or not values:
            self.block(active=False)
        if active and UNKNOWN in "".join(values):  # Any number of turns.
            self.result.differ([dict(self.result.variables), before], header.line)
        self._leave_loop()
        self.close("done")

    def loop_while(self, active: bool) -> None:
        """Turns until the condition, or what only a run changes, ends them."""
        line, start, until = self.token.line, self.at, self.token.bare == "until"
        first = dict(self.result.variables)
        self.result.loops.append(("", ()))
        for _ in range(MOST_TURNS):
            self.at = start + 1
            holds_here = self.condition(active, "do")
            goes_on = active and (negated(holds_here) if until else holds_here)
            self.close("do")
            before = dict(self.result.variables)
            if active and goes_on is None:
                self.result.passed_over.append(line)
                arm = self.arm(line, "")
                self.result.differ([before, *(each for _, each in (*arm.left_with, ("", arm.variables)))], line)
            self.block(active=goes_on is True)
            self.close("done")
            if self.turn(line) or not goes_on or before == self.result.variables:
                break
        else:
            self.result.differ([first, dict(self.result.variables)], line)
        self._leave_loop()

    def _leave_loop(self) -> None:
        """Go on behind `done`."""
        self.result.loops.pop()
        self.result.left_with = [(left, each) for way, each in self.result.left_with if (left := _outside(way))]

    def turn(self, line: int) -> bool:
        """Go on behind a turn of a loop, or a function; whether it ends the loop."""
        result = self.result
        if result.left_with:
            result.differ([dict(result.variables), *(each for _, each in result.left_with)], line)
        left, result.left = result.left, _outside(result.left)
        return left.startswith("break") or bool(result.left)

    def compute(self, text: str, value: str) -> str:
        """The value of arithmetic, which may set a variable."""
        for each in text.split(","):
            if match := _COMPUTED.fullmatch(each):
                name, sign, other, step = match.groups()
                sign, other = (step, "1") if step else (sign, other)
                value = self.expander.arithmetic(f"{name}{sign}({other})" if sign else other)
                self.result.variables[name] = (value,)
        return value

    def doubt(self, line: int, arm: Walk, before: dict[str, tuple[str, ...]]) -> None:
        """Go on behind a command that may have run; how what it is joined to ends, only a run would tell."""
        if arm is self.result and arm.left:
            arm.left_with.append((arm.left, before))
            arm.left = ""
        elif arm is self.result or not arm.left:
            self.result.differ([] if arm.ends else [dict(arm.variables), before], line)
        elif arm.left != "return":  # `|| return`, as `|| exit`, gives up.
            self.result.left_with.append((arm.left, arm.variables))
