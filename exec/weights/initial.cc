// SPDX-License-Identifier: Apache-2.0
#include "exec/weights/initial.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "schedules/base/random.h"

namespace rehearse::exec {
namespace {

enum class Rule : std::uint8_t { Zero, One, Normal, Residual };

// Roles by the ends of Hugging Face's names (parameters.cc), or our own where a family has none.
Rule rule_of(std::string_view name) {
  if (name.ends_with("bias")) return Rule::Zero;
  const std::string_view module = name.substr(0, name.rfind('.'));
  const std::size_t dot = module.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? module : module.substr(dot + 1);
  if (last.starts_with("ln_") || last.find("norm") != std::string_view::npos) return Rule::One;
  constexpr std::array<std::string_view, 8> kResidual{
      "c_proj", "o_proj", "out_proj", "down_proj", "dense", "dense_4h_to_h", "projection", "down"};
  return std::ranges::find(kResidual, last) != kResidual.end() ? Rule::Residual : Rule::Normal;
}

std::uint64_t hash(std::string_view text) {  // FNV-1a
  std::uint64_t value = 14695981039346656037ULL;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return value;
}

// In (0, 1): 53 bits and a half, never 0.
double uniform(std::uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// Box and Muller (1958), the cosine of each pair.
double normal(std::uint64_t key, std::uint64_t k) {
  const double radius = std::sqrt(-2.0 * std::log(uniform(split_mix(key, 2 * k))));
  return radius * std::cos(2.0 * std::numbers::pi * uniform(split_mix(key, 2 * k + 1)));
}

}  // namespace

std::function<double(const std::string&, std::int64_t)> initial_values(const Transformer& model,
                                                                       std::int64_t seed) {
  struct Tensor {  // of the name that was asked for last
    std::string name;
    Rule rule = Rule::Zero;
    std::uint64_t key = 0;
  };
  const double deviation = model.initializer_range;
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(model.layers));
  const double norm = model.norm_from_one ? 0.0 : 1.0;
  return [deviation, residual, norm, seed, at = Tensor{}](const std::string& name,
                                                          std::int64_t element) mutable {
    if (name != at.name) {
      at = {name, rule_of(name), split_mix(static_cast<std::uint64_t>(seed), hash(name))};
    }
    switch (at.rule) {
      case Rule::Zero:
        return 0.0;
      case Rule::One:
        return norm;
      case Rule::Normal:
        return deviation * normal(at.key, static_cast<std::uint64_t>(element));
      case Rule::Residual:
        return residual * normal(at.key, static_cast<std::uint64_t>(element));
    }
    return 0.0;
  };
}

}  // namespace rehearse::exec
