// SPDX-License-Identifier: Apache-2.0
// The plan's keys of experts: how they are split, how tokens come to them. One reason in one line
// where that is not possible.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// Says that `key` of the plan is wrong, or (unsupported) not built yet.
using PlanFailure =
    std::function<void(std::string_view key, const std::string& what, bool unsupported)>;

struct ExpertContext {
  const std::string& from;  // the file that the keys stand in: relative paths begin there
  const Transformer* model = nullptr;        // nullptr: a schedule without one
  std::span<const MeasuredRouting> known{};  // read before, by path; others are read from files
};

// Reads one value of expert_routing: a word, a number, or file:PATH of what a run wrote. Error:
// what is wrong with it.
Result<> read_expert_routing(const JsonValue& given, const ExpertContext& context, Plan& plan);

// Reads them into `plan`, whose other sizes, order of ranks and runtime are read. Legality:
// NVIDIA/Megatron-LM megatron/core/transformer/ transformer_config.py and parallel_state.py.
void read_expert_plan(const JsonValue& json, const ExpertContext& context, Plan& plan,
                      const PlanFailure& fail);

// Which default `expert_tensor_parallel` has, and why, where the plan leaves it out and experts are
// spread over tensor-parallel ranks: it depends on the number of replicas. Else empty.
std::string expert_default_note(const JsonValue& json, const Transformer& model, const Plan& plan);

// Most rows of a rank over their mean, whether more of them fail a run or are dropped; 0: all may
// come.
double row_limit(const Plan& plan);

}  // namespace rehearse
