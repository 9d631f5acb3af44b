"""What the explanations say of the code is what the code says."""

import re
import tomllib

import pytest
from attrs import astuple

from nest.documents.first_plan import ORDER
from nest.hooks.bundled import bundled_modules
from nest.instance import Cluster, admits, chunks_of, fullest_moments, weights_of
from nest.instance import in_flight as most_held
from nest.schedules import nest_schedules
from nest.solve.dp.downsets import LIMIT, PAIR_LIMIT
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES
from nest.testing import MODULES
from nest.version import __version__
from tests.docs import curves, generated, room_sizes, trust
from tests.docs import rooms as rooms_drawn
from tests.docs.document import REPOSITORY, blocks, documents

DOCS = REPOSITORY / "docs"
FEW_PERCENT = 0.05
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of the rows of the table whose header starts with `heading`."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip().strip("|").split(" |")])
    return found


def test_the_import_law_is_the_one_that_is_kept() -> None:
    kept = next(each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "layers")["layers"]
    told = [line.replace("nest.", "") for line in kept]
    text = (DOCS / "explanation" / "house.md").read_text()
    assert list(next(block for block in blocks(text) if block.language == "text").lines) == told
    line = re.search(r"`(testing > .*?)`", (REPOSITORY / "CONTRIBUTING.md").read_text())
    assert line is not None
    assert line[1].split(" > ") == told


def test_entries_of_the_first_plan_are_those_that_are_compared() -> None:
    told = rows((DOCS / "explanation" / "first-plan.md").read_text(), " | less of")
    assert [(name.strip("`"), reason) for _, name, reason in told] == [(each.name, each.reason) for each in ORDER]


def test_every_room_is_listed() -> None:
    text = (DOCS / "explanation" / "house.md").read_text()
    named = {name for row in rows(text, "room") for name in re.findall(r"`([\w.]+)`", row[0])}
    listed = {name for name in named if not name.startswith("__")}
    rooms = {path.name for path in (REPOSITORY / "nest").iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.name for path in (REPOSITORY / "nest").glob("*.py") if not path.name.startswith("__")}
    assert listed == rooms | modules


@pytest.mark.longer
def test_the_picture_of_the_house_is_that_of_its_imports() -> None:
    page = (REPOSITORY / rooms_drawn.PAGE).read_text()
    assert rooms_drawn.refreshed(page) == page, f"python -m tests.docs.refresh {rooms_drawn.PAGE}"
    assert len(rooms_drawn.rooms()) <= 24
    assert len(rooms_drawn.floors()) <= 12


def test_the_public_modules_are_listed() -> None:
    listed = re.findall(r"^\| `(nest[\w.]*)` \|", (DOCS / "reference" / "public.md").read_text(), re.MULTILINE)
    assert tuple(listed) == MODULES


def test_bundled_distributions_have_the_version_of_nest() -> None:
    for package in bundled_modules():
        own = tomllib.loads((REPOSITORY / "plugins" / package.replace("_", "-") / "pyproject.toml").read_text())
        assert own["project"]["version"] == __version__
        assert f"nest-planner=={__version__}" in own["project"]["dependencies"]


@pytest.mark.longer
def test_sizes_of_rooms_are_what_is_said_of_them() -> None:
    page = (REPOSITORY / room_sizes.PAGE).read_text()
    told = {
        row["rooms"]: [int(row[name].replace(",", "")) for name in ("files", "lines")]
        for row in room_sizes.ROW.finditer(page)
    }
    assert {room for rooms in told for room in re.findall(r"`([\w.-]+)`", rooms)} == set(room_sizes.sizes())
    refresh = f"python -m tests.docs.refresh {room_sizes.PAGE}, and say there why the room has grown"
    for rooms, numbers in told.items():
        assert numbers == pytest.approx(room_sizes.of_row(rooms), rel=FEW_PERCENT, abs=1), refresh


def test_limits_are_those_of_the_code() -> None:
    assert f"at most {LIMIT:,} downsets and {PAIR_LIMIT:,} pairs" in (DOCS / "explanation" / "search.md").read_text()


