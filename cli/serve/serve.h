// SPDX-License-Identifier: Apache-2.0
// rehearse serve: commands for agents, over the Model Context Protocol.
#pragma once

#include "cli/options.h"

namespace rehearse::cli {

Command serve_command();

}  // namespace rehearse::cli
