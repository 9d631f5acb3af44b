"""PyTorch's names of pipeline schedules and passes (torch/distributed/pipelining/schedules.py)."""

CLASSES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "interleaved-zero-bubble": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""PyTorch's names of schedules with a class (`get_schedule_class` of that file); the class has `Schedule` in front."""

FROM_FILE = ("zero-bubble",)
"""Schedules without a class in PyTorch, which runs them from every rank's actions."""

RUNS = (*CLASSES, *FROM_FILE)
"""All schedules of PyTorch's pipelines."""

LETTERS = {"forward": "F", "backward": "B", "input-gradients": "I", "weight-gradients": "W"}
"""PyTorch's letter of each kind of pass (`_Action.from_str` of that file)."""


def action(stage: int, kind: str, micro_batch: int) -> str:
    """A pass in PyTorch's notation: `{stage}{F|B|I|W}{micro-batch}`.

    Args:
        stage: number of a run of layers, in the order of a micro-batch.
        kind: of the pass, one of `LETTERS`.
        micro_batch: its number.
    """
    return f"{stage}{LETTERS[kind]}{micro_batch}"
