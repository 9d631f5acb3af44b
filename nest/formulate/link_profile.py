"""The link profile that a `cluster` section gives to the importer of its file."""

from pathlib import Path

from attrs import evolve

from nest.catalogue import profile
from nest.errors import InputError
from nest.files import read
from nest.files.source import SUFFIXES
from nest.spec import ClusterSpec, LinkProfile


def given_profile(cluster: ClusterSpec, base: Path | None) -> LinkProfile | None:
    """What `cluster` says of links, accelerators and hosts that a file may leave out; None: nothing.

    Args:
        cluster: the section as written; its own `device` and `devices_per_host` win over the profile's.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputError: there is no such profile or file, or the file cannot be read.
    """
    found = _profile(cluster.link_profile, base)
    if isinstance(cluster.device, str) and not is_file(cluster.device):
        found = evolve(found or LinkProfile(), device=cluster.device)
    if cluster.devices_per_host is not None:
        found = evolve(found or LinkProfile(), devices_per_host=cluster.devices_per_host)
    return found


def _profile(written: str | LinkProfile | None, base: Path | None) -> LinkProfile | None:
    if written is None or isinstance(written, LinkProfile):
        return written
    if not is_file(written):
        return profile(written)
    path = (base or Path()) / written
    if not path.exists():
        raise InputError(
            f"cluster.link_profile: there is no file {str(path)!r:.200}; `nest topology profiles` lists the names "
            "known."
        )
    return read(path, LinkProfile)


def is_file(name: str) -> bool:
    """Whether figures are given as a file of their own and not by a name of the catalogue."""
    return "/" in name or Path(name).suffix in SUFFIXES
