"""The link profile that a `cluster` section gives to the importer of its file."""

from pathlib import Path

from attrs import evolve

from nest.catalogue import device, link, profile
from nest.errors import InputError, PlacedErrors
from nest.files import read, there_is
from nest.files.source import SUFFIXES
from nest.spec import ClusterSpec, LinkProfile


def given_profile(cluster: ClusterSpec, base: Path | None) -> LinkProfile | None:
    """What `cluster` says of links, accelerators and hosts that a file may leave out; None: nothing.

    Args:
        cluster: the section as written; its own `device` and `devices_per_host` win over the profile's.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputError: there is no such profile or file, the file cannot be read, or it names a link or a device that the
            catalogue does not have.
    """
    found = _profile(cluster.link_profile, base)
    if found is not None:
        _check_names(found, cluster, base)
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
    if not there_is(path):
        raise InputError(
            f"cluster.link_profile: there is no file {str(path)!r:.200}; `nest topology profiles` lists the names "
            "known."
        )
    return read(path, LinkProfile)


def _check_names(found: LinkProfile, cluster: ClusterSpec, base: Path | None) -> None:
    """Refuse links and devices that are not known here, where they are written, not in what is made of them."""
    written = cluster.link_profile
    file = (base or Path()) / written if isinstance(written, str) and is_file(written) else None
    place = "cluster.link_profile." if file is None else f"{file}: "
    tiers = [("host", found.host), ("domain", found.domain)]
    tiers += [(f"tiers[{index}]", tier) for index, tier in enumerate(found.tiers)]
    try:
        for key, tier in tiers:
            if tier is not None and tier.link is not None:
                link(tier.link, f"{place}{key}.link")
        if found.device is not None and cluster.device is None and not is_file(found.device):
            device(found.device, f"{place}device")
    except InputError as error:
        raise error if file is None else PlacedErrors([str(error)]) from None


def is_file(name: str) -> bool:
    """Whether figures are given as a file of their own and not by a name of the catalogue."""
    return "/" in name or Path(name).suffix in SUFFIXES
