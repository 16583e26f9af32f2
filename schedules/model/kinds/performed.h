// SPDX-License-Identifier: Apache-2.0
// What `run` needs of a mapped model, and no cost depends on: the activation, epsilons, positions,
// what a router does with its scores. A mapping whose `run` names a dialect has them read by that
// dialect's rules, which also say which keys are not performed.
#pragma once

#include <string>

#include "schedules/model/config/hf_config.h"
#include "schedules/model/kinds/mapping.h"

namespace rehearse {

// Fills in `file`, as read_mapped left it, and takes back that its model_type is priced alone; a
// model with layers that `run` does not perform, or of a mapping without `run`, stays as it is.
void read_performed(const Mapping& mapping, const JsonValue& object, const std::string& key,
                    const JsonReport& report, ModelFile& file);

}  // namespace rehearse
