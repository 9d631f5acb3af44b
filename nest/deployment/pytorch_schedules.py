"""What PyTorch calls pipeline schedules and their passes (torch/distributed/pipelining/schedules.py)."""

CLASSES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "interleaved-zero-bubble": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""The schedules that PyTorch has classes of, with its names of them (`get_schedule_class` of that file); a class has
`Schedule` in front of its name."""

FROM_FILE = ("zero-bubble",)
"""Schedules that PyTorch has no class of, but runs when it is given every rank's actions."""

RUNS = (*CLASSES, *FROM_FILE)
"""All schedules that PyTorch's pipelines run."""

LETTERS = {"forward": "F", "backward": "B", "input-gradients": "I", "weight-gradients": "W"}
"""PyTorch's letter of each kind of pass (`_Action.from_str` of that file)."""


def action(stage: int, kind: str, micro_batch: int) -> str:
    """A pass as PyTorch writes it: `{stage}{F|B|I|W}{micro-batch}`.

    Args:
        stage: number of a run of layers, in the order in which a micro-batch passes them.
        kind: of the pass, one of `LETTERS`.
        micro_batch: its number.
    """
    return f"{stage}{LETTERS[kind]}{micro_batch}"
