"""Accelerators of the catalogue by what drivers and operators call the product."""

import re

from nest.errors import InputError
from nest.spec import LinkProfile

PRODUCTS: tuple[tuple[str, frozenset[str], str], ...] = (
    ("GB300", frozenset(), "gb300"),
    ("GB200", frozenset(), "gb200"),
    ("B300", frozenset(), "b300-sxm"),
    ("B200", frozenset(), "b200-sxm"),
    ("H200", frozenset(), "h200-sxm"),
    ("H100", frozenset(), "h100-sxm"),
    ("A100", frozenset({"80GB"}), "a100-sxm-80g"),
    ("A100", frozenset({"40GB"}), "a100-sxm-40g"),
    ("V100", frozenset({"SXM2", "32GB"}), "v100-sxm-32g"),
    ("V100", frozenset({"SXM3", "32GB"}), "v100-sxm-32g"),
    ("MI300X", frozenset(), "mi300x"),
)
"""A word of a product, others it must have, and its name in the catalogue; products as NVIDIA's driver and AMD's label
them (NVIDIA/k8s-device-plugin docs/gpu-feature-discovery, ROCm/gpu-operator docs)."""

OTHER_FORMS = frozenset({"PCIE", "PCI", "NVL", "HBM2E", "MIG"})
"""Words of products with other links than the catalogue's, and of parts of a device."""


def product_device(product: str, profile: LinkProfile | None) -> str | None:
    """Name in the catalogue of a product such as `NVIDIA-H100-80GB-HBM3`; None where the profile or the problem says.

    Raises:
        InputError: the catalogue does not have it, and no profile gives its links.
    """
    if profile is not None and profile.device is not None:
        return None
    words = set(re.split(r"[^A-Z0-9]+", product.upper()))
    if not words & OTHER_FORMS:
        for word, others, device in PRODUCTS:
            if word in words and others <= words:
                return device
    if profile is None or not profile.tiers:
        raise InputError(
            f"the catalogue has no accelerator called {product!r:.60}; give a link profile with its links (`host` and "
            "`tiers`), and its own figures as cluster.device."
        )
    return None
