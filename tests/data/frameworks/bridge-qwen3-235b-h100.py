# NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/perf_recipes/qwen/h100/qwen3_moe.py#qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config, 067f987df03b
from megatron.bridge.training.config import ConfigContainer


def qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config() -> ConfigContainer:
    """One recipe."""
    cfg = qwen3_235b_a22b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.model.bias_activation_fusion = True
    cfg.model.recompute_granularity = None
    cfg.model.recompute_method = None
    cfg.model.recompute_num_layers = None
    cfg.model.moe_router_fusion = True
    cfg.model.seq_length = 4096
    cfg.dataset.seq_length = 4096
    cfg.model.moe_router_force_load_balancing = True
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 8
    cfg.model.context_parallel_size = 1
    cfg.model.virtual_pipeline_model_parallel_size = 4
    cfg.model.expert_model_parallel_size = 32
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 8192
    cfg.train.micro_batch_size = 1
    cfg.model.moe_flex_dispatcher_backend = None
    cfg.model.moe_token_dispatcher_type = 'alltoall'
    cfg.model.moe_a2a_overlap = True
    cfg.model.moe_shared_expert_overlap = False
    cfg.comm_overlap = CommOverlapConfig(
        tp_comm_overlap=True,
        overlap_moe_expert_parallel_comm=True,
        delay_wgrad_compute=True,
    )
    return cfg
