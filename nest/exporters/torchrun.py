"""A plan's placement for torchrun: one script for all nodes, which finds out on which of them it runs.

It calls torchrun with a node rank and static rendezvous (torch/distributed/run.py). torchrun numbers ranks node by
node: where the ranks of a node do not follow one another, no order of nodes gives the plan, and the script starts the
processes itself, with the environment that torchrun would give them.
"""

from collections.abc import Callable, Mapping, Sequence

from nest.exporters.launch_scripts import Node, by_node, gpu_maps, head, nodes_of, rendezvous
from nest.hooks.placements import placement
from nest.spec import PlanDocument

SCRIPT = "torchrun_launch.sh"


def export(plan: PlanDocument) -> Mapping[str, str]:
    """The script.

    Raises:
        InputError: there is no rank table.
    """
    placed = placement(plan)
    nodes = nodes_of(placed)
    start = _torchrun if all(node.adjacent for node in nodes) else _processes
    return {SCRIPT: "\n".join(start(nodes, len(placed))) + "\n"}


def _about(nodes: Sequence[Node], ranks: int) -> list[str]:
    return [
        f"Runs a command on {ranks} ranks of {len(nodes)} nodes; call it on every one of them:",
        "    bash torchrun_launch.sh python train.py ...",
        "It knows its node by the name of the host; NEST_NODE says another, MASTER_ADDR another address of the first.",
    ]


def _torchrun(nodes: Sequence[Node], ranks: int) -> list[str]:
    numbers = {node.name: number for number, node in enumerate(nodes)}
    return [
        *head(nodes, _about(nodes, ranks)),
        *_located(nodes, lambda node: f"node_rank={numbers[node.name]} processes={len(node.ranks)}"),
        *rendezvous(nodes),
        f'exec torchrun --no-python --nnodes={len(nodes)} --nproc-per-node="$processes" --node-rank="$node_rank" \\',
        '  --rdzv-backend=static --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"',
    ]


def _processes(nodes: Sequence[Node], ranks: int) -> list[str]:
    about = [
        *_about(nodes, ranks),
        "The ranks of a node do not follow one another, as torchrun would number them: processes are started here.",
    ]
    return [
        *head(nodes, about),
        *_located(nodes, lambda node: f"ranks=({' '.join(map(str, node.ranks))})"),
        *rendezvous(nodes),
        f'export WORLD_SIZE={ranks} LOCAL_WORLD_SIZE="${{#ranks[@]}}"',
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
        'for local_rank in "${!ranks[@]}"; do',
        '  RANK="${ranks[$local_rank]}" LOCAL_RANK="$local_rank" "$@" &',
        "done",
        'for _ in "${ranks[@]}"; do',
        "  wait -n",
        "done",
    ]


def _located(nodes: Sequence[Node], action: Callable[[Node], str]) -> list[str]:
    """Find out which node this is, do `action` for it, and show it its accelerators."""
    found = by_node(nodes, '"$1"', lambda node: f"node=$1 {action(node)}", "return 1")
    return [
        "place() {",
        *(f"  {line}" for line in found),
        "}",
        'if ! place "${NEST_NODE:-$(hostname)}" && ! place "${NEST_NODE:-$(hostname -s)}"; then',
        '  echo "$0: ${NEST_NODE:-$(hostname)} is no node of the plan; set NEST_NODE to the name of one" >&2',
        "  exit 2",
        "fi",
        *gpu_maps(nodes, '"$node"'),
    ]
