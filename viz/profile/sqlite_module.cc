// SPDX-License-Identifier: Apache-2.0
// The entry of rehearse_sqlite.so.
#include "viz/profile/sqlite_module.h"

#include <sqlite3.h>

#include <memory>
#include <vector>

#include "schedules/base/installed/module.h"

namespace rehearse::viz {
namespace {

struct Close {
  void operator()(sqlite3* file) const { sqlite3_close(file); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

SqlValue value_of(sqlite3_stmt* statement, int column) {
  SqlValue value;
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_NULL:
      return value;
    case SQLITE_TEXT: {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
      if (text != nullptr) {
        value.text = {text, static_cast<std::size_t>(sqlite3_column_bytes(statement, column))};
      }
      break;
    }
    default:
      value.number = sqlite3_column_int64(statement, column);
  }
  value.null = false;
  return value;
}

Result<> each_row(const std::string& path, const std::string& sql,
                  const std::function<bool(SqlRow)>& take) {
  sqlite3* opened = nullptr;
  const int open = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
  const std::unique_ptr<sqlite3, Close> file(opened);
  const auto fault = [&] {
    return Error{path + ": " + (file ? sqlite3_errmsg(file.get()) : "no memory for SQLite")};
  };
  if (open != SQLITE_OK) return fault();
  sqlite3_db_config(file.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(file.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(file.get(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(file.get(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_stmt* prepared = nullptr;
  const int made = sqlite3_prepare_v2(file.get(), sql.c_str(), -1, &prepared, nullptr);
  const std::unique_ptr<sqlite3_stmt, Close> statement(prepared);
  if (made != SQLITE_OK) return fault();
  std::vector<SqlValue> row(static_cast<std::size_t>(sqlite3_column_count(prepared)));
  for (;;) {
    const int step = sqlite3_step(prepared);
    if (step == SQLITE_DONE) return {};
    if (step != SQLITE_ROW) return fault();
    for (std::size_t c = 0; c < row.size(); ++c) row[c] = value_of(prepared, static_cast<int>(c));
    if (!take(row)) return {};
  }
}

}  // namespace
}  // namespace rehearse::viz

namespace rehearse {
REHEARSE_MODULE(sqlite, viz::SqliteModule, .each = viz::each_row)
}  // namespace rehearse
