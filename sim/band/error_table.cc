// SPDX-License-Identifier: Apache-2.0
#include "sim/band/error_table.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "schedules/base/decimal.h"
#include "schedules/base/files.h"
#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

constexpr KeySpec number(std::string_view name, double min, double max) {
  return {.name = name, .types = kNumber | kInteger, .min = min, .max = max, .required = true};
}
constexpr KeySpec kRuleKeys[] = {number("difference", 0.001, 1),
                                 number("network_scale", 0.001, 100),
                                 number("memory_scale", 0.001, 100),
                                 number("lower", 0, 0.5),
                                 number("upper", 0.5, 1),
                                 number("few", 0, 1000)};
constexpr KeyTable kRule{.title = "rule", .keys = kRuleKeys};
constexpr KeySpec kLeftOutKeys[] = {
    {.name = "keys", .types = kArray, .item_types = kString, .required = true},
    number("move", 0, 10)};
constexpr KeyTable kLeftOut{.title = "left out", .keys = kLeftOutKeys};
constexpr KeySpec kFileKeys[] = {
    {.name = "schema", .types = kString, .required = true},
    {.name = "about", .types = kArray},
    {.name = "rule", .types = kObject, .members = &kRule, .required = true},
    number("unseen", 0, 10),
    {.name = "left_out", .types = kArray, .items = &kLeftOut, .required = true},
    number("pair_equal", 0, 10),
    number("pair_ordered", 0, 10),
};
constexpr KeyTable kFile{.title = "errors", .keys = kFileKeys};

// A row of the CSV file: seven texts, then six numbers. (Hundreds of rows as JSON would take
// longer to read than a small prediction to make.)
constexpr std::size_t kTexts = 7, kFields = 13;

using Fields = std::array<std::string_view, kFields>;

// The fields of the row that `rest` begins with, and takes it from there; false where it has
// others.
bool take_fields(std::string_view& rest, Fields& fields) {
  const char *at = rest.data(), *const end = at + rest.size(), *begin = at;
  std::size_t count = 0;
  for (;; ++at) {
    const bool ends = at == end || *at == '\n';
    if (!ends && *at != ',') continue;
    if (count < kFields) fields[count] = {begin, static_cast<std::size_t>(at - begin)};
    ++count;
    if (ends) break;
    begin = at + 1;
  }
  rest.remove_prefix(static_cast<std::size_t>(at - rest.data()) + (at == end ? 0 : 1));
  return count == kFields;
}

// Adds a row to the table; false where it is not one.
bool add_row(const Fields& fields, ErrorTable& table) {
  std::array<double, kFields - kTexts> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!read_decimal(fields[kTexts + i], numbers[i]) || !std::isfinite(numbers[i])) return false;
  }
  if (table.sources.empty() || table.sources.back() != fields[0]) {
    table.sources.emplace_back(fields[0]);
  }
  table.rows.push_back({.source = static_cast<std::int32_t>(table.sources.size()) - 1,
                        .features = {.gpu = std::string(fields[1]),
                                     .precision = std::string(fields[2]),
                                     .runtime = std::string(fields[3]),
                                     .attention = std::string(fields[4]),
                                     .kinds = kinds_of(fields[5]),
                                     .nic = std::string(fields[6]),
                                     .gpus = static_cast<std::int32_t>(numbers[0]),
                                     .network_share = numbers[1],
                                     .memory_fill = numbers[2]},
                        .log_error = numbers[5],
                        .group = static_cast<std::int32_t>(numbers[3]),
                        .plan = static_cast<std::int32_t>(numbers[4])});
  return true;
}

Result<> read_rows(const std::string& path, ErrorTable& table) {
  constexpr std::int64_t kMostBytes = 16 << 20;
  const Result<std::string> read = read_text_file(path, kMostBytes);
  if (!read) return read.error();
  std::string_view rest = read.value();
  constexpr std::size_t kShortLine = 64;
  Fields fields;
  table.rows.reserve(rest.size() / kShortLine);
  for (std::int32_t line = 1; !rest.empty(); ++line) {
    const bool good = take_fields(rest, fields);
    if (line > 1 && !(good && add_row(fields, table))) {  // the first has the columns' names
      return json_error(path, line, "", "a row has seven texts and six numbers");
    }
  }
  return {};
}

}  // namespace

Result<ErrorTable> read_error_table(const std::string& path) {
  const Result<JsonValue> read = read_json(path);
  if (!read) return read.error();
  const JsonValue& root = read.value();
  JsonReport report(path);
  check_keys(root, kFile, "", report);
  if (!report.ok()) return report.error();
  const JsonValue& rule = *root.given("rule");
  ErrorTable table{.rule = {.difference = rule.given("difference")->number,
                            .network_scale = rule.given("network_scale")->number,
                            .memory_scale = rule.given("memory_scale")->number,
                            .lower = rule.given("lower")->number,
                            .upper = rule.given("upper")->number,
                            .few = rule.given("few")->number},
                   .unseen = root.given("unseen")->number,
                   .pair_equal = root.given("pair_equal")->number,
                   .pair_ordered = root.given("pair_ordered")->number};
  for (const JsonValue& item : root.given("left_out")->items) {
    LeftOut row{.move = item.given("move")->number};
    for (const JsonValue& key : item.given("keys")->items) row.keys.push_back(key.text);
    table.left_out.push_back(std::move(row));
  }
  const std::string rows = std::filesystem::path(path).replace_extension(".csv").string();
  if (const Result<> good = read_rows(rows, table); !good) return good.error();
  return table;
}

Result<ErrorTable> shipped_error_table() {
  return read_error_table(shipped_directory() + "/accuracy/errors.json");
}

}  // namespace rehearse::sim
