"""The report of each plan, and the page of a study, written once."""

import json
from pathlib import Path

import nest
from nest_page.page_of_plan import PARTS
from page_tests.browser.plans import HOSTILE, PLANS

SEARCHED_LONG = {"many-devices", "many-stages", "torus", "mesh", "switches", "routers", "measured-pairs"}
"""Plans whose frontier and sensitivity take long; their pages go without."""

STUDY = "study"
"""The page of a study, which is no plan's."""

PAGES = (*PLANS, STUDY)


def written(name: str, folder: Path) -> Path:
    """The page of a plan of `PLANS`, or of a study, in a file."""
    path = folder / f"{name}.html"
    if not path.exists():
        if name == STUDY:
            page = study_page(folder)
        else:
            page = nest.report_page(PLANS[name](), without=PARTS if name in SEARCHED_LONG else ())
        path.write_text(page, encoding="utf-8")
    return path


def study_page(folder: Path) -> str:
    """Two models over bandwidths, memories and batches, one of them with a name nobody should give a model's layers."""
    shape = {"layers": 4, "hidden": 256, "ffn": 1024, "heads": 4, "vocab": 4000}
    network = [{"fanout": 2, "link": "nvlink3"}, {"name": HOSTILE, "fanout": 2, "bandwidth": 1e10, "latency": 5e-6}]
    problem = {
        "nest": 1,
        "model": {"transformer": shape},
        "training": {"global_batch": 8, "sequence_length": 512, "micro_batch": [1, 2], "schedule": ["1f1b"]},
        "cluster": {"device": "a100-sxm-80g", "levels": network, "price": 2.5},
    }
    study = {
        "nest": 1,
        "base": "problem.json",
        "vary": {
            "model": [{"transformer": shape}, {"transformer": {**shape, "layers": 8}}],
            "training.global_batch": [4, 8, 16],
            "cluster.levels[1].bandwidth": ["5 GB/s", "25 GB/s", "100 GB/s"],
            "cluster.memory": ["80 GB", "10 MB"],
        },
    }
    (folder / "problem.json").write_text(json.dumps(problem), encoding="utf-8")
    (folder / "study.json").write_text(json.dumps(study), encoding="utf-8")
    nest.sweep(folder / "study.json", output=folder / "rows.jsonl", jobs=1)
    return nest.study_page(folder / "rows.jsonl")
