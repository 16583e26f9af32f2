// SPDX-License-Identifier: Apache-2.0
// What a measured case reports of its experts in the words of its source (`reported.experts`), for
// keys of the plan that the case leaves out: its form had none for them.
#pragma once

#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// `item`: the case. Takes the dispatcher by its name (Megatron-LM's alltoall, allgather, flex with
// DeepEP or HybridEP), and routing that is "balanced by construction".
void take_reported_experts(const JsonValue& item, Plan& plan);

}  // namespace rehearse::sim
