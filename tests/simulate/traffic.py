"""What ports carry in a replay, against the time there is."""

from nest.simulate.replay import Replay


def overfull(found: Replay) -> list[str]:
    """Ports that are occupied for longer than the batch takes."""
    return [
        f"stage {number} sends for {seconds} s over level {level}, in a batch of {found.batch_time} s"
        for number, stage in enumerate(found.stages, start=1)
        for level, seconds in enumerate(stage.traffic or ())
        if seconds > found.batch_time * (1 + 1e-9)
    ]
