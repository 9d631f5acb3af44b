"""The figures that files of switches and hosts leave out."""

from attrs import frozen

from nest.catalogue import link, profile, profiles
from nest.errors import InputError
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond

USUAL = "h100-ndr"
"""Profile for files that say nothing of accelerators and links, where nobody else does."""


@frozen
class Completed:
    """A link profile that leaves nothing out, and who says what in it.

    Attributes:
        device: the accelerator by its name in the catalogue; None: the problem says.
        devices_per_host: accelerators of one host.
        host: links inside a host.
        domain: links between hosts of one NVLink domain; None: there are none.
        tiers: of the network, the lowest first; the last serves all further ones.
        given: what the user says.
        usual: what says the rest.
    """

    device: str | None
    devices_per_host: int
    host: TierSpec
    domain: TierSpec | None
    tiers: tuple[TierSpec, ...]
    given: LinkProfile
    usual: LinkProfile

    def source(self, key: str) -> str:
        """Which profile says `key`, for sentences."""
        found = self.given if getattr(self.given, key) else self.usual
        return f"link profile {found.name}" if found.name else "the link profile"


def completed(given: LinkProfile | None, usual: str = USUAL) -> LinkProfile:
    """`given` with what it leaves out, as `sourced`; its `name` says whose the links are."""
    found = sourced(given, usual)
    linked = found.given.host is not None or found.given.domain is not None or found.given.tiers
    return LinkProfile(
        name=found.given.name if linked else found.usual.name,
        device=found.device,
        devices_per_host=found.devices_per_host,
        host=found.host,
        domain=found.domain,
        tiers=found.tiers,
    )


def sourced(given: LinkProfile | None, usual: str = USUAL) -> Completed:
    """`given` with what it leaves out, and who says what.

    That is taken from the catalogue's first profile for its device, or from that called `usual` where it names no
    device or no profile has it.

    Args:
        given: as chosen by the user; None: nothing was.
        usual: name of a profile of the catalogue, for a file of the kind at hand.
    """
    base, given = profile(usual), given or LinkProfile()
    same = [each for each in profiles().values() if each.device == given.device]
    if same and base not in same:
        base = same[0]
    linked = given.host is not None or given.domain is not None or given.tiers
    return Completed(
        device=given.device or (None if linked else base.device),
        devices_per_host=given.devices_per_host or base.devices_per_host or 1,
        host=given.host or base.host or TierSpec(),
        domain=given.domain if linked else base.domain,
        tiers=given.tiers or base.tiers,
        given=given,
        usual=base,
    )


def taken(profile: Completed, counted: bool = False) -> list[str]:
    """What of hosts and accelerators is taken from the usual profile, a sentence each.

    Args:
        profile: that is used.
        counted: whether the file says how many accelerators a host has.
    """
    found = []
    if profile.device is not None and profile.given.device is None:
        found.append(f"The accelerators are {profile.device}: {profile.source('device')}.")
    if not counted and profile.given.devices_per_host is None:
        found.append(f"A host has {profile.devices_per_host} accelerators: {profile.source('devices_per_host')}.")
    return found


def nominal_bandwidth(tier: TierSpec, place: str) -> float:
    """Nominal bytes per second of a tier, per accelerator and direction.

    Raises:
        InputError: neither the tier nor its link says.
    """
    if tier.bandwidth is not None:
        return tier.bandwidth
    found = None if tier.link is None else link(tier.link, f"{place}.link").bandwidth
    if found is None:
        raise InputError(
            f"{place}.bandwidth is missing in the link profile; give it in bytes per second (`bandwidth: 50 GB/s`), "
            "or name a link with a bandwidth of its own such as `infiniband-ndr`."
        )
    return BytesPerSecond(found)
