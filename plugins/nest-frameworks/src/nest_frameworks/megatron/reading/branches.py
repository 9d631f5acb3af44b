"""Arms of a script's `if` and `case`: the one that runs, or all that may, where only a run would tell."""

from abc import abstractmethod
from collections.abc import Sequence
from fnmatch import fnmatchcase

from nest_frameworks.megatron.reading.expansion import Expander, either, negated
from nest_frameworks.megatron.reading.tokens import ARM_ENDS, END, ENDS, JOINTS, UNKNOWN, Cursor, Token, remedy, settled
from nest_frameworks.megatron.reading.walked import Walk


class Branching(Cursor):
    """Walks through arms."""

    def __init__(self, tokens: Sequence[Token], result: Walk) -> None:
        super().__init__(tokens)
        self.result = result
        self.expander = Expander(result.variables, result.files.text)
        self.asked = ""  # What conditions compare.

    @abstractmethod
    def block(self, *, active: bool) -> None:
        """Commands up to a word that closes them."""

    @abstractmethod
    def command(self, *, active: bool) -> bool | None:
        """One command; whether it succeeds, None: nobody knows."""

    @abstractmethod
    def arm(self, line: int, how: str, *, alone: bool = False) -> Walk:
        """Effects of the commands from here on, or of the first `alone`, if `line` lets them run."""

    def branch_if(self, active: bool) -> None:
        """Arms of `if`."""
        line, taken, closer, how = self.token.line, False, "if", ""
        arms: list[Walk] = []
        self.at += 1
        while closer != "fi":
            self.asked = ""
            wanted = True if closer == "else" else self.condition(active and not taken)
            if closer != "else":
                self.close("then")
            how += self.asked
            arms = self._branch(line, remedy(how), arms, False if taken else wanted, active)
            taken = taken or wanted is True
            closer = self.close("fi") if closer == "else" else self.close("elif", "else", "fi")
        self.join(line, how, arms, taken=taken)

    def _branch(self, line: int, how: str, arms: list[Walk], wanted: bool | None, active: bool) -> list[Walk]:
        """Walk through an arm: here if it runs, else apart, if it may."""
        if active and (wanted is None or (wanted and arms)):
            arms = [*arms, self.arm(line, how)]
        elif active and how and not wanted:
            self.result.untaken += self.arm(line, how).calls
        before = self.result.branches
        self.result.branches = (*before, (line, how)) if how else before
        self.block(active=active and wanted is True and not arms)
        self.result.branches = before
        return arms

    def join(self, line: int, asked: str, arms: list[Walk], *, taken: bool) -> None:
        """Go on behind `arms`, or, if none of them is `taken`, behind the line they stand on."""
        if arms:
            self.result.join([*arms, *([] if taken else [self.result.apart(line, "")])], line, asked)

    def condition(self, active: bool, end: str = "then") -> bool | None:
        """The commands between `if` and `then`, or `while` and `do`."""
        result: bool | None = None
        joint = ""
        while (token := self.token).operator != END and token.bare != end:
            if token.operator in ENDS or token.operator in JOINTS:
                joint = token.operator
                self.at += 1
                continue
            turned = token.bare == "!"
            self.at += turned
            holds_here = self.command(active=active)
            holds_here = negated(holds_here) if turned else holds_here
            if joint == "&&":
                result = None if result is None or holds_here is None else result and holds_here
            else:
                result = either(result, holds_here) if joint == "||" else holds_here
        return result if active else False

    def branch_case(self, active: bool) -> None:
        """Arms of `case`."""
        line, taken, closer = self.token.line, False, ""
        fits: bool | None = False
        arms: list[Walk] = []
        self.at += 1
        asked = self.expander.value(self.token)
        value = settled(asked)
        self.at += 1
        self.close("in")
        while self.token.operator != END and self.token.bare != "esac":
            patterns = []
            while self.token.operator not in (END, ")"):
                patterns += [] if self.token.operator else [self.expander.value(self.token)]
                self.at += 1
            self.at += 1
            if closer != ";&" or fits is False:  # Else this arm runs if the one before does.
                fits = not taken and any(fnmatchcase(value, pattern) for pattern in patterns)
                fits = None if UNKNOWN in value and "*" not in patterns else fits
            arms = self._branch(line, remedy(asked), arms, fits, active)
            closer = self.token.operator
            taken = closer != ";;&" and (taken or fits is True)
            self.skip((*ENDS, *ARM_ENDS))
        self.join(line, asked, arms, taken=taken)
        self.close("esac")
