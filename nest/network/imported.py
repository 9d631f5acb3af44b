"""What an importer reads in a file of the field: a network, with what else the file says and what it leaves out."""

from attrs import frozen

from nest.instance.cluster import Cluster
from nest.instance.pairs import Pairs
from nest.network.graph import LinkGraph


@frozen(eq=False)
class Imported:
    """A network read from a file that people have.

    Attributes:
        network: by its levels, its links or its pairs. The devices of a network by links are called `HOST.INDEX`, or
            whatever the file calls them where it knows no hosts.
        hosts: names of the machines along the devices of a network by levels, all with equally many devices; empty:
            the file names none.
        device: the accelerator by its name in the catalogue; None: the file does not say.
        assumptions: what the file does not say and where it was taken from: one sentence each, with the figure.
    """

    network: Cluster | LinkGraph | Pairs
    hosts: tuple[str, ...] = ()
    device: str | None = None
    assumptions: tuple[str, ...] = ()
