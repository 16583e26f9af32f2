// SPDX-License-Identifier: Apache-2.0
// The end of a step on one rank: sums of squares per tensor, and optimizers over flat shards.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// Sum of squares in fp64, in element order.
double sum_of_squares(std::span<const float> values);

// min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 where clip_norm is 0.
float clip_factor(double norm, double clip_norm);

// AdamW (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2) as torch.optim.AdamW orders it:
// p *= 1 - lr wd; m, v; p -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps). `step` counts from 0.
void adamw(std::span<float> parameters, std::span<const float> gradients, std::span<float> m,
           std::span<float> v, const TrainOptions& options, double learning_rate, double decay,
           std::int64_t step, float scale);

// Lion (Chen et al., arXiv 2302.06675, algorithm 2), with decoupled weight decay:
// c = b1 m + (1-b1) g; p -= lr (sign(c) + wd p); m = b2 m + (1-b2) g. sign(0) is 0.
void lion(std::span<float> parameters, std::span<const float> gradients, std::span<float> m,
          const TrainOptions& options, double learning_rate, double decay, float scale);

// That of `rule`. REQUIRES: it is one; `v` is empty where there is one moment.
void update(UpdateRule rule, std::span<float> parameters, std::span<const float> gradients,
            std::span<float> m, std::span<float> v, const TrainOptions& options,
            double learning_rate, double decay, std::int64_t step, float scale);

// Warm-up from 0 (step s of w: (s+1)/w), then constant, linear or cosine down to min_learning_rate.
double learning_rate(const TrainOptions& options, std::int64_t step);

}  // namespace rehearse::exec
