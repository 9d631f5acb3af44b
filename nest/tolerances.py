"""How far apart numbers may be that ought to be equal, and by how much limits are widened: every such share, once.

Each is relative. What it bounds, and why it can neither make a worse plan the optimum nor let an overfull stage fit, is
in docs/explanation/numbers.md. Constants that a single module needs, such as the step of a fit, stand there; the page
names them too.
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
"""What differs by a smaller share is drawn alike."""

BANDWIDTH_SHORTFALL = 0.1
"""Share by which a level of the network may carry less than the problem says: a plan that then loses says so.

InfiniBand carries 0.91 of its nominal bandwidth, and one in ten of the measured NCCL collectives is off by 10 to 14 %
of what the lines of its NVLink say (docs/reference/devices.md, "Links")."""
