// SPDX-License-Identifier: Apache-2.0
// Rows of somebody else's SQLite file. SQLite lies in a module of its own, loaded when such a file
// is read: the command starts without it (schedules/base/installed/module.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse::viz {

// One value of a row: a whole number, or a text that lives as long as the row; neither: null.
struct SqlValue {
  bool null = true;
  std::int64_t number = 0;
  std::string_view text;
};
using SqlRow = std::span<const SqlValue>;

struct SqliteModule {
  static constexpr const char* kName = "sqlite";
  static constexpr int kVersion = 1;
  static constexpr const char* kMissing =
      "this build reads no SQLite (libsqlite3-dev was not there when it was built)";
  int version = 0;
  // Calls `take` for each row of the answer to `sql`, until it says no. The file is read alone,
  // what it holds is data: its views, triggers and functions are not run. Error: "PATH: what SQLite
  // says".
  Result<> (*each)(const std::string& path, const std::string& sql,
                   const std::function<bool(SqlRow)>& take) = nullptr;
};

}  // namespace rehearse::viz
