"""A problem that options describe, in `nest solve` and `nest init`."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nest
from nest.catalogue import clusters, devices, library_models, profiles
from nest.catalogue.spellings import catalogued, cluster_called, device_called, published
from nest.cli.asked import EXAMPLE
from nest.io import read, read_mapping_text, structure
from nest.spec import Problem
from tests.command_line import call as called

MACHINES = ("--nodes", "2", "--gpus-per-node", "8", "--device", "h100", "--network", "400 Gbit/s")
SIZES = ("--batch", "256", "--sequence", "8192")
WORDS = ("--model", "llama-3.1-8b", *MACHINES, *SIZES)
FEW = ("--nodes", "2", "--gpus-per-node", "2", "--device", "h100")
SMALL = ("--model", "gpt2", *FEW, "--batch", "8", "--sequence", "512")


def printed(call, *words: object) -> Problem:
    """The problem that `nest solve` prints."""
    code, text, errors = call("solve", *words, "--print-problem")
    assert (code, errors) == (0, "")
    return structure(read_mapping_text(text, "problem"), Problem)


def refused(call, *words: object) -> str:
    """The sentence with which words are refused."""
    code, text, errors = call(*words)
    assert (code, text) == (2, ""), errors
    assert "Traceback" not in errors
    assert errors.startswith("nest: ")
    assert len(errors.splitlines()) == 1
    return errors


def test_the_words_of_the_documentation_make_the_problem_they_say(call) -> None:
    problem = printed(call, *WORDS)
    node, network = problem.cluster.levels or ()
    assert (problem.model, problem.cluster.device) == ("llama-3.1-8b", "h100-sxm")
    assert (problem.training.global_batch, problem.training.sequence_length) == (256, 8192)
    assert (node.fanout, node.bandwidth, node.link) == (8, 450e9, "nvlink4")
    assert (network.fanout, network.bandwidth, network.link) == (2, 50e9, "infiniband-ndr")


@pytest.mark.longer
def test_solving_from_options_is_solving_what_they_print(call, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(call("solve", *SMALL, "--print-problem")[1])
    code, text, errors = call("solve", *SMALL, "--json", "--output", tmp_path / "plan.json")
    assert code == 0
    assert errors.startswith("nest: assumed: 2 nodes of 2 h100-sxm, 450 GB/s per GPU")
    assert json.loads(text) == nest.solve(path).to_dict()
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(text)


def test_init_writes_what_solve_prints(call, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    assert call("init", *WORDS, "-o", path)[0] == 0
    assert path.read_text() == call("solve", *WORDS, "--print-problem")[1]
    others = {"--batch": "--global-batch", "--sequence": "--sequence-length", "--gpus-per-node": "--devices-per-node"}
    older = [others.get(each, each) for each in WORDS]
    other = tmp_path / "older" / "problem.yaml"
    other.parent.mkdir()
    assert call("init", *older, "-o", other)[0] == 0
    assert other.read_text() == path.read_text()
    joined = ["--global-batch=256" if each == "--batch" else each for each in WORDS if each != "256"]
    assert call("solve", *joined, "--print-problem")[1] == path.read_text()
    for command in ("init", "solve"):
        told = call(command, "--help")[1]
        assert "--batch" in told
        assert "--global-batch" not in told
        assert "--sequence-length" not in told


@pytest.mark.parametrize(
    ("network", "bandwidth", "link"),
    [
        ("400 Gbit/s", 50e9, "infiniband-ndr"),
        ("50 GB/s", 50e9, "infiniband-ndr"),
        ("400Gbps per GPU", 50e9, "infiniband-ndr"),
        ("3.2 Tbit/s per node", 50e9, "infiniband-ndr"),
        ("400 Gbit/s per node", 6.25e9, "infiniband"),
        ("400 Gbit/s/host", 6.25e9, "infiniband"),
        ("100 Gbit/s", 12.5e9, "infiniband-edr"),
        ("30 GB/s per GPU", 30e9, "infiniband"),
        ("InfiniBand NDR", 50e9, "infiniband-ndr"),
        (None, 50e9, "infiniband-ndr"),
    ],
)
def test_the_network_is_per_gpu_unless_it_is_said_to_be_per_node(
    call, network: str | None, bandwidth: float, link: str
) -> None:
    words = [*WORDS[:-6], *(() if network is None else ("--network", network)), *SIZES]
    level = (printed(call, *words).cluster.levels or ())[-1]
    assert (level.bandwidth, level.link) == (bandwidth, link)


def test_what_was_understood_is_told_in_one_line(call) -> None:
    assumed = printed(call, *WORDS).cluster.assumed
    assert assumed == (
        "2 nodes of 8 h100-sxm, 450 GB/s per GPU and direction inside a node (nvlink4), 50 GB/s between nodes "
        "(infiniband-ndr).",
    )
    far = [each.replace("400 Gbit/s", "400 GB/s") for each in WORDS]
    (sentence,) = printed(call, *far).cluster.assumed or ()
    assert sentence.endswith("400 GB/s between nodes (infiniband), usually 50 GB/s (infiniband-ndr).")
    many = [each.replace("8", "16") if each == "8" else each for each in WORDS]
    assert "16 h100-sxm, usually 8" in (printed(call, *many).cluster.assumed or ("",))[0]
    one = [each.replace("2", "1") if each == "2" else each for each in WORDS]
    assert "leave --network out" in (printed(call, *one).cluster.assumed or ("",))[0]


def test_machines_of_one_domain_are_joined_by_it(call) -> None:
    words = ("--model", "llama-3.1-8b", "--device", "GB200", *SIZES)
    fanouts = {nodes: printed(call, *words, "--nodes", nodes).cluster.levels for nodes in (1, 18, 36)}
    assert {nodes: [(each.fanout, each.link) for each in levels or ()] for nodes, levels in fanouts.items()} == {
        1: [(4, "nvlink5")],
        18: [(4, "nvlink5"), (18, "nvlink5")],
        36: [(4, "nvlink5"), (18, "nvlink5"), (2, "infiniband-ndr")],
    }
    assert "give a multiple of 18" in refused(call, "solve", *words, "--nodes", "20")


@pytest.mark.longer
def test_every_device_has_usual_machines_but_those_of_a_torus(call) -> None:
    known = {each.device for each in profiles().values()}
    assert {name for name in devices() if name not in known} == {"tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v7x", "trainium2"}
    words = ("--model", "gpt2", "--batch", "8", "--sequence", "512")
    for name in sorted(each for each in known if each):
        levels = printed(call, *words, "--device", name, "--nodes", "2").cluster.levels or ()
        same = [each.levels[0] for each in clusters().values() if each.device == name and each.levels[0].link]
        assert {(level.link, level.bandwidth) for level in same} <= {(levels[0].link, levels[0].bandwidth)}
    assert "no usual node of tpu-v5e" in refused(call, "solve", *words, "--device", "tpu-v5e")


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("META-LLAMA/LLAMA-3.1-8B", "llama-3.1-8b"),
        ("llama3.1-8b", "llama-3.1-8b"),
        ("llama-3.1-8B", "llama-3.1-8b"),
        ("Llama 3.1 8B", "llama-3.1-8b"),
        ("llama31_8b", "llama-3.1-8b"),
        ("Llama 3 8B", "llama-3-8b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("qwen3 8b", "qwen3-8b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("Mixtral 8x7B", "mixtral-8x7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("GPT2", "gpt2"),
    ],
)
def test_models_are_known_by_usual_spellings(call, written: str, model: str) -> None:
    assert printed(call, "--model", written, "--device", "h100", "--batch", 8, "--sequence", 512).model == model


@pytest.mark.parametrize("written", ["mistralai/Mistral-7B-v0.3", "Phi-3-mini-128k-instruct", "Llama 8B", "Qwen3", ""])
def test_other_models_are_not_taken_for_those_of_the_catalogue(written: str) -> None:
    assert catalogued(written) is None


def test_names_of_models_devices_and_clusters_mean_one_each() -> None:
    for name in library_models():
        spellings = (name, published(name), name.upper(), name.replace("-", " "), name.replace("-", "_"))
        assert {catalogued(each) for each in spellings if each} == {name}
    assert [device_called(each.upper()) for each in devices()] == list(devices())
    assert [cluster_called(each.upper()) for each in clusters()] == list(clusters())
    assert cluster_called("DGX H100 SuperPOD-64") == "dgx-h100-superpod-64"
    assert cluster_called("DGX-H100-SuperPOD-12") == "DGX-H100-SuperPOD-12"


@pytest.mark.parametrize(
    ("written", "device"),
    [
        ("h100", "h100-sxm"),
        ("H100 SXM", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("h100-sxm5-80gb", "h100-sxm"),
        ("a100-80gb", "a100-sxm-80g"),
        ("A100 SXM4 40 GB", "a100-sxm-40g"),
        ("Tesla-V100-SXM2-32GB", "v100-sxm-32g"),
        ("H200 141GB", "h200-sxm"),
        ("AMD Instinct MI300X", "mi300x"),
        ("TPU v5e", "tpu-v5e"),
        ("tpuv4", "tpu-v4"),
        ("a100", None),
        ("H100 PCIe", None),
        ("H100 NVL", None),
        ("v100-16gb", None),
        ("sxm", None),
        ("80gb", None),
        ("", None),
    ],
)
def test_devices_are_known_by_usual_spellings(written: str, device: str | None) -> None:
    assert device_called(written) == device


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"--model": "Llama 8B"}, "Did you mean 'llama-3-8b' or 'llama-3.1-8b'?"),
        ({"--device": "a100"}, "Did you mean 'a100-sxm-40g' or 'a100-sxm-80g'?"),
        ({"--nodes": "0"}, "--nodes: must be at least 1"),
        ({"--nodes": "two"}, "--nodes: must be a whole number"),
        ({"--nodes": "1M"}, "--nodes: 1000000 nodes of 8 devices are too many"),
        ({"--nodes": "9" * 400}, "--nodes: is too large: 400 digits"),
        ({"--gpus-per-node": "1.5e0"}, "--gpus-per-node: must be a whole number, is '1.5e0', which makes 1.5"),
        ({"--network": "400"}, "give a bandwidth with its unit"),
        ({"--network": "400 Gbit/s per rack"}, "'per rack' is neither per GPU nor per node"),
        ({"--network": "400 parsec"}, "--network has the unit 'parsec'"),
        ({"--network": "400 Gbit"}, "did you mean Gbit/s?"),
        ({"--network": "0 GB/s per node"}, "it must be above 0"),
        ({"--network": "ethernet"}, "ethernet has no fixed rate"),
        ({"--network": "ndr"}, "Write `infiniband-ndr`"),
        ({"--network": "1 B/s"}, "did you mean"),
        ({"--batch": "none"}, "--batch: must be a whole number"),
        ({"--sequence": "8kk"}, "--sequence: must be a whole number"),
    ],
)
def test_mistakes_are_told_in_a_sentence(call, changed: dict[str, str], told: str) -> None:
    words = dict(zip(WORDS[::2], WORDS[1::2], strict=True)) | changed
    flat = [each for pair in words.items() for each in pair]
    assert told in refused(call, "solve", *flat)


def test_a_file_goes_before_a_spelling(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "GPT2").mkdir()
    (tmp_path / "GPT2" / "config.json").write_text(json.dumps({**library_models()["gpt2"].config, "n_layer": 3}))
    assert json.loads(call("models", "GPT2", "--json")[1])["layers"] == 3
    assert printed(call, "--model", "GPT2", *SMALL[2:]).model == "GPT2"
    for absent in ("/checkpoints/Qwen3-8B", "./qwen3-8b", "a/b/qwen3-8b", "Qwen3-8B.json"):
        assert "there is no file" in refused(call, "solve", "--model", absent, *SMALL[2:])


@pytest.mark.longer
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    option=st.sampled_from([each for each in WORDS if each.startswith("--")]),
    value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
    | st.from_regex(r"[0-9.e]{1,9} ?[kMGT]?(bit|B)(/s)?( per (node|gpu|rack))?", fullmatch=True),
)
def test_no_value_ends_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    words = dict(zip(WORDS[::2], WORDS[1::2], strict=True)) | {option: value}
    flat = [f"{name}={each}" for name, each in words.items()]
    assert called(monkeypatch, "solve", *flat, "--print-problem") in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_without_a_problem_both_ways_are_shown(call) -> None:
    told = refused(call, "solve")
    assert "`nest solve problem.yaml`" in told
    assert EXAMPLE in told
    assert refused(call, "solve", "--print-problem") == told


def test_what_is_missing_is_named(call) -> None:
    assert "nest solve needs --batch, --sequence, too." in refused(call, "solve", *WORDS[:-4])
    assert "nest solve needs --model, too." in refused(call, "solve", *WORDS[2:])
    assert "nest solve needs --device, too." in refused(call, "solve", *WORDS[:2], *SIZES)
    assert "nest solve needs --sequence, too." in refused(call, "solve", *WORDS[:-1], "")


def test_a_file_and_options_are_not_mixed(call, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text("nest: 1\nmodel: gpt2\ntraining: {global_batch: 8}\ncluster: dgx-h100-superpod-8\n")
    told = refused(call, "solve", path, "--batch", "16")
    assert told.startswith(
        f"nest: {path}:3: training.global_batch is 8 here; --batch cannot be combined with a problem file. Edit"
    )
    assert f"{path}:2: model is 'gpt2' here" in refused(call, "solve", path, "--model", "bert-large")
    assert f"{path}:4: cluster" in refused(call, "solve", path, "--nodes", "2")
    assert "--print-problem" in refused(call, "solve", path, "--print-problem")
    assert "nest init" in refused(call, "solve", *SMALL, "--print-problem", "--output", path)
    assert "absent.yaml" in refused(call, "solve", tmp_path / "absent.yaml", "--batch", "16")
    path.write_text("nest: 1\nmodel: gpt2\ntraining: 3\ncluster: dgx-h100-superpod-8\n")
    assert "--batch" in refused(call, "solve", path, "--batch", "16")


def test_a_cluster_stands_in_place_of_machines(call) -> None:
    words = ("--model", "llama-3.1-8b", *SIZES, "--cluster", "DGX-H100-SuperPOD-64")
    assert printed(call, *words).cluster.name == "dgx-h100-superpod-64"
    assert "leave --nodes out" in refused(call, "solve", *words, "--nodes", "2")
    assert "leave --network out" in refused(call, "solve", *words, "--network", "400 Gbit/s")
    assert printed(call, *words, "--device", "H200").cluster.device == "h200-sxm"


def test_what_goes_with_a_file_alone_is_refused_with_options(call, tmp_path: Path) -> None:
    assert "--watch needs problem files" in refused(call, "solve", *SMALL, "--watch")
    config = tmp_path / "config.json"
    config.write_text(json.dumps(library_models()["gpt2"].config))
    words = ["--model", config, *SMALL[2:]]
    assert "config.json" in refused(call, "solve", *words, "--output", config)
    assert json.loads(config.read_text()) == library_models()["gpt2"].config


def test_a_file_of_a_cluster_says_its_device_or_an_option_does(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "section.yaml").write_text("cluster: {device: h100-sxm, levels: [{fanout: 2, link: nvlink4}]}\n")
    (tmp_path / "torus.yaml").write_text("torus: {shape: [2, 2], bandwidth: 100 GB/s, latency: 1 us}\n")
    words = ("solve", "--model", "gpt2", *SMALL[-4:], "--cluster")
    assert printed(call, *words[1:], "section.yaml").cluster.name == "section.yaml"
    assert "leave --device out" in refused(call, *words, "section.yaml", "--device", "h200")
    assert "cluster.device is missing" in refused(call, *words, "torus.yaml")
    assert printed(call, *words[1:], "torus.yaml", "--device", "A100 80GB").cluster.device == "a100-sxm-80g"
    monkeypatch.setattr("sys.stdin", Keyboard("absent.yaml\ntorus.yaml\na100\nH100\n"))
    code, _, errors = call("init", *words[1:-1])
    assert code == 0, errors
    assert errors.count("Error: ") == 2
    assert read(tmp_path / "problem.yaml", Problem).cluster.device == "h100-sxm"


def test_what_options_say_cannot_break_out_of_its_place(call) -> None:
    code, text, errors = call("solve", *SMALL, "--target", "x}\nfixed: {tp: 2", "--print-problem")
    assert (code, errors) == (0, "")
    assert structure(read_mapping_text(text, "problem"), Problem).fixed is None


class Keyboard(io.StringIO):
    """What somebody types on a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_wrong_answer_is_asked_again(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "problem.yaml"
    typed = ["llama 8b", "Llama 3.1 8B", "dgx-9", "DGX-H100-SuperPOD-64", "many", "0", "32", "x", "4k"]
    monkeypatch.setattr("sys.stdin", Keyboard("\n".join([*typed, ""])))
    code, _, errors = call("init", "-o", path)
    assert code == 0, errors
    assert errors.count("Error: ") == 5
    problem = read(path, Problem)
    assert (problem.model, problem.cluster.name) == ("llama-3.1-8b", "dgx-h100-superpod-64")
    assert (problem.training.global_batch, problem.training.sequence_length) == (32, 4096)
