"""What the paper and its artifact state, retyped."""

FIGURE_5 = {
    "bert-large": (1.35, 2.70, 5.40, 10.81, 21.61),
    "llama-2-7b": (1.25, 2.47, 4.81, 9.14, 16.63),
    "llama-3-70b": (1.01, 2.97, 5.77, 10.94, 20.51),
    "mixtral-8x7b": (1.02, 2.00, 3.89, 7.38, 13.35),
    "gpt3-175b": (0.67, 1.33, 2.65, 5.22, 10.15),
}
"""Throughput of NEST over that of Manual at its smallest feasible size, on 64, 128, 256, 512 and 1,024 devices
(scai-tech/Nest, scripts/tpuv4_fatTree/reference_results.md)."""

TABLE_3 = {
    ("mixtral-8x7b", 1024): {"manual": 1.000, "mcmc": 1.324, "phaze": 1.215, "nest": 1.519},
    ("mixtral-8x7b", 128): {"manual": 1.000, "mcmc": 0.749, "phaze": 1.202, "nest": 1.503},
    ("gpt3-175b", 128): {"manual": 1.000, "mcmc": 1.000, "phaze": 1.143, "nest": 1.334},
}
"""Throughput over that of Manual at the same size (scai-tech/Nest, README.md, experiments 3.1 to 3.3)."""
