"""The command: `python -m benchmarks.report [--repeat N] [--chromium PATH] [--output FOLDER]`."""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import asdict

from benchmarks.report.measure import Page, measured
from benchmarks.report.plans import PLANS
from benchmarks.report.table import LIMIT_BYTES, LIMIT_SECONDS, broken, table

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="Measures report pages.")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="times each page is opened (5)")
    parser.add_argument("--chromium", metavar="PATH", help="the browser, if it is not on the path")
    parser.add_argument("--only", nargs="+", default=list(PLANS), choices=list(PLANS), metavar="NAME", help="plans")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write report.md, report.json and the pages here")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every page of at most 1,024 devices is within the limits."""
    asked = arguments(given)
    browser = asked.chromium or next(filter(None, map(shutil.which, CHROMIUM)), None)
    if find_spec("playwright") is None:
        print("Playwright is missing: pip install -e '.[browser]'.", file=sys.stderr)
        return 2
    if browser is None:
        print(f"No browser: install one of {', '.join(CHROMIUM)}, or name it with --chromium.", file=sys.stderr)
        return 2
    with TemporaryDirectory() as folder:
        pages: list[Page] = []
        for name in asked.only:
            print(f"{name} ...", file=sys.stderr)
            pages.append(measured(name, PLANS[name](), asked.output or Path(folder), browser, asked.repeat))
    text = table(pages)
    print(text)
    faults = [line for page in pages for line in broken(page)]
    print(*faults, sep="\n") if faults else print(
        f"Every page of at most 1,024 devices is below {LIMIT_BYTES / 1e6:g} MB and shown within {LIMIT_SECONDS:g} s."
    )
    if asked.output:
        (asked.output / "report.md").write_text(text + "\n", encoding="utf-8")
        rows = [asdict(page) for page in pages]
        (asked.output / "report.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
