// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/offload.h"

#include "schedules/scenario/plan_names.h"

namespace rehearse {

Offload offload_of(const JsonValue& value) {
  return {.optimizer = value.text == kOffloadNames[1],
          .activations = value.text == kOffloadNames[2]};
}

std::string offload_json(const Offload& offload) {
  return json_quoted(offload_text(offload));
}

std::string offload_text(const Offload& offload) {
  return std::string(kOffloadNames[offload.optimizer ? 1 : offload.activations ? 2 : 0]);
}

}  // namespace rehearse
