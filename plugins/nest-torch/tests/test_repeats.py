"""Calls that repeat one another: traced once, and written down as if each had been traced."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

import families  # noqa: E402
import modules  # noqa: E402
import nest_torch  # noqa: E402
from nest_torch import capturing  # noqa: E402
from nest_torch.repeats import repeats  # noqa: E402

FAMILIES = ("llama", "mixtral", "gpt2", "bert", "vit", "resnet50")


def on_meta(make: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        return make()


def tokens(length: int = 16) -> Any:
    return torch.zeros(3, length, dtype=torch.long, device="meta")


def test_blocks_that_do_the_same_are_one() -> None:
    found = repeats(on_meta(modules.Llama), (tokens(),), {})
    blocks = [each for each in found if each.path.startswith("layers.")]
    assert [each.path for each in blocks] == [f"layers.{index}" for index in range(4)]
    assert {each.template for each in blocks} == {found.index(blocks[0])}


class Different(torch.nn.Module):
    """Blocks of the same parameters of which one does something else."""

    def __init__(self, odd: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(modules.LlamaLayer(64, 176, 8, 2, False) for _ in range(3))
        self.odd = odd

    def forward(self, source: Any) -> Any:
        ones = torch.ones(source.shape[1], 8, device=source.device)
        for index, layer in enumerate(self.layers):
            changed = self.odd(source) if index == 2 else source
            source = layer(changed, ones[: changed.shape[1]], ones[: changed.shape[1]])
        return source


@pytest.mark.parametrize(
    ("odd", "alike"),
    [(lambda source: source, 3), (lambda source: source.bfloat16(), 2), (lambda source: source[:, :32], 2)],
    ids=["equal", "another-type", "other-sizes"],
)
def test_only_calls_of_equal_sizes_and_types_are_one(odd: Callable[[Any], Any], alike: int) -> None:
    found = repeats(on_meta(lambda: Different(odd)), (torch.zeros(3, 64, 64, device="meta"),), {})
    blocks = [each.path for each in found if each.path in ("layers.0", "layers.1", "layers.2")]
    assert blocks == [f"layers.{index}" for index in range(alike)]


def test_a_part_of_two_names_learns_once_though_one_call_of_it_is_left_out() -> None:
    """Zamba 2 calls one block from many layers; the program has parameters of every name, but reads those of one."""
    module = on_meta(lambda: Different(lambda source: source[:, :32]))
    module.layers[2] = module.layers[1]
    graph = nest_torch.capture(module, (torch.zeros(3, 64, 64, device="meta"),))
    assert graph.parameter_count == sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_left_out_is_written_down_as_it_would_be_traced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision" if name == "resnet50" else "transformers", reason="its models are not installed")
    module, inputs = on_meta(getattr(families, name)), families.inputs(name)
    found = []

    def noted(*arguments: Any) -> Any:
        found.extend(repeats(*arguments))
        return found

    monkeypatch.setattr(capturing, "repeats", noted)
    short = nest_torch.capture(module, (), keywords=inputs)
    assert any(each.template != index for index, each in enumerate(found))
    monkeypatch.setattr(capturing, "repeats", lambda *_: ())
    assert short == nest_torch.capture(module, (), keywords=inputs)


def test_a_module_is_left_as_it_was() -> None:
    module = on_meta(modules.Llama)
    before = {name: set(vars(part)) for name, part in module.named_modules()}
    nest_torch.capture(module, (tokens(),))
    assert {name: set(vars(part)) for name, part in module.named_modules()} == before
