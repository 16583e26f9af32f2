// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021, arXiv 2104.09864) as a description, and the angles that follow
// from it. No JSON (rope_config.cc), no kernels.
#pragma once

#include <cstdint>
#include <vector>

namespace rehearse {

// transformers, modeling_rope_utils.py: one function each.
enum class RotaryKind : std::uint8_t { Default, Linear, Dynamic, Yarn, LongRope, Llama3 };

struct RotaryConfig {
  RotaryKind kind = RotaryKind::Default;
  double theta = 10000;
  double share = 1;          // of a head that rotates: its first columns
  bool interleaved = false;  // pairs (0, 1), (2, 3), ... instead of (0, d/2), (1, d/2 + 1), ...
  double factor = 0;         // 0: max_positions / original_positions
  std::int64_t original_positions = 0;              // 0: max_positions
  double low_frequency = 1, high_frequency = 4;     // llama3
  double attention_factor = 0;                      // yarn, longrope; 0: by the formula
  double beta_fast = 32, beta_slow = 1;             // yarn
  double magnitude = 0, magnitude_all = 0;          // yarn: mscale, mscale_all_dim
  bool truncate = true;                             // yarn
  std::vector<double> short_factors, long_factors;  // longrope
  bool operator==(const RotaryConfig&) const = default;
};

// Pair i of a head turns by position * inverse_frequency[i]; cosine and sine are multiplied by
// attention_factor.
struct Rotary {
  std::vector<double> inverse_frequency;  // (rotary_dim / 2)
  double attention_factor = 1;
  std::int64_t rotary_dim = 0;  // even; columns behind it do not rotate
  bool interleaved = false;
};

// Columns of a head that rotate: even, since an odd share is rounded up.
std::int64_t rotary_dim(const RotaryConfig& config, std::int64_t head_dim);

// `max_positions` is the model's; the sequence's length counts for dynamic and longrope. REQUIRES:
// longrope: rotary_dim / 2 factors of each list.
Rotary rotary_of(const RotaryConfig& config, std::int64_t head_dim, std::int64_t max_positions,
                 std::int64_t sequence_length);

}  // namespace rehearse
