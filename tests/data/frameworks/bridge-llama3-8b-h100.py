# NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/perf_recipes/llama/h100/llama3.py#llama3_8b_pretrain_8gpu_h100_bf16_config, 067f987df03b
from megatron.bridge.training.config import ConfigContainer


def llama3_8b_pretrain_8gpu_h100_bf16_config() -> ConfigContainer:
    """One recipe."""
    cfg = llama3_8b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.tokenizer.vocab_size = 128256
    cfg.model.should_pad_vocab = True
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.context_parallel_size = 2
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.sequence_parallel = False
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 1
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    cfg.model.moe_token_dispatcher_type = 'alltoall'
    return cfg
