// SPDX-License-Identifier: Apache-2.0
// A transformer in float64: loss, gradients and AdamW, each formula written once and plainly, to
// judge the executor by. Shares no code with exec/; attention stores s x s, nothing is tiled.
//
// Blocks: GPT-2 (Radford et al. 2019; learned positions, LayerNorm, GELU, biases, tied head) and
// Llama (Touvron et al. 2023, arXiv 2302.13971; RoPE, RMSNorm, SwiGLU, grouped queries), by the
// switches of Transformer. No experts, ALiBi, latent or windowed attention.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "schedules/model/model.h"

namespace rehearse::reference {

using Tensor = std::vector<double>;
// By Hugging Face's names, matrices [out, in] row-major; "qkv_proj" has the rows of q, k and v,
// "gate_up_proj" those of gate and up.
using Tensors = std::map<std::string, Tensor>;

// All parameters of the model, zero.
Tensors parameters_of(const Transformer& model);

struct Batch {
  std::int64_t samples = 0, sequence = 0;
  std::vector<std::int32_t> inputs, targets;  // (samples, sequence)
};

// Cross-entropy, the mean over all tokens [nats].
double loss(const Transformer& model, const Tensors& weights, const Batch& batch);

struct LossAndGradients {
  double loss = 0;
  Tensors gradients;
};
LossAndGradients differentiate(const Transformer& model, const Tensors& weights,
                               const Batch& batch);

// Euclidean norm of all tensors together.
double norm(const Tensors& tensors);

// AdamW (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2) as torch.optim.AdamW orders it; decay
// on every parameter.
struct AdamwOptions {
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
};
struct AdamwState {
  std::int64_t steps = 0;
  Tensors m, v;  // empty before the first step
};
void adamw(const AdamwOptions& options, const Tensors& gradients, Tensors& weights,
           AdamwState& state);

}  // namespace rehearse::reference
