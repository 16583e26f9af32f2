#!/bin/bash
# NVIDIA/Megatron-LM, examples/gpt3/train_gpt3_175b_distributed.sh, d98e8a64ddf3
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
NUM_NODES=${NUM_NODES:-1}
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
DATA=${2:-"MOCK"}

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR # of node 0
    --master_port $MASTER_PORT
)

GROUP_0_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length $((2048 / 2 * 2)) # halves
    --max-position-embeddings 2048
    --attention-backend auto
    --micro-batch-size 1
    --global-batch-size 1536
    --step-batch-size-schedule "0:16 2.4B:320 4.8B:624 7.2B:928 9.6B:1232 12B:1536"
    # --not-a-flag 1
)

GROUP_1_ARGS=(
    --train-iters 500000
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --init-method-std 0.006
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5
    --lr-decay-style cosine
)

GROUP_2_ARGS=(
    --min-lr 6.0e-6
    --lr-warmup-fraction .001
    --lr-decay-iters 430000
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16
    --data-path PATH
    --vocab-file PATH
    --merge-file PATH
    --split 949,50,1
)

GROUP_3_ARGS=(
    --log-interval 100
    --save-interval PATH
    --eval-interval 1000
    --save PATH
    --load PATH
    --eval-iters 10
    --tensorboard-dir PATH
)

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GROUP_0_ARGS[@]} \
    ${GROUP_1_ARGS[@]} \
    ${GROUP_2_ARGS[@]} \
    ${GROUP_3_ARGS[@]}
