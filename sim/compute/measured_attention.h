// SPDX-License-Identifier: Apache-2.0
// Attention's times of one machine, read from its own points: of a CPU's and of a GPU's kernels.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "schedules/body/body.h"
#include "sim/cluster/calibration.h"
#include "sim/cost/measured_curve.h"

namespace rehearse::sim {

// Sizes of one rank's attention: what a node does not say. Where it is in parts, `sequence` is a
// part's.
struct AttentionSize {
  std::int64_t samples = 1, heads = 1, head_dim = 1, sequence = 1;
  std::int64_t kv_heads = 1;
};

// Masked: the whole, or the part in which queries meet their own keys. Else queries that meet a
// block of keys, all of which they see.
struct AttentionForm {
  bool backward = false, causal = true, part = false;
  bool half = false;  // of a ring's block: half of its queries or of its keys take part
  auto operator<=>(const AttentionForm&) const = default;
  // As a node counts them: two products forward and five backward, under the mask half of each.
  double flops(const AttentionSize& size) const {
    return (backward ? 5.0 : 2.0) * (causal || half ? 1.0 : 2.0) *
           static_cast<double>(size.samples * size.sequence) *
           static_cast<double>(size.sequence * size.heads) * static_cast<double>(size.head_dim);
  }
};

class MeasuredAttention {
 public:
  // `sms`: heads and samples are worked off in tiles of 128 queries, so many at a time (a CPU: 1).
  MeasuredAttention(const Calibration& calibration, std::int32_t sms);

  // Time per head over the sequence length, times heads and samples, as far as they fill the SMs.
  // Empty: nothing of this form was measured.
  std::optional<CurveTime> time(AttentionForm form, const AttentionSize& size) const;
  // A node's. Tables that do not know a part masked take the whole of its size for it; those that
  // do not know one without a mask, the rate of the whole.
  std::optional<CurveTime> time(const Node& node, const AttentionSize& size) const;

 private:
  struct Curve {
    std::vector<std::int64_t> at;  // ascending
    std::vector<double> time_us;   // of one head of one sample, among many
  };
  double busy(std::int64_t heads, std::int64_t sequence) const;

  std::int32_t sms_;
  std::map<AttentionForm, std::map<std::int64_t, Curve>> curves_;  // by head_dim, by sequence
};

}  // namespace rehearse::sim
