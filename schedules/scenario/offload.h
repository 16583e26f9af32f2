// SPDX-License-Identifier: Apache-2.0
// What a plan keeps in the memory of the host, in the words of files.
#pragma once

#include <string>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// REQUIRES: `value` is one of kOffloadNames.
Offload offload_of(const JsonValue& value);

// As a plan says it, in JSON: "none", "optimizer"; and for people.
std::string offload_json(const Offload& offload);
std::string offload_text(const Offload& offload);

}  // namespace rehearse
