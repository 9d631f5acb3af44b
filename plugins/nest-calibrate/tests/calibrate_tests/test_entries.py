"""Calibrations and devices as files: what is written is read back, whatever names and sources hold."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import Calibration, calibrations, devices
from nest.io import read, read_text
from nest.spec import Coefficients, DeviceSpec, ranges
from nest_calibrate.entries import calibration_text, device_text, file_name

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COEFFICIENTS = st.fixed_dictionaries({name: st.floats(each.low, each.high) for name, each in ranges().items()}).map(
    lambda terms: Coefficients(**terms)
)


def loaded(text: str, name: str) -> Calibration:
    """As the catalogue reads its files (`nest.catalogue.load`)."""
    content: dict[str, Any] = tomllib.loads(text)
    return Calibration(
        name=name,
        efficiency=content.pop("efficiency"),
        coefficients=Coefficients(**content.pop("coefficients")),
        sources=tuple(content.pop("sources", ())),
        **content,
    )


@pytest.mark.parametrize("name", devices())
def test_every_device_is_read_back_as_it_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / file_name(name)
    path.write_text(device_text(devices()[name]), encoding="utf-8")
    assert read(path, DeviceSpec) == devices()[name]


@given(WORDS, st.lists(WORDS, max_size=3), WORDS, COEFFICIENTS)
def test_a_device_of_any_name_is_read_back(name: str, sources: list[str], kind: str, terms: Coefficients) -> None:
    usual = devices()["h100-sxm"]
    device = evolve(usual, name=name or "x", sources=tuple(sources), efficiency={f"k{kind}": 0.5}, calibration=terms)
    assert read_text(device_text(device), DeviceSpec, "own.toml") == device


@pytest.mark.parametrize("name", calibrations())
def test_the_catalogues_files_are_written_back_as_they_are(name: str) -> None:
    assert loaded(calibration_text(calibrations()[name]), name) == calibrations()[name]


@given(WORDS, st.lists(WORDS, max_size=3), WORDS, COEFFICIENTS)
def test_a_calibration_of_any_name_is_read_back(
    name: str, sources: list[str], device: str, terms: Coefficients
) -> None:
    found = Calibration(name, {"matmul.fp8": 0.5, "matmul": 1.0}, terms, {device: 1.1}, tuple(sources))
    assert loaded(calibration_text(found), name) == found


@given(st.text())
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    found = file_name(name)
    assert Path(found).name == found
    assert not found.startswith(".")
    assert found.endswith(".toml")
    assert found.isascii()


def test_usual_names_stay() -> None:
    assert file_name("h100-sxm") == "h100-sxm.toml"
    assert file_name("../../NVIDIA H100/80 GB") == "NVIDIA-H100-80-GB.toml"
