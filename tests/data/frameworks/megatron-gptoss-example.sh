#!/bin/bash
# NVIDIA/Megatron-LM, examples/gptoss/02_train.sh, d98e8a64ddf3
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
NUM_NODES=${NUM_NODES:-1}
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
DATA=${2:-"MOCK"}

usage() {
  echo "usage: $0 [--tp N]"
  exit 1
}
while [[ $# -gt 0 ]]; do
    case "$1" in
        --quiet) QUIET=1; shift ;;
        *) usage ;;
    esac
done
if [ -f ./env.sh ]; then source ./env.sh; fi

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR # of node 0
    --master_port $MASTER_PORT
)

GROUP_0_ARGS=(
    --no-masked-softmax-fusion
    --transformer-impl transformer_engine
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --no-rope-fusion
    --normalization RMSNorm
    --num-layers 12
    --hidden-size 512
    --ffn-hidden-size 2048
    # --not-a-flag 1
)

GROUP_1_ARGS=(
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --use-mcore-models
    --rotary-percent 1.0
    --rope-type rope
    --position-embedding-type rope
)

GROUP_2_ARGS=(
    --rotary-base 10000
    --no-bias-gelu-fusion
    --export-force-local-attention
    --no-bias-dropout-fusion
    --quick-geglu
    --glu-linear-offset 1.0
    --softmax-type learnable
    --window-attn-skip-freq 2
    --activation-func-clamp-value 7.0
)

GROUP_3_ARGS=(
    --window-size 127,0
    --enable-gpt-oss
    --num-experts 4
    --moe-router-topk 2
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-3
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --overlap-param-gather
)

GROUP_4_ARGS=(
    --overlap-grad-reduce
    --moe-ffn-hidden-size 2048
    --moe-router-dtype fp32
    --moe-z-loss-coeff 1e-3
    --moe-permute-fusion
    --mock-data
    --tokenizer-type NullTokenizer
    --vocab-size 128256
    --data-cache-path PATH
)

GROUP_5_ARGS=(
    --tiktoken-pattern v2
    --split 99,1,0
    --no-create-attention-mask-in-dataloader
    --no-mmap-bin-files
    --num-workers 1
    --micro-batch-size 1
    --global-batch-size 128
    --lr 1.0e-5
    --train-samples 1953125000
)

GROUP_6_ARGS=(
    --lr-decay-samples 1949218748
    --lr-decay-style cosine
    --min-lr 1.0e-6
    --weight-decay 0.1
    --lr-warmup-fraction 0.05
    --clip-grad 1.0
    --bf16
    --use-flash-attn
    --attention-softmax-in-fp32
)

GROUP_7_ARGS=(
    --accumulate-allreduce-grads-in-fp32
    --disable-bf16-reduced-precision-matmul
    --recompute-activations
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 8
    --expert-model-parallel-size 1
    --sequence-parallel
    --context-parallel-size 1
    --use-distributed-optimizer
)

GROUP_8_ARGS=(
    --fp8-format hybrid
    --fp8-param-gather
    --fp8-amax-compute-algo max
    --fp8-amax-history-len 1024
    --log-interval 1
    --save-interval PATH
    --eval-interval 50000000
    --eval-iters 0
    --save PATH
)

GROUP_9_ARGS=(
    --tensorboard-dir PATH
    --moe-per-layer-logging
    --no-load-optim
    --no-load-rng
    --log-throughput
)

if [[ "$DATA" == "MOCK" ]] || [[ -z "$DATA" ]]; then
    EXTRA=()
else
    EXTRA=(--data-path $DATA --never-a-flag)
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GROUP_0_ARGS[@]} \
    ${GROUP_1_ARGS[@]} \
    ${GROUP_2_ARGS[@]} \
    ${GROUP_3_ARGS[@]} \
    ${GROUP_4_ARGS[@]} \
    ${GROUP_5_ARGS[@]} \
    ${GROUP_6_ARGS[@]} \
    ${GROUP_7_ARGS[@]} \
    ${GROUP_8_ARGS[@]} \
    ${GROUP_9_ARGS[@]} \
    ${EXTRA[@]}
