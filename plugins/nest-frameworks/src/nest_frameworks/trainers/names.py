"""Names, in frameworks around Hugging Face's Trainer, of their common settings.

Keys and defaults: `TrainingArguments` of transformers 5.23.0 (training_args.py); src/llamafactory/hparams of
hiyouga/LLaMA-Factory, commit ff6d4d12; src/axolotl/utils/schemas of axolotl-ai-cloud/axolotl, commit 067b021c.
"""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

OPTIMIZERS = {
    "adamw_torch_fused": "adamw",
    "adamw_torch": "adamw",
    "adamw_hf": "adamw",
    "adamw_apex_fused": "adamw",
    "paged_adamw_32bit": "adamw",
    "adamw_bnb_8bit": "adam-8bit",
    "adamw_8bit": "adam-8bit",
    "adamw_torch_8bit": "adam-8bit",
    "paged_adamw_8bit": "adam-8bit",
    "lion_32bit": "lion",
    "paged_lion_32bit": "lion",
    "sgd": "sgd",
}
"""The catalogue's name of an optimizer by theirs (`OptimizerNames`); the first of several is written."""

WRITTEN = {ours: theirs for theirs, ours in reversed(OPTIMIZERS.items())} | {"adam": "adamw_torch_fused"}
"""Their name by the catalogue's; of Adam they have AdamW, which takes as long."""

FLASH, UNFUSED = "flash", "unfused"

