// SPDX-License-Identifier: Apache-2.0
// Parameter tensors of one rank and segments of every stage: what passes and bodies measure by.
#pragma once

#include <string_view>
#include <vector>

#include "schedules/body/kernel.h"
#include "schedules/ir/schedule.h"
#include "schedules/model/parts.h"
#include "schedules/scenario/layout.h"

namespace rehearse {

inline constexpr std::int64_t kAlignment = 256;  // [B] of every value, tensor in a slab, workspace
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// One parameter tensor of a segment as one rank holds it: a part of the model (parts.h), cut.
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
  // Where it stands in the parts of its segment, and how many of them it holds: a framework has the
  // matrices of all experts in one. No part: a table beside the model's (of prediction layers).
  std::int32_t part = 0, parts = 1;
};
// In the order of the model: an embedding's table and positions, a layer's norm1, qkv, ..., a
// head's final norm and, where it is not tied, its table. From layer L on: a prediction layer's.
std::vector<ParameterTensor> segment_parameters(const Layout& layout, SegmentKind kind,
                                                std::int64_t layer);

// Rows that one of t ranks has of a block of a part that is cut by rows, and of all its blocks.
std::int64_t rows_of_block(const ModelPart& part, std::size_t block, std::int64_t t);
std::int64_t rows_of_rank(const ModelPart& part, std::int64_t t);

// What a rank of a grid (Plan::tensor_parallel_2d, r rows and c columns) has of a part: `panels`
// arrays [rows, columns], one behind the other.
//
//   a product [out, in]  a c-th of the rows (of each block, as tp cuts them), by the rank's column;
//                        an r-th of the columns, by its row, in lcm(r, c) / r panels, each as it is
//                        sent around
//   a table              an r-th of the rows, by the rank's row; a c-th of the columns
//   a vector             a c-th as of a product's rows, of it an r-th by the rank's row
struct GridPart {
  std::int64_t rows = 0, columns = 1, panels = 1;
  std::int64_t elements() const { return rows * columns * panels; }
};
// REQUIRES: layout.plan has a grid.
GridPart grid_part(const Layout& layout, const ModelPart& part);
// A table, of which ranks of one column have different rows.
bool is_grid_table(const ModelPart& part);

// The parts of such a segment, whole.
std::vector<ModelPart> segment_parts(const Transformer& model, SegmentKind kind,
                                     std::int64_t layer);

// What every stage holds: stage s of the plan's chunks; stage 0 the embedding, the last the head,
// plan.prediction_stage the layers that predict further tokens.
std::vector<std::vector<SegmentInfo>> stage_segments(const Layout& layout, std::int32_t stages);

}  // namespace rehearse
