// SPDX-License-Identifier: Apache-2.0
// What the module of trees is made of.
#pragma once

#include "schedules/config_files/trees/tree_module.h"

namespace rehearse {

Result<JsonValue> read_yaml_tree(std::string_view text, const std::string& path);
Result<JsonValue> read_toml_tree(std::string_view text, const std::string& path);

}  // namespace rehearse
