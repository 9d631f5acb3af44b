"""What the default run costs, and which of it planted faults need: `python -m tests.mutants.table FILE`.

`pytest -p tests.durations --durations-to FILE` writes FILE. Printed are the tests that faults name, with their
processor seconds and faults, then the tests that none names, both by what they cost.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from _pytest.mark.expression import Expression

from tests.mutants.faults import Fault, faults

Seconds = dict[str, float]


def read(file: Path) -> Seconds:
    """Processor seconds of each test; where it was measured more than once, of the last time."""
    rows = (line.split("\t", 1) for line in file.read_text(encoding="utf-8").splitlines())
    return {test: float(seconds) for seconds, test in rows}


def of_function(test: str) -> str:
    """A test without its parameters."""
    return test.partition("[")[0]


def needs(fault: Fault, test: str) -> bool:
    """Whether a test is among those that see a fault."""
    if fault.caught_by not in (test, of_function(test)):
        return False
    return not fault.among or Expression.compile(fault.among).evaluate(lambda word, **_: word.lower() in test.lower())


def rows(seconds: Seconds) -> Iterator[tuple[float, int, int, str, str]]:
    """Of each test without its parameters: seconds, how many there are and are needed, its name, and its faults."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for test in seconds:
        by_name[of_function(test)].append(test)
    named: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults():
        named[of_function(fault.caught_by)].append(fault)
    for name, tests in by_name.items():
        needed = [test for test in tests if any(needs(fault, test) for fault in named[name])]
        told = ", ".join(sorted(fault.name for fault in named[name]))
        yield sum(seconds[test] for test in tests), len(tests), len(needed), name, told


def main() -> None:
    """Print the table."""
    seconds = read(Path(sys.argv[1]))
    found = sorted(rows(seconds), key=lambda row: (not row[4], -row[0], row[3]))
    print(f"{'seconds':>8} {'tests':>6} {'needed':>6}  test: faults")
    for spent, count, needed, name, told in found:
        print(f"{spent:8.2f} {count:6} {needed:6}  {name}{': ' + told if told else ''}")
    for kind, chosen in (("that faults name", [row for row in found if row[4]]), ("in all", found)):
        print(f"{sum(row[0] for row in chosen):8.2f} {sum(row[1] for row in chosen):6}         {kind}")


if __name__ == "__main__":
    main()
