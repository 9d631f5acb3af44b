"""The command: `python -m benchmarks.networks [--count N] [--before CHECKOUT] [--output FILE]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.networks.measure import OtherCheckout, measured
from benchmarks.networks.table import SAME, table, without
from tests.agreement.random_topologies import KINDS


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 1 when a plan that this nest calls optimal is not."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.networks", description="What planning on levels loses on random networks."
    )
    parser.add_argument("--count", type=int, default=25, metavar="N", help="problems of each kind of network (25)")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="a checkout whose plans are priced as well")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table as Markdown")
    options = parser.parse_args(given)
    other = None if options.before is None else OtherCheckout(options.before)
    found = []
    for kind in KINDS:
        found += [each for seed in range(options.count) if (each := measured(seed, kind, other)) is not None]
        print(f"{len(found)} problems; {kind} done", file=sys.stderr)
    if other is not None:
        other.close()
    lines = [
        "Step time over the least of all plans and placements, less 1: mean / median / worst.",
        "",
        *table(found, moved=other is not None),
        "",
        f"{len(KINDS) * options.count - len(found)} problems more have no plan. "
        f"{without(found)} of those in the table have none on levels.",
    ]
    print("\n".join(lines))
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if any(each.proved and each.here > SAME for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
