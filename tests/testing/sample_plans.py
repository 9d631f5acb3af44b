"""Solves the problems of the kit's sample plans again and writes them: `python -m tests.testing.sample_plans`."""

import json
from importlib.resources import files
from pathlib import Path

import nest
from nest.testing.exporter import SAMPLE_PLANS


def main() -> None:
    """Bring the plans in `nest/testing/data` up to date; what says which machine made them is left out."""
    for name in SAMPLE_PLANS:
        path = Path(str(files("nest.testing").joinpath("data", name)))
        plan = nest.solve(json.loads(path.read_text())["problem"]).to_dict()
        path.write_text(json.dumps({**plan, "statistics": {}, "plugins": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
