// SPDX-License-Identifier: Apache-2.0
// The collectives inside compute ops.
#pragma once

#include <vector>

#include "exec/body/body_runner.h"

namespace rehearse::exec {

// apart: the parts of its members lie apart (Exchange::pitch).
struct BodyMeeting {
  Axis axis{};
  OpKind kind{};
  bool apart = false;
};

// The meetings of all bodies, as often as they stand there.
std::vector<BodyMeeting> meetings(const BodyRunner& runner);

}  // namespace rehearse::exec
