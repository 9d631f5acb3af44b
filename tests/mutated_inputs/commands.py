"""Every command with the files it reads and the flags it may be given."""

from attrs import frozen

FILE = "FILE"
"""Stands for a file that the command reads."""

OUTPUTS = ("out.json", "out", ".", "missing/out.json", "loop", "file/out.json", "/dev/full", "é", "a" * 300)
"""Where a command may be told to write, in the folder of the case; a loop of links and a full disk among them."""


@frozen
class Command:
    """A command line to begin with.

    Attributes:
        words: of the command line; `FILE` stands for the file of the first of `reads`, then the second.
        reads: kinds of input.
        flags: what may be added, each with values that are good; none: it takes no value.
        weight: how often it is called, beside others.
    """

    words: tuple[str, ...]
    reads: tuple[str, ...] = ()
    flags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    weight: int = 1


JSON, STRICT = ("--json", ()), ("--strict-plugins", ())
OUTPUT = ("--output", OUTPUTS)
TIME = ("--time-limit", ("5", "0.05"))
SEARCH = (TIME, ("--workers", ("1", "2")))
FIX = ("--fix", ("tp=2", "pp=2", "zero=1", "stages=[1,2]", "recompute=full", "schedule=interleaved", "chunks=3"))
MEGATRON = (("--nodes", ("1", "2")), ("--vocabulary", ("1000",)), ("--cluster", ("dgx-h100-superpod-32",)))

COMMANDS = (
    Command(("solve", FILE), ("problem",), (JSON, STRICT, OUTPUT, TIME, ("--explain-search", ())), 24),
    Command(("solve", FILE, "--verify"), ("problem",), (JSON, *SEARCH, ("--free", ())), 3),
    Command(("solve", FILE, FILE), ("problem", "problem"), (JSON,), 1),
    Command(("solve", FILE, "--best", "3"), ("problem",), (JSON, TIME, OUTPUT), 3),
    Command(("evaluate", FILE), ("problem",), (JSON, STRICT, FIX, FIX), 16),
    Command(
        ("evaluate", "--from-megatron", FILE, FILE),
        ("script", "problem"),
        (JSON, FIX, *MEGATRON, ("--write-problem", OUTPUTS)),
        6,
    ),
    Command(("evaluate", "--from-megatron", FILE, "--against-best", FILE), ("script", "problem"), (JSON, *MEGATRON), 1),
    Command(
        ("evaluate", "--from", "megatron", FILE, FILE, "--", "BS=4", "8"), ("script", "problem"), (JSON, *MEGATRON), 2
    ),
    Command(("fix", FILE, FILE), ("script", "problem"), (JSON, *MEGATRON), 2),
    Command(("check", FILE), ("plan",), (STRICT,), 20),
    Command(("verify", FILE), ("plan",), (JSON, OUTPUT, *SEARCH, ("--free", ())), 3),
    Command(
        ("simulate", FILE),
        ("plan",),
        (
            JSON,
            ("--trace", OUTPUTS),
            ("--jitter", ("0.1",)),
            ("--seed", ("3",)),
            ("--runs", ("5",)),
            ("--slow-device", ("1=2", "1/0=1.5")),
        ),
        8,
    ),
    Command(("certify", FILE), ("plan",), (OUTPUT,), 1),
    Command(("frontier", FILE), ("plan",), (JSON, TIME, ("--memory-step", ("0.3", "1", "x"))), 1),
    Command(("explain", FILE), ("plan",), (JSON, TIME, ("--only", ("binding", "constraints", "alternatives"))), 1),
    Command(("compare", FILE), ("problem",), (JSON, TIME, ("--seed", ("2",)), ("--evaluations", ("20",))), 1),
    Command(("compare", FILE, "--planner", "manual", "--plan", FILE), ("problem", "plan"), (JSON, TIME), 2),
    Command(
        ("compare", FILE, "--planner", "manual", "--from", "megatron", FILE),
        ("problem", "script"),
        (JSON, TIME, ("--nodes", ("1",)), ("--devices-per-node", ("2",))),
        2,
    ),
    Command(
        ("recommend", FILE, "--within", "30d", "--cluster", "dgx-h100-superpod-8"),
        ("problem",),
        (JSON, STRICT, ("--tokens", ("1B",)), ("--budget", ("1k",)), ("--curve", OUTPUTS)),
        1,
    ),
    Command(
        ("export", FILE, "--to"),
        ("plan",),
        (("", ("megatron", "deepspeed", "torchtitan", "accelerate", "mpi", "slurm")), JSON, OUTPUT, ("--nearest", ())),
        8,
    ),
    Command(
        ("report", FILE, "--without", "frontier", "--without", "sensitivity"), ("plan",), (TIME, ("-o", OUTPUTS)), 3
    ),
    Command(("sweep", FILE, "--output", "rows.csv", "--jobs", "1"), ("study",), (STRICT, ("--engine", ("local",))), 3),
    Command(("models", FILE), ("model",), (JSON, ("--sequence-length", ("128",))), 10),
    Command(
        ("init", "--model", FILE, "--cluster", FILE, "--global-batch", "8", "--sequence-length", "256"),
        ("model", "network"),
        (("--output", OUTPUTS), ("--device", ("h100-sxm",)), ("--force", ())),
        2,
    ),
    Command(("models", "llama-3-8b"), (), (JSON, ("--sequence-length", ("128",)))),
    Command(("topology", "show", FILE), ("network",), (JSON, ("--message", ("1 MiB", "4 kB"))), 8),
    Command(("topology", "levels", FILE), ("network",), (OUTPUT,), 5),
    Command(
        ("topology", "import", FILE),
        ("network",),
        (JSON, OUTPUT, ("--hosts", ("2",)), ("--format", ("nccl-xml", "nvidia-smi", "slurm", "gml"))),
        8,
    ),
    Command(("topology", "import", FILE, "--link-profile", FILE), ("network", "profile"), (JSON,), 3),
    Command(("topology", "profiles", "hgx-h100"), (), (JSON,)),
    Command(
        ("calibrate", "collectives", FILE),
        ("collectives",),
        (JSON, ("--link", ("nvlink4",)), ("--prior", ("nccl",)), OUTPUT),
        1,
    ),
    Command(
        ("calibrate", "devices", FILE, "--folds", "2"),
        ("runs",),
        (JSON, ("--device", ("h100-sxm",)), ("--prior", ("published",)), ("--generations", ()), OUTPUT),
        2,
    ),
    Command(("calibrate", "cluster", FILE), ("runs",), (JSON, OUTPUT), 2),
    Command(("measure", FILE), ("log",), (JSON, OUTPUT, *MEGATRON), 4),
    Command(("measure", FILE, "--problem", FILE), ("log", "problem"), (JSON, OUTPUT, ("--nodes", ("2",))), 4),
    Command(("devices", "h100-sxm"), (), (JSON,)),
    Command(("clusters", "dgx-h100-superpod-64"), (), (JSON,)),
    Command(("strategies",), (), (JSON, STRICT)),
    Command(("stacks",), (), (JSON, STRICT)),
    Command(("schema", "problem"), (), (OUTPUT,)),
    Command(("plugins", "list"), (), (JSON, STRICT)),
    Command(("plugins", "new", "nest-own"), (), (("--kind", ("strategy", "schedule")), OUTPUT)),
)
