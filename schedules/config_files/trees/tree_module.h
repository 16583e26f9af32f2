// SPDX-License-Identifier: Apache-2.0
// YAML and TOML as the document that JSON becomes (JsonValue), so that nobody behind needs to know
// which it was. yaml-cpp and toml++ lie in a module of their own, loaded when such a file is read:
// the command starts without them (schedules/base/installed/module.h).
#pragma once

#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"

namespace rehearse {

struct TreeModule {
  static constexpr const char* kName = "trees";
  static constexpr int kVersion = 1;
  static constexpr const char* kMissing =
      "this build reads no YAML and no TOML (yaml-cpp and toml++ were not there when it was built)";
  int version = 0;
  // YAML scalars are texts as they stand, whatever they look like: who asks for one knows its type.
  // Errors: "FILE:LINE: what is wrong".
  Result<JsonValue> (*yaml)(std::string_view text, const std::string& path) = nullptr;
  Result<JsonValue> (*toml)(std::string_view text, const std::string& path) = nullptr;
};

constexpr std::size_t kMostTreeNodes = 100'000;

}  // namespace rehearse
