"""Files of measured collectives: tables, outputs of nccl-tests, JSON lines."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from nest.errors import InputError
from nest_calibrate import collective_measurements
from nest_calibrate.collective_measurements import Measurement, read_collectives

OUTPUT = """\
# Collective test starting: all_gather_perf
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid  15784 on     node-a device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid  15784 on     node-a device  1 [0000:15:00] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           0             0     float    none      -1     0.11    0.00    0.00       0     0.10    0.00    0.00       0
     1048576        131072     float    none      -1    40.00   26.21   13.11       0    38.50   27.24   13.62       0
     2097152        262144     float    none      -1    52.25   40.14   20.07     N/A      N/A     N/A     N/A     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 15.6
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_outputs_of_nccl_tests_tell_both_columns(tmp_path: Path) -> None:
    found = read_collectives([written(tmp_path, "run.txt", OUTPUT)])
    rows = [(each.kind, each.bytes, each.shape, each.seconds, each.links) for each in found]
    # Out-of-place and in-place are the same collective: their median.
    assert rows == [
        ("all_gather", 1048576.0, (2,), pytest.approx(39.25e-6), ("nvlink3",)),
        ("all_gather", 2097152.0, (2,), pytest.approx(52.25e-6), ("nvlink3",)),
    ]


def test_outputs_from_several_machines_need_the_link_between_them(tmp_path: Path) -> None:
    second = OUTPUT.replace("on     node-a device  1", "on     node-b device  0")
    path = written(tmp_path, "run.txt", second)
    with pytest.raises(InputError, match=r"between the machines.*--link"):
        read_collectives([path])
    found = read_collectives([path], "infiniband-ndr")
    assert {(each.shape, each.links) for each in found} == {((1, 2), ("nvlink3", "infiniband-ndr"))}


def test_the_file_name_may_name_the_program(tmp_path: Path) -> None:
    text = OUTPUT.replace("# Collective test starting: all_gather_perf\n", "")
    with pytest.raises(InputError, match="all_reduce_perf"):
        read_collectives([written(tmp_path, "run.txt", text)])
    found = read_collectives([written(tmp_path, "alltoall_perf.log", text)])
    assert {each.kind for each in found} == {"all_to_all"}


def test_unknown_devices_need_a_link(tmp_path: Path) -> None:
    path = written(tmp_path, "run.txt", OUTPUT.replace("NVIDIA A100-SXM4-40GB", "Something else"))
    with pytest.raises(InputError, match="--link nvlink4"):
        read_collectives([path])
    assert {each.links for each in read_collectives([path], "pcie4")} == {("pcie4",)}


def test_tables_count_elements_and_milliseconds(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"op_name": name, "nccl_dtype": kind, "num_gpus": 4, "message_size": 1024, "latency": latency}
        for name, kind, latency in (
            ("alltoall", "half", 0.5),
            ("alltoall", "half", 0.7),
            ("alltoall", "int8", 9.0),
            ("p2p", "half", 9.0),
        )
    ]
    path = tmp_path / "h100_sxm.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    (found,) = read_collectives([path])
    assert found.seconds == pytest.approx(6e-4)
    assert evolve(found, seconds=1.0) == Measurement(
        "h100_sxm.parquet", "all_to_all", 2048.0, (4,), 1.0, ("nvlink4",), (450e9,)
    )
    parquet.write_table(pyarrow.Table.from_pylist([{"op_name": "alltoall"}]), path)
    with pytest.raises(InputError, match="no column latency"):
        read_collectives([path])
    path.write_text("not parquet")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        read_collectives([path])


@pytest.mark.parametrize(("kind", "width"), [("half", 2), ("bfloat16", 2), ("float", 4)])
def test_rows_of_tables_have_elements_of_their_format(
    kind: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"op_name": "all_gather", "nccl_dtype": kind, "num_gpus": 8, "message_size": 1000, "latency": 0.25}
    monkeypatch.setattr(collective_measurements, "_parquet_rows", lambda _: iter([row]))
    (found,) = read_collectives([tmp_path / "h100.parquet"])
    assert (found.bytes, found.seconds) == (1000.0 * width, pytest.approx(0.25e-3))


LINE = {
    "nest": 1,
    "measurement": "collective",
    "kind": "all_reduce",
    "bytes": "1 MiB",
    "members": 8,
    "seconds": "90 us",
}


def lines(folder: Path, *documents: dict[str, object]) -> Path:
    return written(folder, "own.jsonl", "\n".join(map(json.dumps, documents)) + "\n\n")


def test_lines_name_their_links_or_their_device(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        LINE | {"link": "nvlink5", "versions": {"torch": "2.9"}, "repeats": 20},
        LINE | {"device": "NVIDIA H200", "link": None, "source": "my machine"},
        LINE | {"members": 32, "nodes": 4, "inside": "nvlink5", "link": "efa", "bandwidth": "50 GB/s"},
        LINE | {"kind": "point_to_point", "link": "nvlink5"},
    )
    found = [(each.table, each.shape, each.links, each.bandwidths) for each in read_collectives([path])]
    assert found == [
        ("own.jsonl", (8,), ("nvlink5",), (None,)),
        ("my machine", (8,), ("nvlink4",), (None,)),
        ("own.jsonl", (8, 4), ("nvlink5", "efa"), (None, 50e9)),
    ]
    assert read_collectives([path])[0].bytes == 2**20


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "the link of its devices is not known.*--link nvlink4"),
        ({"members": 32, "nodes": 4, "link": "efa"}, "inside the machines.*inside nvlink4"),
        ({"members": 32, "nodes": 4, "inside": "nvlink5"}, "between the machines"),
        ({"link": "nvlink5", "seconds": 0}, ":1.*seconds"),
    ],
)
def test_lines_that_say_too_little_are_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_collectives([lines(tmp_path, LINE | change)])


def test_a_file_without_collectives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no measured collective"):
        read_collectives([lines(tmp_path, LINE | {"kind": "point_to_point", "link": "nvlink5"})])


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent"):
        read_collectives([tmp_path / "absent.jsonl"])
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is not text"):
        read_collectives([tmp_path / "bytes.txt"])


def test_one_rank_alone_measures_nothing(tmp_path: Path) -> None:
    text = "\n".join(line for line in OUTPUT.splitlines() if "Rank  1" not in line)
    with pytest.raises(InputError, match="one rank sends nothing"):
        read_collectives([written(tmp_path, "run.txt", text)])


@pytest.mark.parametrize("spoilt", ["1.2.3", "²", "-40.00", "9" * 400, "nan"])
def test_what_is_no_number_is_passed_over(tmp_path: Path, spoilt: str) -> None:
    (time, _) = read_collectives([written(tmp_path, "run.txt", OUTPUT.replace("40.00", spoilt, 1))])
    assert time.seconds == pytest.approx(38.5e-6)
    (size,) = read_collectives([written(tmp_path, "run.txt", OUTPUT.replace("     1048576 ", f" {spoilt} "))])
    assert size.bytes == 2097152
