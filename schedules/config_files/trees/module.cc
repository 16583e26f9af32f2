// SPDX-License-Identifier: Apache-2.0
// The entry of rehearse_trees.so.
#include "schedules/base/installed/module.h"
#include "schedules/config_files/trees/read_trees.h"

namespace rehearse {
REHEARSE_MODULE(trees, TreeModule, .yaml = read_yaml_tree, .toml = read_toml_tree)
}  // namespace rehearse
