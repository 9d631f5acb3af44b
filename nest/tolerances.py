"""Tolerances of numbers that ought to be equal, and by how much limits are widened: every such share, once.

Each is relative, but for the seconds of slips. What it bounds, and why it can neither make a worse plan the optimum
nor let an overfull stage fit, is in docs/explanation/numbers.md. Constants that a single module needs, such as the step
of a fit, stand there; the page names them too.
"""

TIE = 1e-12
"""Step times that differ by no more are equal, so that the order of ties decides (PROBLEM.md section 5)."""

MEMORY_SLACK = 1e-12
"""Share by which a priced stage may exceed the capacity: what rounding makes of one that fills it exactly.

Twice what a search allows, so that no plan it finds is priced as overfull."""

SEARCHED_MEMORY_SLACK = MEMORY_SLACK / 2
"""Share by which a stage may exceed the capacity while plans are searched."""

CONTENDING_MEMORY_SLACK = MEMORY_SLACK / 4
"""Share by which a stage of a plan may exceed the capacity that is to refute another one as the best.

Half of what a search allows, so that it has seen every such plan."""

SUM_ERROR = 1e-12
"""Share of a sum that floating point may have lost: 9,000 additions of numbers of one sign lose at most 9,000 * 2**-53,
which is less."""

LIMIT_SLACK = 1e-9
"""Share by which a limit is widened that only leaves out what cannot matter: far more than sums can have lost."""

HARDLY_FASTER = 1e-3
"""Share of the step time by which another plan must be faster for a number of the problem to have a breakpoint."""

AGREEMENT = 1e-9
"""Two computations of the same number may differ by this share, by the order of their sums (PROBLEM.md section 5)."""

PROOF = 1e-6
"""CP-SAT proves that no plan is better by more than this share (PROBLEM.md section 7)."""

DRAWN = 1e-6
"""Share below which differences are not drawn."""

BANDWIDTH_SHORTFALL = 0.1
"""Share by which a level of the network may carry less than the problem says: a plan that then loses says so.

InfiniBand carries 0.91 of its nominal bandwidth, and one in ten of the measured NCCL collectives is off by 10 to 14 %
of what the lines of its NVLink say (docs/reference/devices.md, "Links")."""

# Slips: figures that can be but are hardly meant, told and used as they are (`nest.formulate.slips`).

LINKS_EACH = 4.0
"""Links of a network that a device has at most, and devices that share one: beyond, a bandwidth is reported.

AWS p5 has 32 links of 100 Gbit/s for 8 devices, and networks are oversubscribed 4 to 1 at most places; bits written for
bytes, and the rate of a machine of 8, are off by 8."""

MORE_SCALE_UP = 1.5
"""The same above the links inside a machine, of which the nominal rate counts all: both directions make 2."""

FASTER_OUTSIDE = 2.0
"""Times the bandwidth inside, from which on a level's is reported: networks have such levels, but seldom."""

LATENCY_APART = 100.0
"""Times by which a latency may differ from its link's: those of the catalogue differ by 14, and units by 1000."""

MORE_MEMORY = 2.0
"""Times its own memory that a device may be given: GB are not GiB, H100 come with 96 GB and H200 with 1.8 times 80."""

MEMORY_SHARE = 0.05
"""The least share of it: MIG divides a device into 7 (NVIDIA, MIG user guide), and what else runs there needs some."""

FIGURE_APART = 20.0
"""Times by which a device's figure may exceed those of the catalogue, or fall short of them: units differ by 1000, and
the devices of a decade by less than 20."""

BEYOND_CONTEXT = 32.0
"""Times a model's context that a sample may have: YaRN (arXiv 2309.00071) takes Llama 2 from 4,096 to 131,072."""

LONGEST_STEP = 3600.0
"""Seconds of an optimizer step, above which its batch is reported: published runs take minutes at most."""

LONGEST_TRAINING = 1e8
"""Seconds of a whole training, some three years: a device is replaced by then."""

PADDED = 0.05
"""Share of the micro-batches' samples that may be padding, with `training.uneven_batch`."""

ALIKE = 1.3
"""Times by which a figure may differ from what a slip would make of the usual one for that slip to be named: GiB are
1.07 GB, and 85.5 GB are called 80."""
