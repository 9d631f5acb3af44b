"""Accelerators of the catalogue by what drivers and operators call the product."""

import re

_WORDS: tuple[tuple[str, str | None], ...] = (
    (r"MIG", None),
    (r"GB300", "gb300"),
    (r"GB200", "gb200"),
    (r"GH200", None),
    (r"B300", "b300-sxm"),
    (r"B200", "b200-sxm"),
    (r"NVL|PCIE", None),
    (r"H200", "h200-sxm"),
    (r"H100(?=.*(?:HBM3|SXM))|H100 80GB|H100$", "h100-sxm"),
    (r"A100(?=.*80GB)", "a100-sxm-80g"),
    (r"A100(?=.*40GB)", "a100-sxm-40g"),
    (r"V100(?=.*SXM)(?=.*32GB)", "v100-sxm-32g"),
    (r"MI300X", "mi300x"),
)
"""Patterns in products as NVIDIA's driver (`nvidia-smi -L`) and AMD's device-plugin label them, the first that fits:
NVIDIA/k8s-device-plugin docs/gpu-feature-discovery, ROCm/gpu-operator docs/labeling. Parts of devices (MIG), and forms of
an accelerator with other links (PCIe, NVL), are not in the catalogue."""


def product_device(product: str) -> str | None:
    """Name in the catalogue of a product such as `NVIDIA-H100-80GB-HBM3`; None: the catalogue does not have it."""
    words = re.sub(r"[^A-Z0-9]+", " ", product.upper()).strip().removesuffix(" SHARED")
    for pattern, device in _WORDS:
        if re.search(rf"(?<![A-Z0-9])(?:{pattern})" if pattern[0] not in "M" else rf"(?:{pattern})", words):
            return device
    return None
