// SPDX-License-Identifier: Apache-2.0
// What launches a plan, in one line: the flags of the framework whose profile prices it.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/base/result.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {

// The framework's flags that say the plan, without those of the model, and without what it takes by
// itself; keys that no flag says are named behind them. Where nothing can be said: "none: why".
// `framework`: its name, where one was asked for; else that of the plan's profile. `model_json`,
// `gpus_per_node`: as emit_flags takes them. Errors: a framework's file cannot be read.
Result<std::string> launch_flags(const Scenario& scenario, const std::string& framework,
                                 const std::string& model_json, std::int32_t gpus_per_node);

// A scenario's model, a path or an object as JSON, as an object; empty: there is no such file.
std::string model_object(const std::string& model_json);

}  // namespace rehearse
