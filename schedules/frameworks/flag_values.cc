// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/flag_values.h"

#include <algorithm>
#include <array>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

constexpr std::array<std::string_view, 6> kYes{"true", "True", "yes", "on", "1", "TRUE"};
constexpr std::array<std::string_view, 6> kNo{"false", "False", "no", "off", "0", "FALSE"};

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : " ") + value;
  return text;
}

Json number_or_text(const std::string& text) {
  const std::optional<double> number = number_of(text);
  return number ? number_value(*number) : Json(text);
}

Result<Json> converted(const FlagRow& row, const Setting& setting) {
  const std::vector<std::string>& values = setting.values;
  if (row.takes == Takes::Yes) {
    if (values.empty()) return Json(true);
    if (values.size() == 1 && is_one_of(values[0], kYes)) return Json(true);
    if (values.size() == 1 && is_one_of(values[0], kNo)) return Json();  // as if it were left out
    return setting_error(setting,
                         json_excerpt(joined(values)) + " behind a flag that takes nothing");
  }
  if (row.takes == Takes::List) {
    Json list = Json::array();
    for (const std::string& value : values) list.push_back(number_or_text(value));
    return list;
  }
  if (values.empty()) return setting_error(setting, "no value behind it");
  const std::string text = joined(values);
  if (row.takes == Takes::Text) {
    if (is_one_of(text, std::array<std::string_view, 2>{"true", "True"})) return Json("true");
    if (is_one_of(text, std::array<std::string_view, 2>{"false", "False"})) return Json("false");
    return Json(text);
  }
  const std::optional<double> number = number_of(text);
  if (!number) return setting_error(setting, json_excerpt(text) + " is no number");
  Json value = number_value(*number);
  if (row.takes == Takes::Integer && value.dump().find_first_of(".e") != std::string::npos) {
    return setting_error(setting, text + " is no whole number");
  }
  return value;
}

}  // namespace

Error setting_error(const Setting& setting, const std::string& what) {
  return json_error(setting.file, setting.line, setting.flag, what);
}

Result<std::map<std::string, GivenFlag>> flag_values(const Framework& framework,
                                                     const std::vector<Setting>& settings,
                                                     std::vector<std::string>& warnings) {
  std::map<std::string, GivenFlag> found;
  for (const Setting& setting : settings) {
    const FlagRow* row = framework.find(setting.flag);
    if (row == nullptr || setting.null) continue;
    const bool alone = setting.values.empty() && !row->alone.empty();
    if (!row->unsaid.empty() && setting.values == std::vector<std::string>{row->unsaid}) continue;
    if (row->takes == Takes::Text && setting.values.empty() &&
        !alone) {  // what stood there was empty
      warnings.push_back(setting.flag + " has no value behind it, and is left out");
      continue;
    }
    Result<Json> value = alone ? Result<Json>(Json(row->alone)) : converted(*row, setting);
    if (!value && row->use != FlagUse::Used) continue;  // no plan hangs on it
    if (!value) return value.error();
    GivenFlag& flag = found[row->name];
    if (flag.setting != nullptr && !equal(flag.value, value.value())) {
      warnings.push_back(setting.flag + " is said twice: " + shown(flag.value) + ", then " +
                         shown(value.value()) + ", which holds");
    }
    if (row->takes == Takes::Text && setting.values.size() > 1) {
      warnings.push_back(setting.flag + " has " + std::to_string(setting.values.size()) +
                         " words behind it: they are taken as one value");
    }
    flag = {std::move(value).value(), &setting};
  }
  std::erase_if(found, [](const auto& flag) { return flag.second.value.is_null(); });
  return found;
}

}  // namespace rehearse
