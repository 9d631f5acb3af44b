"""The figures that files of switches and hosts leave out: link profiles, products, rates by name."""

import re
from collections.abc import Collection

from attrs import evolve, frozen

from nest.catalogue import clusters, link, profile, profiles
from nest.errors import InputError
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond

USUAL = "h100-ndr"
"""Profile for files that say nothing of accelerators and links, where nobody else does."""

DOMAIN_PROFILE = "gb200-nvl72-ndr"
"""Profile for hosts in NVLink domains whose accelerators nobody names: such racks have domains of several hosts."""


@frozen
class SourcedProfile:
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
        """Name of the profile that says `key`, for sentences."""
        owner = self.given if getattr(self.given, key) else self.usual
        return f"link profile {owner.name}" if owner.name else "the link profile"


def sourced_profile(given: LinkProfile | None, usual: str = USUAL) -> SourcedProfile:
    """`given` with what it leaves out, and who says what.

    That is taken from the catalogue's first profile for its device, or from that called `usual` where it names no
    device or no profile has it.
    """
    base, given = profile(usual), given or LinkProfile()
    same = [each for each in profiles().values() if each.device == given.device]
    if same and base not in same:
        base = same[0]
    linked = given.host is not None or given.domain is not None or given.tiers
    return SourcedProfile(
        device=given.device or (None if linked else base.device),
        devices_per_host=given.devices_per_host or base.devices_per_host or 1,
        host=given.host or base.host or TierSpec(),
        domain=given.domain if linked else base.domain,
        tiers=given.tiers or base.tiers,
        given=given,
        usual=base,
    )


def profile_sentences(profile: SourcedProfile, counted: bool = False) -> list[str]:
    """Sentences on figures of hosts and accelerators from the usual profile; `counted`: not their number."""
    sentences = []
    if profile.device is not None and profile.given.device is None:
        sentences.append(f"The accelerators are {profile.device}: {profile.source('device')}.")
    if not counted and profile.given.devices_per_host is None:
        sentences.append(f"A host has {profile.devices_per_host} accelerators: {profile.source('devices_per_host')}.")
    return sentences


def nominal_bandwidth(tier: TierSpec, place: str) -> float:
    """Nominal bytes per second of a tier, per accelerator and direction.

    Raises:
        InputError: neither the tier nor its link says.
    """
    if tier.bandwidth is not None:
        return tier.bandwidth
    bandwidth = None if tier.link is None else link(tier.link, f"{place}.link").bandwidth
    if bandwidth is None:
        raise InputError(
            f"{place}.bandwidth is missing in the link profile; give it in bytes per second (`bandwidth: 50 GB/s`), "
            "or name a link with a bandwidth of its own such as `infiniband-ndr`."
        )
    return BytesPerSecond(bandwidth)


PRODUCTS: tuple[tuple[str, frozenset[str], str], ...] = (
    ("GB300", frozenset(), "gb300"),
    ("GB200", frozenset(), "gb200"),
    ("B300", frozenset(), "b300-sxm"),
    ("B200", frozenset(), "b200-sxm"),
    ("H200", frozenset(), "h200-sxm"),
    ("H800", frozenset(), "h800-sxm"),
    ("H100", frozenset(), "h100-sxm"),
    ("A100", frozenset({"80GB"}), "a100-sxm-80g"),
    ("A100", frozenset({"40GB"}), "a100-sxm-40g"),
    ("V100", frozenset({"SXM2", "32GB"}), "v100-sxm-32g"),
    ("V100", frozenset({"SXM3", "32GB"}), "v100-sxm-32g"),
    ("MI300X", frozenset(), "mi300x"),
    ("MI325X", frozenset(), "mi325x"),
    ("MI355X", frozenset(), "mi355x"),
    ("MI250X", frozenset(), "mi250x"),
    ("L40S", frozenset(), "l40s"),
    ("RTX", frozenset({"PRO", "6000"}), "rtx-pro-6000"),
    ("GB10", frozenset(), "gb10"),
    ("A100", frozenset({"TESLA"}), "a100-sxm-40g"),
)
"""A word of a product, others it must have, and its name in the catalogue; products as NVIDIA's driver and AMD's label
them (NVIDIA/k8s-device-plugin docs/gpu-feature-discovery, ROCm/gpu-operator docs), and GKE, whose `nvidia-tesla-a100`
has 40 GB (docs.cloud.google.com/kubernetes-engine, About GPUs)."""

MACHINES: tuple[tuple[str, str], ...] = (
    (r"a2-highgpu-.*", "a100-sxm-40g"), (r"a2-ultragpu-.*", "a100-sxm-80g"), (r"a4x-highgpu-.*", "gb200"),
    (r"a4x-maxgpu-.*", "gb300"), (r".*\bgb200\b.*", "gb200"), (r".*\bgb300\b.*", "gb300"),
    (r"gpu-(?:h100|h200|b200|b300)-sxm.*", ""), (r"g6e\.48xlarge", "l40s"), (r"g7e\.48xlarge", "rtx-pro-6000"),
)  # fmt: skip
"""Machine types of clouds that the catalogue's clusters do not have, and their accelerator; empty: by its words
(docs.cloud.google.com/compute, GPU machine types; AWS's `p6e-gb200`, Azure's `ND128isr_NDR_GB200_v6`, OCI's
`BM.GPU.GB200.4`; docs.nebius.com/compute, platforms)."""


