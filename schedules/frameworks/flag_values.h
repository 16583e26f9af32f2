// SPDX-License-Identifier: Apache-2.0
// The flags of one import by their names in formulas: each converted as its row says, the last one
// where it is repeated, the framework's own value where it is left out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schedules/frameworks/framework_file.h"
#include "schedules/frameworks/setting.h"

namespace rehearse {

struct GivenFlag {
  Json value;
  const Setting* setting = nullptr;
};

// "train.sh:41: --num-layers: what"
Error setting_error(const Setting& setting, const std::string& what);

// What the settings say of flags that have a row. `warnings`: flags that are said twice.
Result<std::map<std::string, GivenFlag>> flag_values(const Framework& framework,
                                                     const std::vector<Setting>& settings,
                                                     std::vector<std::string>& warnings);

}  // namespace rehearse
