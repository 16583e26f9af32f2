// SPDX-License-Identifier: Apache-2.0
// Names of the viewer's keys, for scripts of events and for pages.
#pragma once

#include <string_view>

#include "viz/window/session.h"

namespace rehearse::viz {

// Key of a letter or a name ("W", "Home", "/"); None where there is none.
Key key_named(std::string_view name);
std::string_view name_of(Key key);

}  // namespace rehearse::viz
