#!/bin/bash
# bigscience-workshop/bigscience, train/tr11-176B-ml/tr11-176B-ml.slurm, 9e64edec2ad1
#SBATCH --nodes=24
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8

export CUDA_LAUNCH_BLOCKING=1
export NCCL_ASYNC_ERROR_HANDLING=1
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
NNODES=$SLURM_NNODES
GPUS_PER_NODE=8
TODAY=`date`
config_json="./ds_config.$SLURM_JOB_ID.json"
cat <<EOT > $config_json
{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 2048, "gradient_clipping": 1.0, "zero_optimization": {"stage": 0}, "bf16": {"enabled": true}}
EOT
ARGS=" \
    --tensor-model-parallel-size 4 \
    --pipeline-model-parallel-size 12 \
    --num-layers 70 \
    --hidden-size 14336 \
    --num-attention-heads 112 \
    --seq-length 2048 \
    --max-position-embeddings 2048 \
    --micro-batch-size 2 \
    --rampup-batch-size 192 16 9_765_625 \
    --global-batch-size 2048 \
    --train-samples 220_000_000 \
    --tokenizer-type PretrainedFromHF \
    --tokenizer-name-or-path PATH \
    --init-method-std 0.0048 \
    --embed-layernorm \
    --sync-tp-duplicated-parameters \
    --bf16 \
    --seed 42 \
    --position-embedding-type alibi \
    --checkpoint-activations \
    --abort-on-unmet-fused-kernel-constraints \
    --kill-switch-path PATH \
    --pad-vocab-size-to 250880 \
    --optimizer adam \
    --adam-beta1 0.9 \
    --adam-beta2 0.95 \
    --adam-eps 1e-8 \
    --lr 6e-5 \
    --min-lr 6e-6 \
    --lr-decay-style cosine \
    --lr-decay-samples 200_000_000 \
    --lr-warmup-samples 183_105 \
    --clip-grad 1.0 \
    --weight-decay 1e-1 \
    --exit-duration-in-mins 5990 \
    --log-interval 1 \
    --save-interval PATH \
    --eval-interval 1000 \
    --eval-iters 1 \
    --tensorboard-dir PATH \
    --tensorboard-queue-size 5 \
    --log-timers-to-tensorboard \
    --log-batch-size-to-tensorboard \
    --log-validation-ppl-to-tensorboard \
    --save PATH \
    --load PATH \
    --train-weighted-split-paths-path PATH \
    --valid-weighted-split-paths-path PATH \
    --num-workers 2 \
    --valid-num-workers 0 \
    --data-impl mmap \
    --distributed-backend nccl \
    --deepspeed \
    --zero-stage 0 \
    --deepspeed-activation-checkpointing \
    "
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --rdzv_endpoint $MASTER_ADDR:6000"
export CMD=" \
    `pwd`/pretrain_gpt.py \
    --pp-partition-method 'type:transformer|embedding' \
    --deepspeed_config ${config_json} \
    $ARGS \
    "
echo $CMD
python tools/check.py --quiet
clear; srun --label --jobid $SLURM_JOBID bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee -a $LOG/main.txt
