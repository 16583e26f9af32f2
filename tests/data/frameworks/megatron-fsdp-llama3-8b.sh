#!/bin/bash
# NVIDIA/Megatron-LM, examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh, d98e8a64ddf3

GPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
NUM_NODES=${NUM_NODES:-1}
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
DATA=${2:-"MOCK"}

export CUDA_DEVICE_MAX_CONNECTIONS=1
unset CUDA_DEVICE_MAX_CONNECTIONS

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR # of node 0
    --master_port $MASTER_PORT
)

GROUP_0_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length 8192
    # --not-a-flag 1
)

GROUP_1_ARGS=(
    --max-position-embeddings 8192
    --position-embedding-type rope
    --rotary-base 1000000
    --rotary-percent 1.0
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --swiglu
    --normalization RMSNorm
    --init-method-std 0.0134
)

GROUP_2_ARGS=(
    --attention-backend fused
    --apply-layernorm-1p
    --untie-embeddings-and-output-weights
    --disable-bias-linear
    --micro-batch-size 1
    --global-batch-size 128
    --train-samples 1953125000
    --lr-decay-samples 1949218748
    --lr-warmup-samples 3906252
)

GROUP_3_ARGS=(
    --lr 0.00015
    --min-lr 0.00001
    --decoupled-lr 5.0e-4
    --decoupled-min-lr 4.5e-5
    --lr-decay-style cosine
    --clip-grad 1.0
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
)

GROUP_4_ARGS=(
    --bf16
    --cross-entropy-loss-fusion
    --no-check-for-nan-in-loss-and-grad
    --manual-gc
    --empty-unused-memory-level 1
    --exit-duration-in-mins 235
    --use-megatron-fsdp
    --data-parallel-sharding-strategy optim_grads_params
    --no-gradient-accumulation-fusion
)

GROUP_5_ARGS=(
    --calculate-per-token-loss
    --init-model-with-meta-device
    --ckpt-format fsdp_dtensor
    --use-nccl-ub
    --fsdp-double-buffer
    --fsdp-manual-registration
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
)

GROUP_6_ARGS=(
    --fp8-format hybrid
    --fp8-amax-history-len 1024
    --fp8-amax-compute-algo max
    --fp8-param-gather
    --tensor-model-parallel-size 1
    --context-parallel-size 1
    --sequence-parallel
    --mock-data
    --tokenizer-type NullTokenizer
)

GROUP_7_ARGS=(
    --vocab-size 128256
    --data-cache-path PATH
    --tiktoken-pattern v2
    --split 99,1,0
    --no-create-attention-mask-in-dataloader
    --no-mmap-bin-files
    --num-workers 1
    --log-interval 1
    --eval-iters 32
)

GROUP_8_ARGS=(
    --eval-interval 100
    --save-interval PATH
    --log-throughput
    --logging-level 20
    --distributed-timeout-minutes 60
    --save PATH
    --load PATH
    --tensorboard-dir PATH
)

ALL_ARGS=("${GROUP_0_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_1_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_2_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_3_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_4_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_5_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_6_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_7_ARGS[@]}")
ALL_ARGS=("${ALL_ARGS[@]}" "${GROUP_8_ARGS[@]}")
if [[ "$DATA" == "MOCK" ]] || [[ -z "$DATA" ]]; then
    EXTRA=()
else
    EXTRA=(--data-path $DATA --never-a-flag)
fi
LAUNCH="uv run torchrun"
$LAUNCH ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${ALL_ARGS[@]} \
    ${EXTRA[@]}