def test_schedules_are_those_of_the_code() -> None:
    told = {
        row[0].split("`")[1]: [cell.strip("`") for cell in row[1:]]
        for row in rows((DOCS / "explanation" / "problem.md").read_text(), "schedule")
    }
    assert set(told) == {schedule.name for schedule in nest_schedules()}
    for schedule in nest_schedules():
        for stages, micro_batches in ((1, 1), (3, 2), (3, 6), (4, 3), (4, 16), (6, 12)):
            if not admits(schedule, stages, micro_batches):
                continue
            values = {"M": micro_batches, "s": stages, "v": chunks_of(schedule), "min": min, "max": max}
            *weights, in_flight = told[schedule.name]
            found = weights_of(schedule, micro_batches, stages)
            assert astuple(found)[:4] == pytest.approx([eval(weight, values.copy()) for weight in weights])
            for stage in range(1, stages + 1):
                held = most_held(fullest_moments(schedule, stage, stages, micro_batches))
                assert held == pytest.approx(eval(in_flight, {**values, "i": stage}))


def test_names_constraints_know_are_listed() -> None:
    text = (DOCS / "reference" / "constraints.md").read_text()
    listed = {name for row in rows(text, "element") for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == {*PLAN_NAMES, *STAGE_NAMES, "tp", "sp"}


def test_readings_of_the_cluster() -> None:
    """The levels and shapes that the problem page describes in words."""
    from nest.instance import Level

    cluster = Cluster((Level("node", 2, 1e9, 0), Level("rack", 2, 1e9, 0)), 1e9)
    assert cluster.level(1, 1) == -1
    assert (cluster.level(0, 1), cluster.level(1, 2)) == (0, 1)
    assert cluster.shape([0, 1, 2]) == (2, 2)


def test_glossary_is_ordered_and_used() -> None:
    words = [row[0] for row in rows((DOCS / "glossary.md").read_text(), "word")]
    assert words == sorted(words, key=str.lower)
    assert len(set(words)) == len(words)
    folders = [REPOSITORY / "nest", *(REPOSITORY / "plugins").glob("*/src")]
    used = "\n".join(path.read_text().lower() for folder in folders for path in folder.rglob("*.py"))
    assert [word for word in words if word.lower() not in used] == []


_OF_OTHERS = re.compile(r"^<!-- file: \S+\.log -->\n```text\n.*?^```$", re.MULTILINE | re.DOTALL)
"""Logs, which frameworks write in their own words."""


@pytest.mark.longer
def test_words_the_glossary_replaces_are_not_used() -> None:
    avoided = [word for row in rows((DOCS / "glossary.md").read_text(), "not") for word in row[0].split(", ")]
    assert avoided
    for path in documents():
        if path.name != "glossary.md":
            text = _OF_OTHERS.sub("", (REPOSITORY / path).read_text()).lower()
            assert [word for word in avoided if re.search(rf"\b{word}\b", text)] == [], path


FIELD = (
    "activation checkpointing", "bubble", "context parallelism", "data parallelism", "expert parallelism", "FSDP",
    "global batch", "GPU hours", "gradient accumulation", "HCA", "MFU", "offloading", "out of memory", "overlap",
    "parallel size", "pipeline parallelism", "recomputation", "rematerialization", "sharding", "swapping",
    "tensor parallelism", "virtual pipeline",
)  # fmt: skip
"""Words of Megatron-LM, PyTorch and papers, which readers know and may meet."""


def test_the_glossary_bans_no_word_of_the_field() -> None:
    avoided = {word for row in rows((DOCS / "glossary.md").read_text(), "not") for word in row[0].split(", ")}
    assert avoided & {word.lower() for word in FIELD} == set()


def test_files_that_explanations_name_exist() -> None:
    folders = ("nest", "benchmarks", "tests", "tools", "plugins")
    files = [path.relative_to(REPOSITORY).as_posix() for name in folders for path in (REPOSITORY / name).rglob("*.py")]
    for page in (DOCS / "explanation").glob("*.md"):
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text()):
            assert any(f"/{path}".endswith(f"/{name}") for path in files), f"{page.name} names {name}"


def test_tables_on_trust_are_those_of_the_benchmark() -> None:
    text = (REPOSITORY / trust.PAGE).read_text()
    assert all(generated.begin("trust", part) in text for part in trust.PARTS)
    assert trust.refreshed(text) == text, f"python -m tests.docs.refresh {trust.PAGE}"


@pytest.mark.longer
def test_curves_and_their_points_are_those_of_predictions() -> None:
    text = (REPOSITORY / curves.PAGE).read_text()
    assert curves.refreshed(text) == text, "python -m tests.docs.curves"
    assert all((curves.FOLDER / name).read_text() == svg for name, svg in curves.pictures().items())
