// SPDX-License-Identifier: Apache-2.0
// Parameter tensors of one rank and segments of every stage: what passes and bodies measure by.
#pragma once

#include <string_view>
#include <vector>

#include "schedules/body/kernel.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"

namespace rehearse {

inline constexpr std::int64_t kAlignment = 256;  // [B] of every value, tensor in a slab, workspace
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// One parameter tensor of a segment as one rank holds it.
struct ParameterTensor {
  std::string_view name;  // for people: "norm1.weight"; files use Hugging Face names
  ParameterRole role = ParameterRole::None;
  bool bias = false;
  std::int64_t elements = 0;  // on this rank
  bool partial = false;       // its gradient is partial over tp (sequence parallelism)
  bool replicated = false;    // the same on every tp rank: counted by coordinate 0 in the norm
  bool matrix = false;        // takes weight decay even where only matrices do
  bool table = false;         // the vocabulary table
  bool expert = false;        // of routed experts: its gradient is summed over their own replicas
  // Numbers of the gradient norm's vector: one, or one per expert and matrix of the whole model's
  // layer, so that the norm is the same sum however experts are split.
  std::int32_t norm_slots = 1;

  // Of the matrix [out, in], over tp (of experts over etp): column-parallel products split their
  // outputs, biases with them; row-parallel ones their inputs.
  bool splits_rows() const {
    return role == ParameterRole::Qkv || role == ParameterRole::Query ||
           role == ParameterRole::QueryUp || role == ParameterRole::KeyValueUp ||
           role == ParameterRole::Up || role == ParameterRole::Sinks ||
           role == ParameterRole::ExpertUp || role == ParameterRole::SharedUp || splits_norm();
  }
  // The norm over all heads' columns: a rank has those of its heads.
  bool splits_norm() const {
    return !replicated && (role == ParameterRole::QueryNorm || role == ParameterRole::KeyNorm);
  }
  bool splits_columns() const {
    return !bias && (role == ParameterRole::Projection || role == ParameterRole::Down ||
                     role == ParameterRole::ExpertDown || role == ParameterRole::SharedDown);
  }
};
// In the order of the model: an embedding's table and positions, a layer's norm1, qkv, ..., a
// head's final norm and, where it is not tied, its table. From layer L on: a prediction layer's.
std::vector<ParameterTensor> segment_parameters(const Layout& layout, SegmentKind kind,
                                                std::int64_t layer);

// What every stage holds: stage s of the plan's chunks; stage 0 the embedding, the last the head,
// plan.prediction_stage the layers that predict further tokens.
std::vector<std::vector<SegmentInfo>> stage_segments(const Layout& layout, std::int32_t stages);

}  // namespace rehearse
