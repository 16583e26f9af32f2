// SPDX-License-Identifier: Apache-2.0
// Models of random scenarios, as a scenario's `model` says them.
#pragma once

#include <string>

#include "schedules/model/model.h"
#include "tests/random_scenario.h"

namespace rehearse::sim {

std::string made_up_model(Chance& chance);
std::string shipped_model(Chance& chance);  // one of some that are shipped
// What a plan must know of its model. Models are read once each.
const Transformer& known_model(const std::string& model);

}  // namespace rehearse::sim
