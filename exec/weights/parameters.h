// SPDX-License-Identifier: Apache-2.0
// Which parameter lies where: from (stage, segment, tensor) to a place in a rank's bucket, and from
// a shard's element to the element of the whole tensor.
#pragma once

#include <string>
#include <vector>

#include "schedules/body/sizes.h"
#include "schedules/ir/schedule.h"

namespace rehearse::exec {

// One tensor as the ranks of one position hold it.
struct TensorPlace {
  Stage stage{};
  std::int32_t segment = 0;  // in its stage
  std::int32_t tensor = 0;   // in segment_parameters() of that segment
  std::int32_t layer = -1;
  ParameterTensor what;
  ModelPart part;  // the same, whole: [part.rows(), part.in] as PyTorch
  BucketId bucket{};
  std::int64_t offset = 0;  // in its bucket [elements]
  std::int32_t slot = 0;    // its first place in the vector of norms
  std::string name;         // Hugging Face's: "h.0.attn.c_attn.weight", "model.norm.weight"
};

// The tensors of all positions, in model order. A tied table has one place per position that uses
// it, all with one slot and one name. REQUIRES: a schedule of lower().
std::vector<TensorPlace> place_tensors(const Layout& layout, const Schedule& schedule);

// Which part of a tensor a rank holds is one number: its place on tp; of experts, which are cut
// over e q ranks, q (place on ep) + place on etp.

// Columns of a part.
std::int64_t part_columns(const Layout& layout, const TensorPlace& place);

// Element of the whole tensor (row-major) that element `local` of part `coordinate` is; -1: the
// padding of the vocabulary.
std::int64_t whole_element(const Layout& layout, const TensorPlace& place, std::int32_t coordinate,
                           std::int64_t local);

// Leading elements that tp rank `coordinate` counts in the norm; the rest are counted elsewhere:
// replicated tensors at coordinate 0, shared key/value heads at the first rank that holds them.
std::int64_t counted_elements(const Layout& layout, const TensorPlace& place,
                              std::int32_t coordinate);

// Elements [begin, end) of a part, and the number of the norm's vector that takes their squares:
// all that are counted, or each matrix of each expert.
struct NormPart {
  std::int64_t begin = 0, end = 0;
  std::int32_t slot = 0;
};
std::vector<NormPart> norm_parts(const Layout& layout, const TensorPlace& place,
                                 std::int32_t coordinate);
// Numbers of the norm's vector that a segment has.
std::int32_t norm_slots(const Layout& layout, const SegmentInfo& segment);

}  // namespace rehearse::exec