def machine_profile(kind: str) -> LinkProfile | None:
    """Profile of a machine type such as `p5.48xlarge`, from the catalogue or a cloud's table; None without one."""
    entry = clusters().get(kind)
    if entry is not None and entry.levels and entry.device:
        host, *above = (TierSpec(each.link, each.bandwidth, each.latency) for each in entry.levels)
        return LinkProfile(kind, "", entry.device, entry.levels[0].fanout, host, tiers=tuple(above[:1]))
    text = kind.lower().replace("_", "-")
    device = next((device for pattern, device in MACHINES if re.fullmatch(pattern, text)), None)
    return None if device is None else LinkProfile(kind, device=device or known_product(kind))


def with_machines(profile: LinkProfile | None, kinds: Collection[str | None]) -> LinkProfile | None:
    """`profile` with what it leaves out from the only machine type of all hosts, where it is known."""
    kind = next(iter(set(kinds))) if len(set(kinds)) == 1 else None
    known = None if kind is None else machine_profile(kind)
    given = profile or LinkProfile()
    if known is None or given.device not in (None, known.device):
        return profile
    if given.host or given.tiers or given.devices_per_host:
        return evolve(given, device=known.device)
    return evolve(known, name=given.name or known.name, tier_labels=given.tier_labels)


OTHER_FORMS = frozenset({"PCIE", "PCI", "NVL", "HBM2E", "MIG"})
"""Words of products with other links than the catalogue's, and of parts of a device."""


_SLICE = re.compile(r"\d+g[._]\d+gb", re.IGNORECASE)


def is_slice(product: str) -> bool:
    """Return whether a product is a part of a GPU: `...-MIG-1g.10gb`, or Slurm's `h100_1g.10gb` (gres.conf(5), MIG)."""
    return _SLICE.search(product) is not None or "MIG" in re.split(r"[^A-Z0-9]+", product.upper())


def product_device(product: str, profile: LinkProfile | None) -> str | None:
    """Name in the catalogue of a product such as `NVIDIA-H100-80GB-HBM3`; None where the profile or the problem says.

    Raises:
        InputError: the catalogue does not have it, and no profile gives its links.
    """
    if profile is not None and profile.device is not None:
        return None
    known = known_product(product)
    if known is not None:
        return known
    if profile is None or not profile.tiers:
        near = _near(product)
        if near:
            raise InputError(
                f"{product!r:.60} may be {' or '.join(near)}; name a link profile that says which "
                "(`nest topology profiles`)."
            )
        raise InputError(
            f"the catalogue has no accelerator called {product!r:.60}; give a link profile with its links (`host` and "
            "`tiers`), and its own figures as cluster.device."
        )
    return None


def _near(product: str) -> list[str]:
    """Devices of the catalogue that a product which does not say its memory or form may be."""
    words = set(re.split(r"[^A-Z0-9]+", product.upper()))
    more = {other for word, others, _ in PRODUCTS if word in words for other in others}
    said = words & (OTHER_FORMS | more) or any(re.fullmatch(r"\d+GB", word) for word in words)
    return [] if said else list(dict.fromkeys(device for word, _, device in PRODUCTS if word in words))


def known_product(product: str) -> str | None:
    """Name in the catalogue of a product; None: it has none, or another form of it."""
    words = set(re.split(r"[^A-Z0-9]+", product.upper()))
    found = (device for word, others, device in PRODUCTS if word in words and others <= words)
    return None if words & OTHER_FORMS else next(found, None)


LANE = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Gbit/s of data on one lane and direction: InfiniBand Architecture Specification volume 1, tables of link speeds. SDR
to QDR signal 10 bits for 8, FDR10 and FDR 66 for 64; from EDR on the name is the rate of data."""

LANES = 4
"""Lanes of a port whose width is not written: ports of NICs and switches have four ("4x")."""

_RATE = re.compile(r"(?:([1-9]\d?)\s*[xX]\s*)?(SDR|DDR|QDR|FDR10|FDR|EDR|HDR100|HDR|NDR200|NDR|XDR)", re.IGNORECASE)
_HALVES = {"HDR100": ("HDR", 2), "NDR200": ("NDR", 2)}
"""Ports split in two: names of two lanes."""


def infiniband_lane(text: str) -> float:
    """Gbit/s of one lane of a port called as for `infiniband_rate`; 0: no such rate is known."""
    match = _RATE.fullmatch(text.strip())
    return 0.0 if match is None else LANE[_HALVES.get(match[2].upper(), (match[2].upper(), LANES))[0]]


def infiniband_rate(text: str) -> float | None:
    """Bytes per second and direction of a port called `4xNDR`, `NDR`, `HDR100` ...; None: no such rate is known."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        return None
    name = match[2].upper()
    name, lanes = _HALVES.get(name, (name, LANES))
    return LANE[name] * int(match[1] or lanes) * 1e9 / 8
