"""DeepSeek-V2 (arXiv 2405.04434): latent attention, routed and shared experts."""

from nest.models.building.importer import ConfigImporter
from nest.models.building.latent_decoder import read_latent_decoder

importer = ConfigImporter("deepseek_v2", "DeepseekV2ForCausalLM", read_latent_decoder)
