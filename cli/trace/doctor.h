// SPDX-License-Identifier: Apache-2.0
// rehearse doctor: what is wrong with a real run.
#pragma once

#include "cli/options.h"

namespace rehearse::cli {

Command doctor_command();

}  // namespace rehearse::cli
