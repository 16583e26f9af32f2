# NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/perf_recipes/llama/gb200/llama3.py#llama3_70b_pretrain_64gpu_gb200_bf16_config, 067f987df03b
from megatron.bridge.training.config import ConfigContainer


def llama3_70b_pretrain_64gpu_gb200_bf16_config() -> ConfigContainer:
    """One recipe."""
    cfg = llama3_70b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.tokenizer.vocab_size = 128256
    cfg.model.should_pad_vocab = True
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.context_parallel_size = 1
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.sequence_parallel = False
    cfg.train.global_batch_size = 256
    cfg.train.micro_batch_size = 1
    cfg.ddp.use_megatron_fsdp = True
    cfg.ddp.data_parallel_sharding_strategy = 'optim_grads_params'
    cfg.ddp.keep_fp8_transpose_cache = False
    cfg.ddp.average_in_collective = False
    cfg.ddp.fsdp_double_buffer = True
    cfg.ddp.suggested_communication_unit_size = 800000000
    cfg.model.init_model_with_meta_device = True
    cfg.model.gradient_accumulation_fusion = False
    cfg.checkpoint.load = None
    cfg.model.cpu_offloading = True
    cfg.model.cpu_offloading_weights = False
    cfg.model.cpu_offloading_num_layers = 20
    cfg.comm_overlap.tp_comm_overlap_cfg = 'userbuffers_bf16_b200_h8192_tp2_mbs1_seqlen8192'
    cfg.model.moe_token_dispatcher_type = 'alltoall'
    return cfg
