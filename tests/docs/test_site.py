"""The documentation site: its navigation, what it adds to the pages, and that it builds without a warning."""

import os
import re
import subprocess
import sys
import tomllib
from html import unescape
from importlib import import_module
from pathlib import Path

import markdown
import pytest
import yaml

from nest.testing import MODULES
from tests.docs.document import REPOSITORY
from tests.docs.test_documents import links
from tools import site_hooks

DOCS = REPOSITORY / "docs"
REFRESH = "mkdocs.yml names every page of docs/ in its navigation"
JOBS = (
    "Start", "Launch", "Fix an out-of-memory run", "Check my script", "Choose GPUs and network", "Days and cost",
    "Calibrate", "Mixed GPUs", "Long context", "Mixture of experts", "Extend", "Reference", "How it works", "Project",
)  # fmt: skip


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml and leaves out what names Python objects and environment variables."""


for _tag in ("!ENV", "tag:yaml.org,2002:python/"):
    _Loader.add_multi_constructor(_tag, lambda *_: None)

SITE = yaml.load((REPOSITORY / "mkdocs.yml").read_text(), _Loader)


def pages(entries: object) -> list[str]:
    """The pages of a part of the navigation, in order."""
    if isinstance(entries, str):
        return [entries]
    parts = entries.values() if isinstance(entries, dict) else entries
    return [page for part in parts for page in pages(part)]


def test_the_navigation_is_by_job() -> None:
    assert tuple(name for entry in SITE["nav"] for name in entry) == JOBS


def test_every_page_is_in_the_navigation_once() -> None:
    named = pages(SITE["nav"])
    assert len(named) == len(set(named)), REFRESH
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | {site_hooks.COMMANDS}
    assert {page for page in named if not page.startswith("repository/")} == written, REFRESH
    assert all((REPOSITORY / page.removeprefix("repository/")).is_file() for page in set(named) - written)


def test_every_public_module_has_its_reference() -> None:
    told = "".join(path.read_text() for path in (DOCS / "reference" / "python").glob("*.md"))
    named = re.findall(r"^::: (\S+)$", told, re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(MODULES) <= set(named)


def test_links_out_of_docs_lead_to_what_the_site_has() -> None:
    page = DOCS / "how-to" / "sweep.md"
    text = "[a](../index.md#x) [b](../../CHANGELOG.md) [c](https://a.b) [d](#e) `[f](../../LICENSE)`"
    text += " [g](../../README.md#i)"
    turned = site_hooks.turned(text, page)
    assert links(turned) == ["../index.md#x", "../repository/CHANGELOG.md", "#e", "../index.md"]
    assert "`[f](../../LICENSE)`" in turned
    back = site_hooks.turned(
        "[a](docs/index.md) [b](plugins/nest-page/README.md) [c](examples)", REPOSITORY / "CHANGELOG.md"
    )
    assert links(back) == ["../index.md", "plugins/nest-page/README.md", "examples/README.md"]


def test_lists_are_read_as_on_github() -> None:
    text = "Text:\n* a\n  b\n  1. c\n\n     d\n* e\n  ```\n  f:\n    g\n  ```\n\nh\n```\n* i\n```\n"
    made = markdown.markdown(site_hooks.turned(text, DOCS / "index.md"), extensions=["pymdownx.superfences"])
    words = re.sub(r"</?(div|pre|span)[^>]*>", "", made)
    assert re.sub(r"\s+", " ", words) == (
        "<p>Text:</p> <ul> <li> <p>a b</p> <ol> <li> <p>c</p> <p>d</p> </li> </ol> </li> "
        "<li> <p>e <code>f: g </code></p> </li> </ul> <p>h <code>* i </code></p>"
    )


def test_what_the_tests_build_the_site_with_is_what_the_site_is_built_with() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras["docs"]) - set(extras["test"]) == {"mike>=2.1,<3"}  # Which publishes versions; no test does.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is built where every warning is an error."""
    return built(tmp_path_factory.mktemp("site"))


def built(folder: Path) -> Path:
    """Build the site into `folder`, where every warning is an error."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.longer
@pytest.mark.xdist_group("site")
class TestBuilt:
    """What the built pages hold."""

    def test_markdown_is_read_as_on_github(self, site: Path) -> None:
        """Python-Markdown wants an empty line before a list, and deeper indents in it; else it is text."""
        reference = site / "reference" / "python"  # Docstrings, which are no pages.
        for path in (path for path in site.rglob("*.html") if not path.is_relative_to(reference)):
            for paragraph in re.findall(r"<p>(.*?)</p>", path.read_text(), re.DOTALL):
                assert not re.search(r"^\s*([*-] |\d\. |\|)", paragraph, re.MULTILINE), (
                    f"{path.relative_to(site)}: {paragraph}"
                )

    def test_public_names_are_documented(self, site: Path) -> None:
        told = "".join(path.read_text() for path in (site / "reference" / "python").rglob("*.html"))
        for name in MODULES:
            module = import_module(name)
            names = {
                each for each in getattr(module, "__all__", ()) if each[0] != "_" and f"{name}.{each}" not in MODULES
            }
            # `nest.solve` is a package as well as a function; questions come from nest-whatif.
            places = ("nest.api", "nest_whatif.verbs") if name == "nest" else (name,)
            assert [each for each in names if not any(f'id="{at}.{each}"' in told for at in places)] == [], name

    def test_the_pages_of_the_navigation_are_there(self, site: Path) -> None:
        for page in pages(SITE["nav"]):
            folder = re.sub(r"(^|/)(index|README)$", r"\1", page.removesuffix(".md"))
            built = site / folder / "index.html"
            assert "<h1" in built.read_text(), page

    def test_commands_are_told_with_their_options(self, site: Path) -> None:
        text = unescape((site / site_hooks.COMMANDS.replace(".md", "/index.html")).read_text())
        for told in (
            "nest solve",
            "--time-limit S",
            "nest calibrate devices",
            "nest topology import",
            "--cluster NAME|FILE",
        ):
            assert f">{told}<" in text, told
