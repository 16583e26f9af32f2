// SPDX-License-Identifier: Apache-2.0
// What rows of a plan's keys are written with: what `run` does, what a value asks for, and what of
// a plan makes it meaningless.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/base/key_use.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan.h"

namespace rehearse::keys {

// What `run` does.
constexpr RunUse priced(std::string_view runs, std::string_view example, std::string_view about) {
  return {KeyUse::Priced, runs, example, about};
}
constexpr RunUse said(std::string_view runs, std::string_view example, std::string_view about) {
  return {KeyUse::Said, runs, example, about};
}
constexpr RunUse no_meaning(std::string_view why) {
  return {KeyUse::NoMeaning, "", "", why};
}

// What makes a value meaningless.
inline bool on(const JsonValue& value) {
  return value.boolean;
}
inline bool any(const JsonValue&) {
  return true;
}
inline bool one_replica(const Plan& plan) {
  return plan.replicas() == 1;
}
inline bool no_tensor_parallel(const Plan& plan) {
  return plan.tensor_parallel == 1;
}
// Its order consists of pairs, or a file's may.
inline bool has_pairs(const Plan& plan) {
  const ScheduleInfo* info = find_schedule(plan.schedule);
  return plan.pipeline_parallel > 1 && (info == nullptr || info->pairing == Pairing::Always);
}
inline bool not_chunked(const Plan& plan) {
  return plan.overlap_tensor_parallel != TensorOverlap::Chunked && plan.tensor_parallel > 1;
}
inline bool unsharded(const Plan& plan) {
  return plan.zero_stage == 0;
}

inline std::string number(std::int64_t value) {
  return std::to_string(value);
}
inline std::string nonzero(std::int64_t value) {
  return value == 0 ? "null" : number(value);
}

}  // namespace rehearse::keys
