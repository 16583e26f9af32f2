// SPDX-License-Identifier: Apache-2.0
// What the kinds of a trace's ops are called: `SEND_F`, `GATHER_F`, `LOSS`.
#pragma once

#include <string>

#include "schedules/ir/op.h"

namespace rehearse {

std::string kind_name(OpKind kind, Payload payload);

}  // namespace rehearse
