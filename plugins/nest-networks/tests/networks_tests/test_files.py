"""Lists of hosts: what they stand for, what is refused, and Slurm's own reading of them."""

import os
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest_networks.files import MOST_HOSTS, host_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rack[1-2]n[01-03],gpu7", "rack1n01 rack1n02 rack1n03 rack2n01 rack2n02 rack2n03 gpu7"),
        ("n[1-3,5,09-11]", "n1 n2 n3 n5 n09 n10 n11"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[99-101]", "n99 n100 n101"),
        ("n[001-3]", "n001 n002 n003"),
        ("n[1-2]-ib[0-1]", "n1-ib0 n1-ib1 n2-ib0 n2-ib1"),
        ("n[1-2][3-4]", "n13 n14 n23 n24"),
        ("n[1,1],n1", "n1 n1 n1"),
        (" a,,b c,", "a b c"),
        ("[1-3]", "1 2 3"),
        ("n[1-2].cluster.local", "n1.cluster.local n2.cluster.local"),
        ("$(reboot)", "$(reboot)"),
        ("", ""),
    ],
)
def test_a_list_stands_for_names(text: str, names: str) -> None:
    assert host_names(text) == tuple(names.split())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n[3-1]", "counts down"),
        ("n[a-c]", "no number and no range"),
        ("n[]", "no number and no range"),
        ("n[1-]", "no number and no range"),
        ("n[1", "not closed"),
        ("n1]", "do not match"),
        ("n[1,[2-3]]", "do not match"),
        (f"n[1-{MOST_HOSTS + 1}]", "more than"),
        ("n[0-99999]x[0-99999]", "more than"),
        ("n[" + "9" * 5000 + "]", "no number and no range"),
        ("n[٣]", "no number and no range"),
    ],
)
def test_what_is_no_list_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        host_names(text)


@pytest.mark.longer
def test_long_lists_stay_within_the_limit_together() -> None:
    with pytest.raises(InputError, match="more than"):
        host_names(",".join(f"r{index}n[0-99999]" for index in range(11)))


PREFIXES = st.text("abcxyz-._", min_size=1, max_size=4)
NUMBERS = st.tuples(st.integers(0, 200), st.integers(0, 12), st.integers(1, 4))


@st.composite
def lists(draw: st.DrawFn, most_brackets: int = 3) -> tuple[str, list[str]]:
    """A list of hosts, and the names it stands for."""
    words, names = [], []
    for _ in range(draw(st.integers(1, 3))):
        word, choices = "", []
        for _ in range(draw(st.integers(1, most_brackets))):
            prefix = draw(PREFIXES)
            ranges, numbers = [], []
            for first, more, width in draw(st.lists(NUMBERS, min_size=1, max_size=2)):
                start = str(first).zfill(width)
                ranges.append(f"{start}-{first + more}" if more else start)
                numbers += [str(number).zfill(len(start)) for number in range(first, first + more + 1)]
            word += f"{prefix}[{','.join(ranges)}]"
            choices.append([prefix + number for number in numbers])
        words.append(word)
        names += ["".join(each) for each in product(*choices)]
    return ",".join(words), names


@pytest.mark.longer
@given(lists())
def test_ranges_are_all_their_numbers_in_order(drawn: tuple[str, list[str]]) -> None:
    text, names = drawn
    assert list(host_names(text)) == names


@pytest.mark.longer
@given(st.lists(st.from_regex(r"[a-z][a-z0-9.\-]{0,8}", fullmatch=True), max_size=8))
def test_names_stand_for_themselves(names: list[str]) -> None:
    assert list(host_names(",".join(names))) == names


@given(st.text("n[]-,0123456789a "))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        names = host_names(text)
    except InputError:
        return
    assert all(name and not set(name) & set("[], ") for name in names)


SCONTROL = shutil.which("scontrol")


@pytest.mark.skipif(SCONTROL is None, reason="scontrol is not installed (Debian: slurm-client)")
@pytest.mark.parametrize(
    "text",
    [
        "rack[1-2]n[01-03],gpu7",
        "n[1-3,5,09-11]",
        "n[08-11],m[0-2]",
        "n[001-3],n[98-101]",
        "n[1-2]-ib[0-1]",
        "n[1-2][3-4]",
        "n[1,1],n1",
        "a[0-1]b[00-01]c[7,9]",
        "peta[10000-10019]",
    ],
)
def test_slurm_reads_lists_alike(text: str, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=any\nSlurmctldHost=localhost\n")
    asked = [str(SCONTROL), "show", "hostnames", text]
    environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    answer = subprocess.run(asked, capture_output=True, text=True, check=True, env=environment, timeout=60)
    told, names = answer.stdout.split(), list(host_names(text))
    if text.count("[") - text.count(",") < 2 or "]b[" not in text:
        assert names == told
    assert sorted(names) == sorted(told)