_ATTENTIONS = {
    "eager": UNFUSED,
    **dict.fromkeys(("sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "xformers"), FLASH),
}

_ALL = "nest prices trainings of all parameters and of adapters (LoRA)"
_STEP = "nest prices steps that predict the next token, with one model"

PREFERRING = ("beta", "num_generations", "max_prompt_length", "max_completion_length", "reward_model_path")
"""Keys of trl's trainers on preferences and rewards (dpo_config.py, grpo_config.py and the like)."""

_HARMLESS = (
    *("output_dir", "overwrite_output_dir", "do_*", "learning_rate", "lr_*", "warmup_*", "weight_decay", "adam_*"),
    *("num_train_epochs", "logging_*", "log_*", "save_*", "eval_*", "evaluation_strategy", "per_device_eval_*"),
    *("report_to", "run_name", "project", "seed", "data_seed", "max_grad_norm", "dataloader_*", "ddp_*", "hub_*"),
    *("push_to_hub", "resume_from_checkpoint", "load_best_model_at_end", "metric_for_best_model", "trust_remote_code"),
    *("greater_is_better", "remove_unused_columns", "label_*", "dataset*", "tf32", "include_*", "disable_tqdm"),
    *("max_steps", "bf16_full_eval", "fp16_full_eval", "gradient_checkpointing_kwargs.*", "*tokenizer*", "cache_dir"),
    *("activation_checkpointing_kwargs.*", "optim_args", "average_tokens_across_devices", "prediction_loss_only"),
    *("accelerator_config.*", "chat_template*", "group_by_length", "length_column_name", "local_rank", "low_cpu_*"),
    "fsdp_transformer_layer_cls_to_wrap",
    *("full_determinism", "ignore_data_skip", "torch_empty_cache_steps", "skip_memory_metrics", "debug"),
)
"""Patterns of keys of all of them that change no cost that nest counts."""

_UNPRICED = {
    "neftune_noise_alpha": "",
    "auto_find_batch_size": "nest assumes the micro-batch to fit",
}

INPUTS = "nest assumes inputs of layers to stay on the device"
_PLAIN = "nest assumes adapters to be those of LoRA"


@frozen
class Adapters:
    """A framework's names for low-rank adapters.

    Attributes:
        switch: the key that says that there are some, and what it says then.
        rank: key of their rank, and what it is where it is not given.
        targets: key of the layers that have one, and which have where it is not given.
        linear: what says that every linear layer has one: a word among the targets, or a key of its own.
        saved: key of layers that are trained as they are.
    """

    switch: tuple[str, Any]
    rank: tuple[str, int]
    targets: tuple[str, tuple[str, ...]]
    linear: str
    saved: str


PEFT_DEFAULT = ("q_proj", "v_proj")
"""Of models of Llama's family (peft, utils/constants.py)."""

SAVED = {"embed_tokens": "embedding", "lm_head": "head"}
"""nest's layer by its name in `transformers`."""


@frozen
class Names:
    """One framework's names for common settings.

    Attributes:
        framework: its name.
        file: name of the file that is written for it.
        typical: keys of which such a file has at least one.
        model: key of the model's name.
        lengths: keys of tokens per sample, the first of which is written.
        length: tokens per sample where none is given; None: nobody knows.
        micro: key of the samples of a micro-batch, and how many there are where it is not given.
        optimizer: key of the optimizer's name.
        attention: key of the kind of attention.
        attentions: nest's name of it by theirs, the first of several of which is written.
        adapters: what it calls low-rank adapters.
        formats: nest's precision by the key that switches it on, the first that is on wins.
        usual: precision where none is.
        pure: keys that keep weights in 16 bits alone.
        liger: the key that switches all kernels of Liger on; empty: a plug-in does.
        kept: what says that nothing is recomputed, where it otherwise is; empty: the framework recomputes if told.
        recomputes: whether everything is recomputed where no key says.
        filled: keys that say that samples are as long as they may be.
        narrow: keys that keep frozen weights in so many bits; LLaMA-Factory's says how many.
        double: key of double quantisation, and its default.
        refused: by key, what it is where it is not given, what nest prices, and why nothing else.
        unpriced: what is assumed where a key is set; empty: it is only named.
        changing: what is assumed in place of keys that change layout, memory or model, which are refused.
        harmless: patterns of further keys that change no cost that nest counts.
    """

    framework: str
    file: str
    typical: tuple[str, ...]
    model: str
    lengths: tuple[str, ...]
    length: int | None
    micro: tuple[str, int]
    optimizer: str
    attention: str
    attentions: Mapping[str, str]
    adapters: Adapters
    formats: Mapping[str, str] = field(factory=lambda: {"bf16": "bf16", "fp16": "fp16"})
    usual: str = "fp32"
    pure: tuple[str, ...] = ()
    liger: str = ""
    kept: str = ""
    recomputes: bool = False
    filled: tuple[str, ...] = ("packing",)
    narrow: Mapping[str, int] = field(factory=lambda: {"load_in_4bit": 4, "load_in_8bit": 8})
    double: tuple[str, bool] = ("use_bnb_nested_quant", False)
    refused: Mapping[str, tuple[Any, tuple[Any, ...], str]] = field(factory=dict)
    unpriced: Mapping[str, str] = field(factory=dict)
    changing: Mapping[str, str] = field(factory=dict)
    harmless: tuple[str, ...] = ()

    def patterns(self) -> tuple[str, ...]:
        """All patterns of keys that change no cost that nest counts."""
        return (*_HARMLESS, *self.harmless)

    def passed_over(self) -> dict[str, str]:
        """All keys that are not priced, with what is assumed."""
        return {**_UNPRICED, **self.unpriced}


STEPS = "gradient_accumulation_steps"

TRANSFORMERS = Names(
    framework="Hugging Face's Trainer",
    file="training_args.json",
    typical=("per_device_train_batch_size", STEPS, "fsdp", "deepspeed", "optim", "learning_rate"),
    model="model_name_or_path",
    lengths=("max_length", "max_seq_length", "block_size", "model_max_length", "max_seq_len", "cutoff_len"),
    length=None,
    micro=("per_device_train_batch_size", 8),
    optimizer="optim",
    attention="attn_implementation",
    attentions=_ATTENTIONS,
    adapters=Adapters(
        ("use_peft", True), ("lora_r", 16), ("lora_target_modules", PEFT_DEFAULT), "all-linear", "lora_modules_to_save"
    ),
    liger="use_liger_kernel",
    filled=("packing", "block_size"),
    refused={
        "liger_kernel_config": (None, (None, {}), "nest prices all kernels of Liger or none"),
        "lora_enable": (False, (False,), "nest reads what trl calls adapters"),
        **dict.fromkeys(PREFERRING, (None, (None,), _STEP)),
    },
    changing={"use_dora": _PLAIN},
    harmless=(
        "lora_*",
        "bnb_4bit_quant_type",
        "bnb_4bit_compute_dtype",
        "bnb_4bit_quant_storage",
        "use_rslora",
        "model_revision",
        "torch_dtype",
        "dtype",
        "preprocessing_*",
        "overwrite_cache",
        "train_file",
    ),
)
"""Keys beside those of `TrainingArguments`: trl's `SFTConfig` and `ModelConfig`, run_clm.py, FastChat's train.py."""

TRL = evolve(TRANSFORMERS, framework="trl", length=1024, usual="bf16", recomputes=True)
"""trl 1.16: trainer/base_config.py (`bf16`, `gradient_checkpointing`), trainer/sft_config.py (`max_length`)."""

TRL_KEYS = (
    *("packing", "max_length", "use_peft", "packing_strategy", "padding_free", "eval_packing", "truncation_mode"),
    *("completion_only_loss", "assistant_only_loss", "dataset_text_field", "model_init_kwargs", "shuffle_dataset"),
)
"""Keys of which only files for trl have some; those of releases until 0.19 say `max_seq_length` for `max_length`."""

LLAMA_FACTORY = Names(
    framework="LLaMA-Factory",
    file="llama_factory.yaml",
    typical=("stage", "finetuning_type", "cutoff_len", "per_device_train_batch_size", "template"),
    model="model_name_or_path",
    lengths=("cutoff_len",),
    length=2048,
    micro=("per_device_train_batch_size", 8),
    optimizer="optim",
    attention="flash_attn",
    attentions={"disabled": UNFUSED, **dict.fromkeys(("auto", "sdpa", "fa2", "fa3"), FLASH)},
    adapters=Adapters(
        ("finetuning_type", "lora"), ("lora_rank", 8), ("lora_target", ("all",)), "all", "additional_target"
    ),
    formats={"fp8": "fp8", "bf16": "bf16", "pure_bf16": "bf16", "fp16": "fp16"},
    pure=("pure_bf16",),
    liger="enable_liger_kernel",
    kept="disable_gradient_checkpointing",
    filled=("packing", "neat_packing"),
    narrow={"quantization_bit": 4},
    double=("double_quantization", True),
    refused={
        "finetuning_type": ("lora", ("full", "lora", "freeze"), "nest prices full, lora and freeze"),
        "quantization_method": ("bnb", ("bnb",), "nest reads bitsandbytes alone"),
        "quantization_device_map": (None, (None,), "nest assumes each device to hold a whole replica"),
        "stage": ("sft", ("pt", "sft", "rm"), _STEP),
        **dict.fromkeys(
            ("use_hyper_parallel", "use_kt", "use_badam", "use_galore", "use_apollo", "use_unsloth"),
            (False, (False,), "nest does not read what it does"),
        ),
        "use_asft_loss": (False, (False,), "its loss runs a reference model beside, which nest does not price"),
        "freeze_language_model": (False, (False,), _ALL),
        "mixture_of_depths": (None, (None,), "nest prices models as they are published"),
    },
    changing={
        "use_dora": _PLAIN,
        "use_muon": "nest assumes the optimizer to be the one of optim",
        "use_adam_mini": "nest assumes the optimizer to be the one of optim",
        "use_unsloth_gc": INPUTS,
        "shift_attn": "nest assumes queries to attend to every key",
    },
    unpriced={
        "fp8_enable_fsdp_float8_all_gather": "nest assumes weights to be gathered in 16 bits",
        "resize_vocab": "",
    },
    harmless=(
        *("template", "preprocessing_*", "overwrite_cache", "max_samples", "plot_loss", "val_size", "media_dir"),
        *("streaming", "buffer_size", "mix_strategy", "interleave_probs", "ray_*", "swanlab_*", "use_swanlab"),
        *(
            "freeze_*",
            "use_llama_pro",
            "image_*",
            "video_*",
            "enable_thinking",
            "mask_history",
            "train_on_prompt",
            "use_reentrant_gc",
        ),
        *("use_v1_kernels", "fp8_backend", "*_token", "predict_with_generate", "rope_scaling", "print_param_status"),
        *("upcast_*", "use_dft_loss", "use_fast_tokenizer", "default_system", "tool_format", "profiler_*"),
        *("ignore_pad_token_for_loss", "compute_accuracy", "disable_shuffling", "tokenized_path", "model_revision"),
        *("early_stopping_steps", "infer_*", "data_shared_file_system", "enable_torch_profiler", "profile_modules"),
        *("split_special_tokens", "add_tokens", "add_special_tokens", "lora_*", "loraplus_*", "use_rslora", "pissa_*"),
        *("create_new_adapter", "quantization_type", "use_llama_pro"),
    ),
)

AXOLOTL = Names(
    framework="Axolotl",
    file="axolotl.yaml",
    typical=("base_model", "micro_batch_size", "sequence_len"),
    model="base_model",
    lengths=("sequence_len",),
    length=512,
    micro=("micro_batch_size", 1),
    optimizer="optimizer",
    attention="attn_implementation",
    attentions=_ATTENTIONS,
    adapters=Adapters(
        ("adapter", "lora"),
        ("lora_r", 8),
        ("lora_target_modules", PEFT_DEFAULT),
        "lora_target_linear",
        "lora_modules_to_save",
    ),
    formats={
        "fp8": "fp8",
        **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
        **dict.fromkeys(("fp16", "float16"), "fp16"),
        "float32": "fp32",
    },
    usual="bf16",
    pure=("bfloat16", "float16"),
    filled=("sample_packing", "pad_to_sequence_len"),
    double=("bnb_config_kwargs.bnb_4bit_use_double_quant", True),
    refused={
        "adapter": (None, (None, "", "lora", "qlora"), _ALL),
        "unfrozen_parameters": (None, (None, []), _ALL),
        "relora": (None, (None, False), _ALL),
        "relora_steps": (None, (None, 0), _ALL),
        "rl": (None, (None, ""), _STEP),
        "reward_model": (None, (None, False), _STEP),
        "process_reward_model": (None, (None, False), _STEP),
        "expert_parallel_size": (1, (1, None), "nest does not read Axolotl's expert parallelism"),
        "qat": (None, (None,), "nest does not price quantisation in training"),
        "lisa_n_layers": (None, (None,), _ALL),
        "peft_layers_to_transform": (None, (None, []), _ALL),
    },
    changing={
        "peft_use_dora": _PLAIN,
        "selective_checkpointing": "nest assumes all of a layer to run again",
        "activation_offloading": INPUTS,
        "layer_offloading": "nest assumes weights to stay on the device",
        "tiled_mlp": "nest assumes feed-forward networks to run over the whole sequence",
        "deepcompile": "nest assumes weights to be gathered layer by layer",
    },
    unpriced={"fp8_enable_fsdp_float8_all_gather": "nest assumes weights to be gathered in 16 bits"},
    harmless=(
        *("model_type", "processor_type", "type_of_*", "is_*_derived_model", "strict", "special_tokens.*", "tokens"),
        *("test_datasets", "val_set_size", "evals_per_epoch", "saves_per_epoch", "num_epochs", "wandb_*", "mlflow_*"),
        *("use_wandb", "use_mlflow", "comet_*", "use_comet", "swanlab_*", "use_swanlab", "train_on_inputs"),
        *("sample_packing_*", "eval_sample_packing", "shuffle_*", "excess_length_strategy", "min_sample_len"),
        *("pretraining_dataset", "streaming*", "pretrain_*", "liger_*", "lora_*", "peft_*", "loraplus_*", "eot_tokens"),
        *("flash_attn_*", "cosine_*", "heads_k_stride", "early_stopping_patience", "fp32_norm*", "skip_prepare_*"),
        *("loss_watchdog_*", "gc_steps", "default_system_message", "xformers_attention"),
        *("fsdp_final_state_dict_type", "experts_implementation", "torch_compile_*", "s2_attention"),
        *("use_tensorboard", "revision_of_model", "auto_resume_*", "torchdistx_path", "axolotl_config_path"),
        *(
            "bnb_config_kwargs.*",
            "pad_to_multiple_of",
            "batch_flattening",
            "use_kernels",
            "world_size",
            "adapter",
            "unfrozen_parameters",
        ),
    ),
)
