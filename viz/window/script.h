// SPDX-License-Identifier: Apache-2.0
// Events as text, one per line: what a window records and a test replays.
//
//   key W [shift] [ctrl]    text 3B2         tick SECONDS        resize WIDTH HEIGHT [SCALE]
//   move X Y    press X Y [BUTTON] [shift]   release X Y [BUTTON]   double X Y
//   wheel X Y [shift] [ctrl]                 do COMMAND [WORDS]      # a comment
//
// Commands and what they are given: state/commands.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "viz/window/keys.h"
#include "viz/window/session.h"

namespace rehearse::viz {

// Errors: "NAME:LINE: what is wrong".
Result<std::vector<Event>> parse_script(std::string_view text, const std::string& name);
std::string to_script(const Event& event);  // with its line end

}  // namespace rehearse::viz
