// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/generations.h"

#include <algorithm>
#include <string_view>

#include "schedules/base/files.h"
#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

constexpr std::array kRowKeys{
    KeySpec{.name = "architecture", .types = kString, .required = true},
    KeySpec{.name = "vendor", .types = kString, .required = true},
    KeySpec{.name = "capabilities", .types = kArray, .item_types = kArray},
};
constexpr KeyTable kRow{.title = "generation", .keys = kRowKeys};
constexpr std::array<std::string_view, 1> kSchema{"generations/1"};
constexpr std::array kFileKeys{
    KeySpec{.name = "schema", .types = kString, .choices = kSchema},
    KeySpec{.name = "about", .types = kString},
    KeySpec{.name = "generations",
            .types = kArray,
            .items = &kRow,
            .item_types = kObject,
            .required = true},
    KeySpec{.name = "sources", .types = kArray, .item_types = kString},
};
constexpr KeyTable kFile{.title = "Generations of GPUs", .keys = kFileKeys};

// A word may become part of a file's name.
bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

GpuGeneration row_of(const JsonValue& from, const std::string& key, JsonReport& report) {
  GpuGeneration row{.architecture = from.given("architecture")->text,
                    .vendor = from.given("vendor")->text};
  if (!is_word(row.architecture) || row.architecture == "other") {
    report.fail(from.line, join_key(key, "architecture"),
                json_excerpt(row.architecture) + " is not a word of small letters, digits and _");
  }
  const JsonValue* ranges = from.given("capabilities");
  if (ranges == nullptr) return row;
  for (const JsonValue& range : ranges->items) {
    const bool whole = range.items.size() == 2 && range.items[0].is(JsonKind::Integer) &&
                       range.items[1].is(JsonKind::Integer) && range.items[0].integer >= 0 &&
                       range.items[1].integer >= range.items[0].integer &&
                       range.items[1].integer <= 10000;
    if (!whole) {
      report.fail(range.line, join_key(key, "capabilities"),
                  "a range is two integers from 0 to 10000, the first and the last");
      return row;
    }
    row.capabilities.emplace_back(static_cast<std::int32_t>(range.items[0].integer),
                                  static_cast<std::int32_t>(range.items[1].integer));
  }
  return row;
}

}  // namespace

Result<std::vector<GpuGeneration>> read_generations(const std::string& path) {
  const Result<JsonValue> file = read_json(path);
  if (!file) return file.error();
  JsonReport report(path);
  check_keys(file.value(), kFile, "", report);
  if (!report.ok()) return report.error();
  std::vector<GpuGeneration> all;
  for (const JsonValue& row : file.value().given("generations")->items) {
    all.push_back(row_of(row, "generations[" + std::to_string(all.size()) + "]", report));
  }
  if (!report.ok()) return report.error();
  return all;
}

Result<std::vector<GpuGeneration>> shipped_generations() {
  return read_generations(shipped_directory() + "/kernels/generations.json");
}

const GpuGeneration* generation_of(const std::vector<GpuGeneration>& all, std::int32_t capability) {
  for (const GpuGeneration& row : all) {
    for (const auto& [first, last] : row.capabilities) {
      if (first <= capability && capability <= last) return &row;
    }
  }
  return nullptr;
}

Result<> check_generation(const std::vector<GpuGeneration>& all, const std::string& architecture) {
  std::vector<std::string_view> known{"other"};
  for (const GpuGeneration& row : all) known.emplace_back(row.architecture);
  if (std::ranges::find(known, architecture) != known.end()) return {};
  return Error{json_excerpt(architecture) +
               " is not a generation of kernels/generations.json; the nearest is \"" +
               std::string(nearest(architecture, known)) + "\", and \"other\" is none of them"};
}

}  // namespace rehearse
