"""Reading: three formats say the same, and every mistake is told with its line, all of them at once."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import field, frozen

from nest import io
from nest.errors import InputError, InputErrors, PlacedErrors
from nest.spec.validators import at_least, each, every, not_empty
from nest.units import Bytes


@frozen
class Shelf:
    """Where things lie.

    Attributes:
        size: bytes.
        slots: at least one.
        label: for people.
    """

    size: Bytes = field(validator=at_least(0))
    slots: tuple[int, ...] = field(default=(1,), validator=every(not_empty, each(at_least(1))))
    label: str | None = None


@frozen
class Room:
    """Shelves, and whatever else is in it."""

    REST_IN: ClassVar[str] = "rest"

    shelves: tuple[Shelf, ...]
    rest: dict[str, int]
    open: bool = True


YAML = """\
# a comment
shelves:
  - size: 2 KiB
    slots: [3, 4]
  - {size: 5,
     slots: 6,
     label: "é"}
open: false
chairs: 4
"""
JSON = json.dumps(
    {"shelves": [{"size": "2 KiB", "slots": [3, 4]}, {"size": 5, "slots": 6, "label": "é"}], "open": False, "chairs": 4}
)
TOML = """\
open = false
chairs = 4
[[shelves]]
size = "2 KiB"
slots = [3, 4]
[[shelves]]
size = 5
slots = 6
label = "é"
"""
ROOM = Room((Shelf(Bytes(2048.0), (3, 4)), Shelf(Bytes(5.0), (6,), "é")), {"chairs": 4}, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", YAML),
        ("a.yml", YAML),
        ("a.json", JSON),
        ("a.toml", TOML),
        ("a", YAML),
        ("a.txt", JSON),
        ("a.YAML", YAML),
    ],
)
def test_formats_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert io.read(path, Room) == ROOM
    assert io.read_text(text, Room, name) == ROOM
    path.write_text("\ufeff" + text, encoding="utf-8")  # some editors begin files with a byte order mark
    assert io.read(path, Room) == ROOM


def test_a_mapping_is_read_as_a_file_is() -> None:
    assert io.structure(json.loads(JSON), Room) == ROOM
    assert io.structure(io.unstructure(ROOM), Room) == ROOM
    with pytest.raises(InputErrors, match=r"^shelves\[0\]\.size is missing\.$"):
        io.structure({"shelves": [{}]}, Room)


BROKEN = {
    "yaml": """\
shelves:
  - size: 3 parsecs
    slots: [1, 0, x]
  - label: 7
    colour: red
open: 1
chairs: many
""",
    "json": """{
 "shelves": [
  {"size": "3 parsecs", "slots": [1, 0, "x"]},
  {"label": 7,
   "colour": "red"}],
 "open": 1,
 "chairs": "many"}
""",
    "toml": """\
