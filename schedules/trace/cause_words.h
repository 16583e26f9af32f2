// SPDX-License-Identifier: Apache-2.0
// What a cause of idleness is called for people.
#pragma once

#include <string_view>

#include "schedules/trace/trace.h"

namespace rehearse {

// One GPU sends nothing: what it waits for are copies from and to its host, which count as
// communication.
inline std::string_view cause_word(std::size_t cause, std::int32_t gpus) {
  const bool copies = gpus == 1 && cause == static_cast<std::size_t>(IdleCause::Communication);
  return copies ? std::string_view("host copies") : kIdleCauseNames[cause];
}

}  // namespace rehearse
