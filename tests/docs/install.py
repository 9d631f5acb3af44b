"""Installing a distribution made by a document, without a network and without touching this Python's packages."""

import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path


def install(project: Path, site: Path) -> None:
    """What `pip install` leaves of the distribution in folder `project`, in folder `site`.

    Where hatchling, which builds it, is there, pip does it. Elsewhere the modules are copied beside a `.dist-info`.
    """
    if find_spec("hatchling") is not None:
        offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(site))
        subprocess.run([sys.executable, "-m", "pip", "install", *offline, str(project)], check=True)
        return
    described = tomllib.loads((project / "pyproject.toml").read_text())
    wheel = described["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in wheel.get("only-include", ()):
        shutil.copy(project / name, site / name)
    for name in wheel.get("packages", ()):
        shutil.copytree(project / name, site / Path(name).name)
    info(described["project"], site)


def info(described: dict[str, object], site: Path) -> None:
    """The `.dist-info` of a distribution, by the `project` table of its `pyproject.toml`."""
    entry_points = described["entry-points"]
    assert isinstance(entry_points, dict)
    folder = site / f"{str(described['name']).replace('-', '_')}-{described['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    )
    entries = "\n".join(f"{name} = {target}" for name, target in entry_points["nest"].items())
    (folder / "entry_points.txt").write_text(f"[nest]\n{entries}\n")
