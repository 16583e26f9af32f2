// SPDX-License-Identifier: Apache-2.0
// rehearse simulate --sweep KEY=V,V,...: a scenario predicted for every value of a key.
#pragma once

#include <string>

#include "cli/open.h"

namespace rehearse::cli {

struct Sweep {
  ScenarioFlags scenario;
  std::string key_values;  // "plan.micro_batch=1,2,4"; values as --set takes them
  bool csv = false, json = false;
  std::string svg;
};

// Returns the exit code: 1 where no value can be performed.
int sweep(const Sweep& sweep);

}  // namespace rehearse::cli
