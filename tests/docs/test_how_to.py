"""The distribution that the how-to on strategies builds joins nest by its entry point."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.docs.document import REPOSITORY, blocks

PAGE = (REPOSITORY / "docs" / "how-to" / "add-a-strategy.md").read_text()
FILES = {block.file: "\n".join(block.lines) + "\n" for block in blocks(PAGE) if block.file is not None}


def test_the_distribution_of_the_how_to_joins(tmp_path: Path) -> None:
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    (module,) = (name for name in FILES if name.endswith(".py"))
    (tmp_path / module).write_text(FILES[module])
    information = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    entries = "\n".join(f"{name} = {target}" for name, target in project["entry-points"]["nest"].items())
    (information / "entry_points.txt").write_text(f"[nest]\n{entries}\n")
    done = subprocess.run(
        [sys.executable, "-m", "nest", "strategies"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert any(
        line.split() == ["wide_ffn", "after", "tp,", "sp", "wide-ffn", "1.0"] for line in done.stdout.splitlines()
    )
