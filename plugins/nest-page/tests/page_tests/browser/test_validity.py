"""Reports by the Nu Html Checker: HTML, CSS, SVG and ARIA, without an error and without a warning.

It needs no browser but Java and `vnu.jar`: `NEST_VNU_JAR`, or the npm package `vnu-jar` in `node_modules` here or in a
folder of `NODE_PATH`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from page_tests.browser.pages import PAGES

PACKAGED = Path("vnu-jar", "build", "dist", "vnu.jar")
SECONDS = 240


@pytest.fixture(scope="module")
def checker() -> Callable[[Sequence[Path]], list[str]]:
    """Gives the messages of the checker on some files."""
    java, jar = shutil.which("java"), _jar()
    if java is None or jar is None:
        pytest.skip("no Nu Html Checker: it needs Java, and NEST_VNU_JAR or the npm package vnu-jar")

    def check(pages: Sequence[Path]) -> list[str]:
        done = subprocess.run(
            [java, "-Xss8m", "-jar", jar, "--format", "json", "--exit-zero-always", "--stdout", *pages],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return [_told(each) for each in json.loads(done.stdout)["messages"]]

    return check


def _jar() -> Path | None:
    named = os.environ.get("NEST_VNU_JAR")
    if named:
        return Path(named)
    folders = [Path("node_modules"), *map(Path, filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep)))]
    return next((jar for folder in folders if (jar := folder / PACKAGED).is_file()), None)


def _told(message: dict[str, Any]) -> str:
    place = f"{Path(message.get('url', '')).name}:{message.get('lastLine', '')}"
    return f"{place} {message.get('subType', message['type'])}: {message['message']} {message.get('extract', '')[:200]}"


def test_pages_are_valid(checker: Callable[[Sequence[Path]], list[str]], report_of: Callable[[str], Path]) -> None:
    assert checker([report_of(name) for name in PAGES]) == []


def test_checker_complains(checker: Callable[[Sequence[Path]], list[str]], tmp_path: Path) -> None:
    """What the test above relies on: errors of HTML and CSS, and warnings, are told."""
    path = tmp_path / "wrong.html"
    path.write_text("<!DOCTYPE html><html><title>x</title><style>p { colour: red }</style><p id=a><p id=a></html>")
    told = " ".join(checker([path]))
    assert all(word in told for word in ("Duplicate ID", "colour", "lang"))
