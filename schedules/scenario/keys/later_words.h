// SPDX-License-Identifier: Apache-2.0
// What docs/scenario.md names of a plan and no code has yet: refused as that, not as a slip.
#pragma once

#include <array>
#include <string_view>

namespace rehearse::keys {

inline constexpr std::array<std::string_view, 1> kPlanLater{
    "padding",
};
inline constexpr std::array<std::string_view, 1> kRuntimeLater{"peft"};

}  // namespace rehearse::keys
