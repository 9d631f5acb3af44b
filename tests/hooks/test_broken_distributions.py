"""Broken distributions, found through their entry points by the command itself: one line each, and the plan holds."""

import json
import os
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import nest
from nest.hooks.loader import installed_plugins
from tests import processes

PROBLEM = {
    "nest": 1,
    "model": {"transformer": {"layers": 2, "hidden": 256, "ffn": 1024, "heads": 4, "vocab": 1000}},
    "training": {"global_batch": 8, "sequence_length": 128, "micro_batch": [1, 2], "stack": "none", "schedule": "1f1b"},
    "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 4, "bandwidth": "300 GB/s", "latency": "1 us"}]},
}

STRATEGY = """
import time
from nest.hooks import hook

class Strategy:
    name = "{name}"
    after = ()

    def degrees(self, block, context):
        return (1, 2)

    def apply(self, block, degree, context):
        {apply}

@hook
def nest_strategies():
    return [Strategy()]
"""

COSTS = """
from nest.hooks import hook
from nest.hooks.protocols import OperatorCost

class Costs:
    name = "never"

    def price(self, operator, device, training):
        return OperatorCost(float("nan"), 0.0)

@hook
def nest_cost_models():
    return [Costs()]
"""

FAULTY = {
    "raises at import": (
        "raise RuntimeError('half\\ninstalled')\n",
        {},
        "loading it raised RuntimeError: half installed",
    ),
    "raises in apply": (
        STRATEGY.format(name="toy", apply="raise ValueError('boom')"),
        {},
        "its strategy 'toy' raised ValueError: boom in apply; its degree is 1",
    ),
    "costs are NaN": (
        COSTS,
        {"costs": "never"},
        "its cost model 'never' returned an invalid result from price: forward is nan, no number from 0 to 1e+30; "
        "in its place: roofline",
    ),
    "clashes in name": (
        STRATEGY.format(name="tp", apply="return block"),
        {},
        "nest-planner 0.1.0 has registered 'tp' among strategies already",
    ),
    "sleeps in apply": (
        STRATEGY.format(name="toy", apply="time.sleep(600)"),
        {},
        "its strategy 'toy' timed out after 2 s in apply; its degree is 1",
    ),
    "sleeps at import": ("import time\ntime.sleep(600)\n", {}, "loading it timed out after 2 s"),
}


def install(site: Path, name: str, text: str) -> None:
    """Put a distribution `name` 1.0 with one entry point, `<name>_entry`, into `site`."""
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(text)
    information = site / f"{module}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[nest]\n{module}_entry = {module}\n")


