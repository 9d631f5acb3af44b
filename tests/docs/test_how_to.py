"""The how-to on strategies ends with a distribution that joined nest by its entry point, and can be switched off."""

import ast
import os
import re
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.docs.document import REPOSITORY, Step, run, steps

PAGE = (REPOSITORY / "docs" / "how-to" / "add-a-strategy.md").read_text()
ENTRY = ["vocabulary", "tp, sp, cp, ep", "nest-vocabulary 0.1.0"]


def strategies(folder: Path, **environment: str) -> list[list[str]]:
    command = [sys.executable, "-m", "nest", "strategies"]
    done = processes.run(command, cwd=folder, env={**os.environ, **environment})
    assert (done.returncode, done.stderr) == (0, "")
    return [re.split(r"  +", line) for line in done.stdout.splitlines()]


def test_the_page_goes_from_a_new_plug_in_to_a_plan() -> None:
    words = [" ".join(step.arguments[:4]) or f"install {step.install}" for step in steps(PAGE)]
    milestones = ["nest plugins new nest-vocabulary", "install nest-vocabulary", "nest plugins doctor nest-vocabulary"]
    places = [words.index(milestone) for milestone in milestones]
    assert places == sorted(places)
    assert sum(word.startswith("python -m pytest") for word in words[places[0] : places[1]]) == 2


def makes_the_distribution(step: Step) -> bool:
    return not step.arguments or step.arguments[:3] == ("nest", "plugins", "new")


def test_what_the_page_installs_joins_and_can_be_switched_off(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    for outcome in run(PAGE, folder, makes_the_distribution):
        assert outcome.exit == 0, outcome.printed
    assert ENTRY in strategies(folder)
    assert ENTRY not in strategies(folder, NEST_DISABLED_PLUGINS="nest-vocabulary")


def test_the_job_of_a_worker_on_slurm_is_dasks() -> None:
    """The page's script, up to the jobs that it would submit, against the job that the page prints."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue writes the job")
    import dask_jobqueue

    page = (REPOSITORY / "docs" / "how-to" / "sweep.md").read_text()
    version = re.search(r"with dask-jobqueue (\S+) it is", page)
    if version is None or dask_jobqueue.__version__ != version[1]:
        pytest.skip(f"the page prints what dask-jobqueue {version and version[1]} writes")
    arguments = re.search(r"SLURMCluster\((.*)\)", page)
    printed = re.search(r"```text\n(#!/usr/bin/env bash.*?)```", page, re.DOTALL)
    assert arguments is not None
    assert printed is not None
    keywords = {
        each.arg: ast.literal_eval(each.value) for each in ast.parse(f"f({arguments[1]})").body[0].value.keywords
    }
    with dask_jobqueue.SLURMCluster(**keywords, scheduler_options={"dashboard_address": ":0"}) as cluster:
        job = cluster.job_script()
    job = re.sub(r"tcp://\S+", "tcp://10.0.0.1:8786", job.replace(sys.executable, "python"))
    assert job.strip() == printed[1].strip()
