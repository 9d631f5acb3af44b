"""Every file of the corpus is what is written beside it."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from nest.catalogue import link
from nest.errors import InputError
from nest.formulate.cluster import from_file
from nest.hooks.registry import registry
from nest.network import LinkGraph
from nest.spec import ClusterSpec
from nest_networks.doctor import RULES
from networks_tests.corpus import FILES, File, text_of
from networks_tests.field import imported, reduced

NAMES = [f"{at}: {file.kind}" for at, file in enumerate(FILES)]


def rows(text: str) -> list[tuple[int, float]]:
    return [(int(count), float(rate)) for count, _, rate in (each.partition("x") for each in text.split())]


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_file_is_what_its_truth_says(file: File, tmp_path: Path) -> None:
    path = tmp_path / file.name
    path.write_text(text_of(file))
    if file.truth.startswith("!"):
        with pytest.raises(InputError) as refused:
            from_file(ClusterSpec(topology=str(path)), registry(), None)
        assert file.truth[2:] in str(refused.value)
        return
    found = imported(path)
    assert file.told in "\n".join(found.assumptions)
    if file.truth.startswith("pools"):
        assert len(found.pools) == int(file.truth.split()[1])
        assert not found.between  # NCCL and RCCL share no process group.
        return
    assert (found.device, found.devices_per_host) == (file.device, file.per_host)
    if file.hosts:
        assert found.hosts == tuple(file.hosts.split())
    if file.truth.startswith("graph"):
        assert isinstance(found.network, LinkGraph)
        assert len(found.network.devices) == int(file.truth.split()[1])
    elif file.truth.startswith("~"):
        shown = [(each.fanout, each.bandwidth / 1e9) for each in reduced(found)]
        assert shown == [(each, pytest.approx(rate)) for each, rate in rows(file.truth[1:])]
    else:
        assert isinstance(found.network, tuple)
        shown = [(each.fanout, (each.bandwidth or link(str(each.link)).bandwidth or 0) / 1e9) for each in found.network]
        assert shown == [(each, pytest.approx(rate, rel=1e-6)) for each, rate in rows(file.truth)]


def test_the_corpus_is_wide() -> None:
    assert len(FILES) >= 60
    assert len({file.kind for file in FILES}) >= 20


@pytest.mark.longer
def test_sentences_that_the_doctor_knows_are_said(tmp_path: Path) -> None:
    """Each rule of `nest topology doctor` fits what some importer says of the corpus."""
    said = []
    for at, file in enumerate(FILES):
        path = tmp_path / str(at) / file.name
        path.parent.mkdir()
        path.write_text(text_of(file))
        with suppress(InputError):
            said += imported(path).assumptions
    assert [pattern for pattern, _, _ in RULES if not any(re.search(pattern, sentence) for sentence in said)] == []
