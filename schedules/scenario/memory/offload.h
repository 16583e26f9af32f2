// SPDX-License-Identifier: Apache-2.0
// What a plan keeps in the memory of the host, in the words of files.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// What may leave the device, a member of Offload each; and the words of a plan, which has one of
// them or a list.
inline constexpr std::array<std::string_view, 3> kOffloadParts{"optimizer", "activations",
                                                               "parameters"};
inline constexpr std::array<std::string_view, 4> kOffloadWords{"none", "optimizer", "activations",
                                                               "parameters"};

// REQUIRES: `value` is one of kOffloadWords, or a list of kOffloadParts.
Offload offload_of(const JsonValue& value);

// As a plan says it, in JSON: "none", "optimizer", ["optimizer", "parameters"]; and for people:
// "optimizer + parameters".
std::string offload_json(const Offload& offload);
std::string offload_text(const Offload& offload);

// What keeps the plan from having its parameters in host memory; empty: nothing. REQUIRES: the
// plan's mesh and runtime are read.
std::string unfit_offload(const Plan& plan);

}  // namespace rehearse