def call(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m nest` in a process of its own that finds what is installed in `site`."""
    path = os.pathsep.join([str(site), str(Path(nest.__file__).resolve().parent.parent)])
    given = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PYTHON")}
    return processes.run([sys.executable, "-m", "nest", *arguments], env={**given, "PYTHONPATH": path, **environment})


@pytest.fixture
def site(tmp_path: Path) -> Path:
    made = tmp_path / "site"
    made.mkdir()
    return made


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, **keys: object) -> Path:
    path = folder / "problem.json"
    path.write_text(json.dumps({**PROBLEM, **keys}))
    return path


@pytest.mark.longer
@pytest.mark.parametrize("fault", FAULTY)
def test_a_broken_distribution_is_one_line_and_the_plan_is_the_same(fault: str, site: Path, tmp_path: Path) -> None:
    text, keys, told = FAULTY[fault]
    before = call(site, "solve", "--json", str(written(tmp_path)))
    assert (before.returncode, before.stderr) == (0, "")
    install(site, "nest-faulty", text)
    problem = written(tmp_path, **keys)
    limit = {"NEST_PLUGIN_SECONDS": "2"} if "sleeps" in fault else {}
    after = call(site, "solve", "--json", str(problem), **limit)
    assert after.returncode == 0
    assert after.stderr == f"nest: warning: plug-in nest-faulty 1.0 is disabled: {told}\n"
    if keys:
        plans = [json.loads(each.stdout) for each in (before, after)]
        for plan in plans:
            del plan["problem"]
        assert plans[0] == plans[1]
    else:
        assert after.stdout == before.stdout


@pytest.mark.longer
@pytest.mark.parametrize("fault", ["raises at import", "raises in apply", "costs are NaN", "clashes in name"])
def test_strict_plugins_make_it_an_error(fault: str, site: Path, tmp_path: Path) -> None:
    text, keys, told = FAULTY[fault]
    install(site, "nest-faulty", text)
    done = call(site, "solve", "--json", "--strict-plugins", str(written(tmp_path, **keys)))
    assert (done.returncode, done.stdout) == (2, "")
    sentence = told.split(";")[0]
    assert done.stderr == (
        f"nest: plug-in error in nest-faulty 1.0, which --strict-plugins does not allow: {sentence}.\n"
    )


@pytest.mark.longer
def test_plugins_lists_what_is_installed_and_what_became_of_it(site: Path) -> None:
    install(site, "nest-faulty", FAULTY["raises at import"][0])
    install(
        site,
        "nest-mixed",
        STRATEGY.format(name="toy", apply="return block") + "\n@hook\ndef nest_schedules():\n    1/0\n",
    )
    install(site, "nest-off", FAULTY["sleeps at import"][0])
    install(site, "nest-sound", STRATEGY.format(name="sound", apply="return block"))
    done = call(site, "plugins", "--json", NEST_DISABLED_PLUGINS="nest_off")
    rows = {row["distribution"]: row for row in json.loads(done.stdout)["plugins"]}
    assert list(rows) == ["nest-planner", "nest-mixed", "nest-sound", "nest-faulty", "nest-off"]
    assert rows["nest-planner"]["hooks"]["nest_layer_times"] == ["scheduled", "sequential"]
    assert {name: row["state"] for name, row in rows.items()} == {
        "nest-planner": "active",
        "nest-mixed": "active; disabled: its hook nest_schedules raised ZeroDivisionError: division by zero",
        "nest-sound": "active",
        "nest-faulty": "disabled: loading it raised RuntimeError: half installed",
        "nest-off": "switched off (NEST_DISABLED_PLUGINS)",
    }
    assert rows["nest-sound"] == {
        "distribution": "nest-sound",
        "version": "1.0",
        "state": "active",
        "hooks": {"nest_strategies": ["sound"]},
        "set_aside": [],
    }
    assert done.stderr.count("\n") == 2
    listed = call(site, "plugins", "list", NEST_DISABLED_PLUGINS="nest-off")
    assert listed.stdout == call(site, "plugins", NEST_DISABLED_PLUGINS="nest-off").stdout
    for name, row in rows.items():
        assert f"{name} {row['version']}" in listed.stdout
        assert row["state"] in listed.stdout


PYTHON = """
import json, sys
import nest
problem = json.load(open(sys.argv[1]))
for _ in range(2):
    plan = nest.solve(problem)
print(plan.status, nest.check(plan).ok)
try:
    nest.evaluate(problem, strict_plugins=True)
except nest.errors.InputError as error:
    print(error)
"""


def test_a_limit_that_is_none_is_bad_input(site: Path, problem: Path) -> None:
    done = call(site, "solve", str(problem), NEST_PLUGIN_SECONDS="soon")
    assert done.returncode == 2
    assert done.stderr == (
        "nest: the environment variable NEST_PLUGIN_SECONDS is 'soon'; it must be a positive number of seconds.\n"
    )


COMMANDS = """
import typer
from nest.hooks import hook

@hook
def nest_commands(app):
    @app.command("{name}")
    def greet():
        "Says hello."
        typer.echo("hello")
"""


@pytest.mark.longer
def test_a_command_may_be_added_and_none_replaced(site: Path, problem: Path) -> None:
    install(site, "nest-greeting", COMMANDS.format(name="greet"))
    install(site, "nest-solving", COMMANDS.format(name="solve"))
    assert call(site, "greet").stdout == "hello\n"
    done = call(site, "solve", str(problem))
    assert "Optimal." in done.stdout
    assert done.stderr == (
        "nest: warning: plug-in nest-solving 1.0 is disabled: its command 'solve' is already a command of nest\n"
    )


GROUP = """
import typer
from nest.hooks import hook

@hook
def nest_commands(app):
    group = typer.Typer(name="{name}")

    @group.command()
    def one():
        typer.echo("one")

    @group.command()
    def two({parameter}):
        typer.echo("two")

    app.add_typer(group)
"""


def test_groups_of_commands_may_be_added(site: Path) -> None:
    install(site, "nest-bent", GROUP.format(name="bent", parameter="given: int | str"))
    install(site, "nest-sound", GROUP.format(name="sound", parameter=""))
    install(site, "nest-twice", GROUP.format(name="sound", parameter=""))
    done = call(site, "sound", "two")
    assert (done.returncode, done.stdout) == (0, "two\n")
    bent, twice = call(site, "strategies").stderr.splitlines()
    assert "plug-in nest-bent 1.0 is disabled: a command it adds raised " in bent
    assert twice.endswith("is disabled: its command 'sound' is already a command of nest-sound 1.0")


def test_plugins_that_only_a_finder_knows_are_found(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "nest-sound", "")

    class Finder:
        find_spec = staticmethod(lambda *_: None)
        find_distributions = staticmethod(lambda _: [Distribution.at(site / "nest_sound-1.0.dist-info")])

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert "nest-sound" in {plugin.distribution for plugin in installed_plugins()}


@pytest.mark.longer
def test_damaged_metadata_stop_nobody(site: Path, problem: Path) -> None:
    install(site, "nest-faulty", FAULTY["raises at import"][0])
    (site / "nest_faulty-1.0.dist-info" / "METADATA").unlink()
    done = call(site, "solve", str(problem))
    assert done.returncode == 0
    assert "nest_faulty" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.longer
@pytest.mark.parametrize("entries", [b"[nest]\nno target\n", b"[nest]\nodd = \xff\xfe\n"])
def test_damaged_entry_points_stop_nobody(entries: bytes, site: Path, problem: Path) -> None:
    before = call(site, "evaluate", "--json", str(problem))
    install(site, "nest-faulty", "")
    (site / "nest_faulty-1.0.dist-info" / "entry_points.txt").write_bytes(entries)
    done = call(site, "evaluate", "--json", str(problem))
    assert (done.returncode, done.stdout) == (0, before.stdout)
    assert done.stderr.count("\n") == 1
    assert "plug-in nest-faulty 1.0 is disabled: loading it raised " in done.stderr
    install(site, "nest-sound", STRATEGY.format(name="sound", apply="return block"))
    assert "nest-sound 1.0" in call(site, "strategies").stdout
    assert call(site, "strategies", NEST_DISABLED_PLUGINS="nest-faulty").stderr == ""


def test_damaged_entry_points_of_others_are_none_of_nests_business(site: Path, problem: Path) -> None:
    install(site, "others", "")
    (site / "others-1.0.dist-info" / "entry_points.txt").write_text("[others]\nno target\n")
    done = call(site, "strategies", "--strict-plugins")
    assert (done.returncode, done.stderr) == (0, "")


PRINTING = """
import os, subprocess, sys, threading
print("on import")
from nest.hooks import hook

class Strategy:
    name = "toy"
    after = ()

    def degrees(self, block, context):
        print("on call", flush=True)
        os.write(1, b"past Python ")
        subprocess.run([sys.executable, "-c", "print('from a process')"])
        threading.Thread(target=print, args=("from a thread",)).start()
        sys.stdout.close()
        return (1,)

    def apply(self, block, degree, context):
        return block

@hook
def nest_strategies():
    return [Strategy()]
"""


@pytest.mark.longer
def test_what_a_plug_in_prints_is_no_result(site: Path, problem: Path) -> None:
    before = json.loads(call(site, "evaluate", "--json", str(problem)).stdout)
    install(site, "nest-printing", PRINTING)
    done = call(site, "evaluate", "--json", str(problem))
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert plan["batch_time"] == before["batch_time"]
    for told in ("on import", "on call", "past Python", "from a process", "from a thread"):
        assert told in done.stderr
    assert "disabled" not in done.stderr


def test_what_a_command_of_a_plug_in_prints_is_a_result(site: Path) -> None:
    text = COMMANDS.format(name="greet").replace(
        'typer.echo("hello")', 'import os, threading; os.write(1, b"raw "); threading.Thread(target=print).start()'
    )
    install(site, "nest-greeting", text)
    done = call(site, "greet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "raw \n", "")


MOVING = """
import os, sys

def move():
    os.chdir("/")
    sys.stdout = sys.stderr = None
    sys.setrecursionlimit(120)

move()
from nest.hooks import hook

class Strategy:
    name = "toy"
    after = ()

    def degrees(self, block, context):
        move()
        return (1,)

    def apply(self, block, degree, context):
        return block

@hook
def nest_strategies():
    move()
    return [Strategy()]
"""


@pytest.mark.longer
def test_a_plug_in_that_moves_moves_nobody_else(site: Path, problem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(problem.parent)
    before = json.loads(call(site, "evaluate", "--json", problem.name).stdout)
    install(site, "nest-moving", MOVING)
    done = call(site, "evaluate", "--json", problem.name)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["batch_time"] == before["batch_time"]
