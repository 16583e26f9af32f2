// SPDX-License-Identifier: Apache-2.0
// The rows that a scenario's tables of keys are made of, the largest sizes that files may say, and
// the tables that others hold.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "schedules/base/json_keys.h"

namespace rehearse::keys {

inline constexpr double kMaxRanks = 1 << 20;       // ten times the largest cluster
inline constexpr double kMaxPositions = 4096;      // of a pipeline
inline constexpr double kMaxMicrobatch = 1 << 24;  // samples, and micro-batches of a schedule alone
inline constexpr double kMaxTokens = 1 << 26;      // of one sequence
inline constexpr double kMaxBatch = 1LL << 40;
inline constexpr double kMaxBytes = 1LL << 50;

constexpr KeySpec size(std::string_view name, std::string_view about, double max = kMaxRanks) {
  return {
      .name = name, .types = kInteger, .min = 1, .max = max, .searchable = true, .about = about};
}
constexpr KeySpec flag(std::string_view name, std::string_view about) {
  return {.name = name, .types = kBool, .searchable = true, .about = about};
}
template <std::size_t N>
constexpr KeySpec choice(std::string_view name, const std::array<std::string_view, N>& choices,
                         std::string_view about, std::span<const std::string_view> later = {}) {
  return {.name = name,
          .types = kString,
          .choices = choices,
          .later = later,
          .searchable = true,
          .about = about};
}

inline constexpr std::string_view kOverlapKey = "overlap";
extern const KeyTable kPrecision, kOverlap, kPlan, kMoeLayer;

}  // namespace rehearse::keys
