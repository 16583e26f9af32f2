# NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/perf_recipes/gpt_oss/h100/gpt_oss.py#gpt_oss_120b_pretrain_64gpu_h100_bf16_config, 067f987df03b
from megatron.bridge.training.config import ConfigContainer


def gpt_oss_120b_pretrain_64gpu_h100_bf16_config() -> ConfigContainer:
    """One recipe."""
    cfg = gpt_oss_120b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.model.moe_router_fusion = True
    cfg.model.moe_router_force_load_balancing = True
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.expert_model_parallel_size = 8
    cfg.model.sequence_parallel = False
    cfg.train.global_batch_size = 1280
    cfg.train.micro_batch_size = 1
    cfg.model.recompute_modules = ['layernorm', 'moe_act']
    cfg.model.recompute_granularity = 'selective'
    return cfg
