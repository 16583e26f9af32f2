// SPDX-License-Identifier: Apache-2.0
// What every process is told when a run ends early: why, by whom, and where to leave its records.
#pragma once

#include <cstdint>
#include <string>

#include "exec/processes/diagnosis.h"

namespace rehearse::exec {

// The body of an abort: where flight records go, and the line that names the culprit.
std::string abort_bytes(const std::string& flight, const FailureAttribution& attribution);
struct AbortNotice {
  std::string flight, line;
  std::int32_t exit_code = 3;
};
// Any bytes give a line that is fit to be printed, and an exit code of 1 to 3: an abort is no
// success.
AbortNotice parse_abort(const std::string& bytes);

}  // namespace rehearse::exec