open = 1
chairs = "many"
[[shelves]]
size = "3 parsecs"
slots = [1, 0, "x"]
[[shelves]]
label = 7
colour = "red"
""",
}
LINES = {
    "yaml": {"size": 2, "slots": 3, "second": 4, "label": 4, "colour": 5, "open": 6, "chairs": 7},
    "json": {"size": 3, "slots": 3, "second": 4, "label": 4, "colour": 5, "open": 6, "chairs": 7},
    "toml": {"size": 4, "slots": 5, "second": 6, "label": 7, "colour": 8, "open": 1, "chairs": 2},
}


@pytest.mark.parametrize("suffix", sorted(BROKEN))
def test_all_mistakes_are_told_in_the_order_of_their_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"room.{suffix}"
    path.write_text(BROKEN[suffix])
    at = LINES[suffix]
    with pytest.raises(PlacedErrors) as error:
        io.read(path, Room)
    expected = {
        f"{path}:{at['size']}: shelves[0].size has the unit 'parsecs', not a unit of a size; "
        "use B, kB, MB, GB, TB, KiB, MiB, GiB, TiB.",
        f"{path}:{at['slots']}: shelves[0].slots[2] must be a whole number, is 'x'.",
        f"{path}:{at['second']}: shelves[1].size is missing.",
        f"{path}:{at['label']}: shelves[1].label must be text, is 7.",
        f"{path}:{at['colour']}: shelves[1].colour is not a known key; the nearest is slots; "
        "known here: size, slots, label.",
        f"{path}:{at['open']}: open must be true or false, is 1.",
        f"{path}:{at['chairs']}: chairs must be a whole number, is 'many'.",
    }
    assert set(error.value.problems) == expected
    numbers = [int(told.split(":")[1]) for told in error.value.problems]
    assert numbers == sorted(numbers)
    assert str(error.value).splitlines() == list(error.value.problems)


def test_a_rule_names_every_item_that_breaks_it() -> None:
    with pytest.raises(InputErrors) as error:
        io.read_text("shelves: {size: 1, slots: []}", Room, "a.yaml")
    assert error.value.problems == ("a.yaml:1: shelves must be a list, is a mapping.",)
    with pytest.raises(InputErrors) as error:
        io.read_text("shelves:\n- size: -1\n  slots:\n  - 0\n  - 5\n  - -2", Room, "a.yaml")
    assert error.value.problems == (
        "a.yaml:2: shelves[0].size must be at least 0, is -1.",
        "a.yaml:4: shelves[0].slots[0] must be at least 1, is 0.",
        "a.yaml:6: shelves[0].slots[2] must be at least 1, is -2.",
    )


def test_true_and_false_are_no_numbers() -> None:
    with pytest.raises(InputErrors) as error:
        io.read_text("shelves: []\nopen: true\nchairs: true", Room, "a.yaml")
    assert error.value.problems == ("a.yaml:3: chairs must be a whole number, is true.",)


def test_very_many_mistakes_are_counted() -> None:
    text = json.dumps({"shelves": [{"size": "x"}] * 5_000})
    with pytest.raises(InputErrors) as error:
        io.read_text(text, Room, "a.json")
    assert len(error.value.problems) == 21
    assert error.value.problems[-1] == "a.json: ... and 4980 more mistakes."


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", "", "a.yaml: the file is empty."),
        ("a.json", " \n\t\n", "a.json: the file is empty."),
        ("a.yaml", "# nothing\n", "a.yaml: expected keys and values at the top of the file, found nothing."),
        ("a.yaml", "- 1\n", "a.yaml: expected keys and values at the top of the file, found a list."),
        ("a.json", "[1]", "a.json: expected keys and values at the top of the file, found a list."),
        ("a.json", "1", "a.json: expected keys and values at the top of the file, found a single word or number."),
        ("a.yaml", "a: [1\nb: 2\n", "a.yaml:2: this is not YAML: expected ',' or ']', but got ':'."),
        ("a.yaml", "a: 1\n\tb: 2\n", "a.yaml:2: this is not YAML: "),
        ("a.yaml", "a: 1\n---\nb: 2\n", "a.yaml:2: this is not YAML: "),
        ("a.yaml", "a: \0\n", "a.yaml: this is not YAML: unacceptable character"),
        ("a.json", '{"a": 1, 2}', "a.json:1: this is not JSON: Expecting property name enclosed in double quotes"),
        ("a.json", '{"a": 1}\n{', "a.json:2: this is not JSON: Extra data (column 1)."),
        ("a.toml", "a = \n", "a.toml:1: this is not TOML: Invalid value."),
        ("a.yaml", "a: 1\nb: 2\na: 3\n", "a.yaml:3: key 'a' is given twice in one place; keep one."),
        ("a.json", '{"b":\n{"a": 1,\n"a": 2}}', "a.json:3: b.a is given twice in one place; keep one."),
        ("a.toml", "a = 1\na = 2\n", "a.toml:2: this is not TOML: Cannot overwrite a value; give each key once."),
        ("a.yaml", "b: {a: .nan}", "a.yaml:1: b.a must be a finite number, is nan."),
        ("a.json", '{"b": [\n1,\nNaN]}', "a.json:3: b[1] must be a finite number, is nan."),
        ("a.json", '{"b": 1e999}', "a.json:1: b must be a finite number, is inf."),
        ("a.toml", "b = -inf", "a.toml:1: b must be a finite number, is -inf."),
        ("a.toml", "b = 2020-01-01", "a.toml:1: b is a date; only text"),
        ("a.yaml", "b: 2020-01-01", "a.yaml:1: b is a date; only text"),
        ("a.yaml", "b: !!binary aGk=", "a.yaml:1: b is of the kind bytes; only text"),
        ("a.yaml", "b: !!set {x}", "a.yaml:1: b is of the kind "),
        ("a.yaml", "b:\n  1: 2\n", "a.yaml:1: b has the key 1, which is not text; put it in quotes."),
        ("a.yaml", "b: !!python/object/apply:os.system [exit]", "a.yaml:1: this is not YAML: could not determine a"),
        (
            "a.yaml",
            "b: !thing 3",
            "a.yaml:1: this is not YAML: could not determine a constructor for the tag '!thing'.",
        ),
        ("a.json", '{"b": "\\ud800"}', "a.json:1: b holds half a character (a lone surrogate)."),
        ("a.json", '{"b": ' + "1" * 5000 + "}", "a.json: this is not JSON: a whole number has more than 4300 digits."),
        ("a.json", "[" * 100_000, "a.json: the file is nested too deeply to be read."),
        ("a.json", '{"a":' * 100_000, "a.json: the file is nested too deeply to be read."),
        ("a.yaml", "[" * 1_000, "a.yaml: the file is nested too deeply to be read."),
        ("a.yaml", "- " * 2_000, "a.yaml: the file is nested too deeply to be read."),
        ("a.json", '{"a":' * 200 + "1" + "}" * 200, "a.json:1: a.a.a is nested more than 100 levels deep."),
        ("a.yaml", "a: &a [*a]\n", "a.yaml:1: a[0] contains itself."),
    ],
)
def test_what_cannot_be_read_is_told_plainly(name: str, text: str, told: str) -> None:
    with pytest.raises(PlacedErrors) as error:
        io.read_text(text, Room, name)
    assert str(error.value).startswith(told)
    assert len(error.value.problems) == 1


def test_aliases_that_blow_up_are_refused() -> None:
    letters = "abcdefghij"
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in pairwise(letters)]
    with pytest.raises(InputErrors, match="more than 5000000 values, counting what aliases repeat"):
        io.read_text("\n".join(lines), Room, "a.yaml")


def test_aliases_that_do_not_are_read() -> None:
    text = "shelves: [&a {size: 1}, *a, {<<: *a, label: x}]"
    assert io.read_text(text, Room, "a.yaml").shelves == (
        Shelf(Bytes(1.0)),
        Shelf(Bytes(1.0)),
        Shelf(Bytes(1.0), label="x"),
    )


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(PlacedErrors, match="there is no such file"):
        io.read(tmp_path / "none.yaml", Room)
    with pytest.raises(PlacedErrors, match="this is a folder"):
        io.read(tmp_path, Room)
    with pytest.raises(PlacedErrors, match="cannot be read: File name too long"):
        io.read(tmp_path / ("x" * 300), Room)
    with pytest.raises(PlacedErrors, match="cannot be read: "):
        io.read(Path("a\0b"), Room)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(PlacedErrors, match="this is not text in UTF-8"):
        io.read(tmp_path / "binary", Room)


def test_large_files_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(70 * 2**20)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the file was opened")

    monkeypatch.setattr(Path, "open", never)
    with pytest.raises(PlacedErrors, match=r"large.yaml: the file has 70 MiB, more than the 64 MiB nest reads\.$"):
        io.read(path, Room)


def test_endless_devices_are_not_read_to_their_end() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("this machine has no /dev/zero")
    with pytest.raises(PlacedErrors, match="more than the 64 MiB"):
        io.read(Path("/dev/zero"), Room)


def test_long_yaml_is_sent_to_json() -> None:
    with pytest.raises(PlacedErrors, match="YAML files may have 8 MiB, this has 9; write it as JSON"):
        io.read_text("#" * (9 * 2**20), Room, "a.yaml")


@pytest.mark.parametrize(
    ("text", "value"), [("8", 8), ("true", True), ("x", "x"), ("[1, a]", [1, "a"]), ("'8'", "8"), ("1e3", 1000.0)]
)
def test_single_values(text: str, value: object) -> None:
    assert io.read_value(text) == value


@pytest.mark.parametrize("text", ["[", ".nan", "2020-01-01", "!x 3", "a: b: c", "{1: 2}"])
def test_single_values_that_make_no_sense(text: str) -> None:
    with pytest.raises(InputError) as error:
        io.read_value(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250


def test_later_errors_get_the_file_and_the_line(tmp_path: Path) -> None:
    path = tmp_path / "room.yaml"
    path.write_text("open: true\nshelves:\n  - size: 1\n    slots: 2\n")
    found = InputErrors(
        ["shelves[0].slots is too many.", "The roof leaks.", "open: cannot stay so.", "shelves[0].door is not there."]
    )
    assert io.placed(path, found).problems == (  # type: ignore[attr-defined]
        f"{path}: The roof leaks.",
        f"{path}:1: open: cannot stay so.",
        f"{path}:3: shelves[0].door is not there.",
        f"{path}:4: shelves[0].slots is too many.",
    )
    placed = PlacedErrors(["other.yaml:3: is placed."])
    assert io.placed(path, placed) is placed
    path.unlink()
    assert str(io.placed(path, InputError("open: no."))) == f"{path}: open: no."
