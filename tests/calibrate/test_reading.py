"""Files of measured collectives: tables, outputs of nccl-tests, JSON lines."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from nest.calibrate.links import read_measurements
from nest.calibrate.measurement import Measurement
from nest.errors import InputError

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
    found = read_measurements([written(tmp_path, "run.txt", OUTPUT)])
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
        read_measurements([path])
    found = read_measurements([path], "infiniband-ndr")
    assert {(each.shape, each.links) for each in found} == {((1, 2), ("nvlink3", "infiniband-ndr"))}


def test_the_file_name_may_name_the_program(tmp_path: Path) -> None:
    text = OUTPUT.replace("# Collective test starting: all_gather_perf\n", "")
    with pytest.raises(InputError, match="all_reduce_perf"):
        read_measurements([written(tmp_path, "run.txt", text)])
    found = read_measurements([written(tmp_path, "alltoall_perf.log", text)])
    assert {each.kind for each in found} == {"all_to_all"}


def test_unknown_devices_need_a_link(tmp_path: Path) -> None:
    path = written(tmp_path, "run.txt", OUTPUT.replace("NVIDIA A100-SXM4-40GB", "Something else"))
    with pytest.raises(InputError, match="--link nvlink4"):
        read_measurements([path])
    assert {each.links for each in read_measurements([path], "pcie4")} == {("pcie4",)}


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
    (found,) = read_measurements([path])
    assert found.seconds == pytest.approx(6e-4)
    assert evolve(found, seconds=1.0) == Measurement(
        "h100_sxm.parquet", "all_to_all", 2048.0, (4,), 1.0, ("nvlink4",), (450e9,)
    )
    parquet.write_table(pyarrow.Table.from_pylist([{"op_name": "alltoall"}]), path)
    with pytest.raises(InputError, match="no column latency"):
        read_measurements([path])
    path.write_text("not parquet")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        read_measurements([path])


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
        LINE | {"members": [8, 4], "link": ["nvlink5", "efa"], "bandwidth": ["900 GB/s", "50 GB/s"]},
        LINE | {"kind": "point_to_point", "link": "nvlink5"},
        {"nest": 1, "measurement": "operator", "kind": "matmul"},
    )
    found = [(each.table, each.shape, each.links, each.bandwidths) for each in read_measurements([path])]
    assert found == [
        ("own.jsonl", (8,), ("nvlink5",), (None,)),
        ("my machine", (8,), ("nvlink4",), (None,)),
        ("own.jsonl", (8, 4), ("nvlink5", "efa"), (900e9, 50e9)),
    ]
    assert read_measurements([path])[0].bytes == 2**20


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "line 1: link names 0 of 1 levels"),
        ({"members": [8, 4], "link": "nvlink5"}, "link names 1 of 2 levels"),
        ({"link": "nvlink5", "bandwidth": [1e9, 1e9]}, "bandwidth has 2 figures for 1 links"),
        ({"link": "nvlink5", "seconds": 0}, "line 1: seconds"),
        ({"link": "nvlink5", "bytes": "much"}, "line 1: bytes"),
    ],
)
def test_lines_that_say_too_little_are_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_measurements([lines(tmp_path, LINE | change)])


@pytest.mark.parametrize("text", ["{", "[1]", "\x00", ""])
def test_what_is_no_measurement_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"no JSON|JSON object|no measured collective"):
        read_measurements([written(tmp_path, "own.jsonl", text)])


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_measurements([tmp_path / "absent.jsonl"])
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is not text"):
        read_measurements([tmp_path / "bytes.txt"])
