"""DeepSeek-V3 and Kimi K2, which has its shape (arXiv 2412.19437, arXiv 2507.20534)."""

from nest.models.building.config import ConfigImporter
from nest.models.building.decoder import read_latent_decoder

importer = ConfigImporter("deepseek_v3", "DeepseekV3ForCausalLM", read_latent_decoder, also=("kimi_k2",))
