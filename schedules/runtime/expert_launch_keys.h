// SPDX-License-Identifier: Apache-2.0
// The section `expert_launches` of a runtime's file: its keys, and how it is read.
#pragma once

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/runtime/expert_launches.h"

namespace rehearse {

extern const KeyTable kExpertLaunchesTable;
// What the section says into `launches`; what it leaves out stays. REQUIRES: checked by the table.
void take_expert_launches(const JsonValue& section, ExpertLaunches& launches);

}  // namespace rehearse
