// SPDX-License-Identifier: Apache-2.0
// Every kind scales the plain inverse frequencies theta^(-2i/d), i = 0 ... d/2 - 1, in its own way.
#include "schedules/model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rehearse {
namespace {

using Frequencies = std::vector<double>;

// d of the formulas: it may be odd where a share of a head rotates.
std::int64_t rotated(const RotaryConfig& config, std::int64_t head_dim) {
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * config.share);
}

Frequencies plain(double theta, std::int64_t d) {
  Frequencies all(static_cast<std::size_t>((d + 1) / 2));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
  }
  return all;
}

// "NTK-aware" (modeling_rope_utils.py, _compute_dynamic_ntk_parameters): a larger base beyond the
// model's own positions.
double dynamic_theta(const RotaryConfig& config, std::int64_t d, double positions, double length) {
  const double n = static_cast<double>(d), longest = std::max(length, positions);
  return config.theta *
         std::pow(config.factor * longest / positions - (config.factor - 1), n / (n - 2));
}

// Peng et al. 2023 (arXiv 2309.00071), section 3.2: pairs that turn often keep their frequency,
// those that turn less than once are divided by the factor, between them a ramp.
void apply_yarn(const RotaryConfig& config, std::int64_t d, double factor, double original,
                Frequencies& all) {
  const double n = static_cast<double>(d);
  const auto pair_that_turns = [&](double times) {
    return n * std::log(original / (times * 2 * std::numbers::pi)) / (2 * std::log(config.theta));
  };
  double low = pair_that_turns(config.beta_fast), high = pair_that_turns(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, n - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    all[i] *= ramp / factor + (1 - ramp);
  }
}

double yarn_attention(const RotaryConfig& config, double factor) {
  const auto magnitude = [&](double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1;
  };
  if (config.magnitude > 0 && config.magnitude_all > 0) {
    return magnitude(config.magnitude) / magnitude(config.magnitude_all);
  }
  return magnitude(1);
}

// Llama 3.1 (modeling_rope_utils.py, _compute_llama3_parameters): long waves are divided by the
// factor, short ones kept, between them a linear mean.
void apply_llama3(const RotaryConfig& config, double factor, double original, Frequencies& all) {
  for (double& frequency : all) {
    const double turns = original * frequency / (2 * std::numbers::pi);
    const double width = config.high_frequency - config.low_frequency;
    const double kept = turns > config.high_frequency  ? 1
                        : turns < config.low_frequency ? 0
                        : width > 0                    ? (turns - config.low_frequency) / width
                                                       : 1;
    frequency *= (1 - kept) / factor + kept;
  }
}

}  // namespace

std::int64_t rotary_dim(const RotaryConfig& config, std::int64_t head_dim) {
  return (rotated(config, head_dim) + 1) / 2 * 2;
}

Rotary rotary_of(const RotaryConfig& config, std::int64_t head_dim, std::int64_t max_positions,
                 std::int64_t sequence_length) {
  const std::int64_t d = rotated(config, head_dim);
  const auto positions = static_cast<double>(max_positions);
  const auto length = static_cast<double>(sequence_length);
  const double original =
      config.original_positions > 0 ? static_cast<double>(config.original_positions) : positions;
  const double factor = config.factor > 0 ? config.factor : positions / original;
  const bool dynamic = config.kind == RotaryKind::Dynamic;
  Rotary made{.inverse_frequency =
                  plain(dynamic ? dynamic_theta(config, d, positions, length) : config.theta, d),
              .rotary_dim = rotary_dim(config, head_dim),
              .interleaved = config.interleaved};
  switch (config.kind) {
    case RotaryKind::Default:
    case RotaryKind::Dynamic:
      break;
    case RotaryKind::Linear:
      for (double& frequency : made.inverse_frequency) frequency /= factor;
      break;
    case RotaryKind::Yarn:
      apply_yarn(config, d, factor, original, made.inverse_frequency);
      made.attention_factor = yarn_attention(config, factor);
      break;
    case RotaryKind::LongRope: {  // Ding et al. 2024 (arXiv 2402.13753)
      const auto& factors = length > original ? config.long_factors : config.short_factors;
      for (std::size_t i = 0; i < made.inverse_frequency.size(); ++i) {
        made.inverse_frequency[i] /= factors[i];
      }
      if (factor > 1) made.attention_factor = std::sqrt(1 + std::log(factor) / std::log(original));
      break;
    }
    case RotaryKind::Llama3:
      apply_llama3(config, factor, original, made.inverse_frequency);
      break;
  }
  const bool given = config.attention_factor > 0 &&
                     (config.kind == RotaryKind::Yarn || config.kind == RotaryKind::LongRope);
  if (given) made.attention_factor = config.attention_factor;
  return made;
}

}  // namespace rehearse
