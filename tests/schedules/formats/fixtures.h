// SPDX-License-Identifier: Apache-2.0
// The schedule fixtures of other projects, by name, in a stable order.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace rehearse::fixture {

inline std::vector<std::string> json_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

}  // namespace rehearse::fixture
