// SPDX-License-Identifier: Apache-2.0
// Hardware, models and collectives of the compute tests, written out: no files but the scalars.
#pragma once

#include <cmath>

#include "sim/compute/body_cost.h"

namespace rehearse::sim::fixture {

inline constexpr const char* kKernels = "scenarios/kernels";

// A100-SXM4-80GB: stas00/ml-engineering compute/accelerator/README.md; 2039 GB/s: llm-analysis.
inline Cluster a100_node() {
  Cluster cluster;
  cluster.id = "a100";
  cluster.gpu.name = "A100-SXM4-80GB";
  cluster.gpu.architecture = "ampere";
  cluster.gpu.sm_count = 108;
  cluster.gpu.peaks = {.fp32_vector = 19.5e12, .fp16 = 312e12, .bf16 = 312e12};
  cluster.gpu.memory_bandwidth = BytesPerSecond{2039e9};
  cluster.gpu.tdp_w = 400;
  cluster.gpus_per_node = 8;
  return cluster;
}

// H100-SXM5-80GB, the same source.
inline Cluster h100_node(double tdp_w = 700) {
  Cluster cluster;
  cluster.id = "h100";
  cluster.gpu.name = "H100-SXM5-80GB";
  cluster.gpu.architecture = "hopper";
  cluster.gpu.sm_count = 132;
  cluster.gpu.peaks = {
      .fp32_vector = 66.9e12, .fp16 = 989.4e12, .bf16 = 989.4e12, .fp8 = 1978.9e12};
  cluster.gpu.memory_bandwidth = BytesPerSecond{3350e9};
  cluster.gpu.tdp_w = tdp_w;
  cluster.gpus_per_node = 8;
  return cluster;
}

// GPT of Korthikanti et al. (arXiv 2205.05198), Table 3.
inline Transformer gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  Transformer model;
  model.model_type = "gpt2";
  model.layers = layers;
  model.hidden = hidden;
  model.heads = model.kv_heads = heads;
  model.head_dim = hidden / heads;
  model.ffn_hidden = 4 * hidden;
  model.vocabulary = 51200;
  model.max_positions = 2048;
  return model;
}

// Tensor parallel 8 inside one node, unfused attention with dropout, as that paper ran.
inline Plan megatron_plan(std::int32_t micro_batch) {
  Plan plan;
  plan.tensor_parallel = 8;
  plan.micro_batch = micro_batch;
  plan.global_batch = micro_batch;
  plan.sequence_length = 2048;
  plan.padded_vocabulary = 51200;
  plan.flash_attention = false;
  plan.attention_kernel = AttentionKernel::Unfused;
  plan.dropouts = {0.1, 0.1, 0.1};
  return plan;
}

// All-reduce over 8 A100 of one node: 74.3 us + 2 (n-1)/n S / 225 GB/s (vTrain's table, fitted by
// measured/all_reduce_fits.json); gathers and scatters 0.6 of the latency and half of the volume.
inline CollectiveUse a100_collective(NodeKind kind, Axis, Bytes payload) {
  constexpr double kLatency = 74.3e3, kBytesPerNs = 225;
  const double half = 7.0 / 8 * static_cast<double>(payload.value) / kBytesPerNs;
  const double ns = kind == NodeKind::AllReduce ? kLatency + 2 * half : 0.6 * kLatency + half;
  return {.time = Nanoseconds{std::llround(ns)}};
}

}  // namespace rehearse::sim::fixture
