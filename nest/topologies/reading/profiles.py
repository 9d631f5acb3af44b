"""The figures that files of switches and hosts leave out."""

from attrs import evolve

from nest.catalogue import link, profile, profiles
from nest.errors import InputError
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond

USUAL = "h100-ndr"
"""Profile for files that say nothing of accelerators and links, where nobody else does."""


def completed(given: LinkProfile | None, usual: str = USUAL) -> LinkProfile:
    """`given` with what it leaves out.

    That is taken from the catalogue's first profile for its device, or from that called `usual` where it names no
    device or no profile has it. Its `name` says whose the links are.

    Args:
        given: as chosen by the user; None: nothing was.
        usual: name of a profile of the catalogue, for a file of the kind at hand.
    """
    if given is None:
        return profile(usual)
    if given.device is None:
        base = profile(usual)
    else:
        same = [each for each in profiles().values() if each.device == given.device]
        base = next((each for each in same if each.name == usual), same[0] if same else profile(usual))
    linked = given.host is not None or given.domain is not None or given.tiers
    return evolve(
        given,
        name=given.name if linked else base.name,
        device=given.device or (None if linked else base.device),
        devices_per_host=given.devices_per_host or base.devices_per_host,
        host=given.host or base.host,
        domain=given.domain if linked else base.domain,
        tiers=given.tiers or base.tiers,
    )


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
