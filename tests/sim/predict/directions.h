// SPDX-License-Identifier: Apache-2.0
// Changes of a scenario, each with the way in which a step and memory must go with it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tests/random_scenario.h"

namespace rehearse::sim {

enum class Way { Any, NoMore, NoLess, Same };

// A change that a scenario may not allow: then it is false.
using Change = bool (*)(RandomScenario& to);

struct Direction {
  std::string_view name;
  Change change;
  Way step = Way::Any, memory = Way::Any;
  // A share of the step, with its reason where it is not 0. Memory has the allocator's.
  double step_slack = 0;  // relative
  std::string_view why{};
  // What the report of the changed scenario says where it goes the other way; "": nothing.
  std::string (*note)(const RandomScenario& changed) = nullptr;
};

// Why a change may make a step a little longer that must not: its share is kTurns.
inline constexpr std::string_view kTurnsWhy =
    "which of two transfers goes first is decided as they come";

std::span<const Direction> directions();

}  // namespace rehearse::sim
