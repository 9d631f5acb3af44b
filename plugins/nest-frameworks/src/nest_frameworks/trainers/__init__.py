"""Frameworks around the Trainer of Hugging Face: LLaMA-Factory, Axolotl, and the Trainer itself."""
