// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/launch_flags.h"

#include <algorithm>
#include <vector>

#include "schedules/frameworks/emit_flags.h"
#include "schedules/frameworks/framework_file.h"

namespace rehearse {
namespace {

// Whether the flag is of one of the plan's keys, and says another value than the framework takes
// where it is left out.
bool says_something(const Framework& framework, const Setting& flag) {
  const FlagRow* row = framework.find(flag.flag);
  if (row == nullptr || !row->key.starts_with("plan.")) return false;
  if (row->standard.is_null() || flag.values.size() != 1) return true;
  return flag.values[0] != shown(row->standard);
}

// Frameworks that a profile prices; the one that was asked for alone, where it is among them.
Result<std::vector<Framework>> priced_by(const std::string& runtime, const std::string& asked) {
  std::vector<Framework> found;
  for (const std::string& name : framework_names()) {
    Result<Framework> read = read_framework(name);
    if (!read) return read.error();
    const std::vector<std::string>& runtimes = read.value().runtimes;
    if (std::ranges::find(runtimes, runtime) == runtimes.end()) continue;
    if (name == asked) return std::vector{std::move(read).value()};
    found.push_back(std::move(read).value());
  }
  return found;
}

}  // namespace

Result<std::string> launch_flags(const Scenario& scenario, const std::string& framework,
                                 const std::string& model_json, std::int32_t gpus_per_node) {
  const RuntimeTraits& runtime = scenario.plan.runtime;
  const Result<std::vector<Framework>> priced = priced_by(runtime.name, framework);
  if (!priced) return priced.error();
  if (priced.value().empty()) {
    return "none: those of " + runtime.title + " are not known here; the layout above is the plan";
  }
  if (priced.value().size() > 1) {
    std::string names;
    for (const Framework& one : priced.value()) names += (names.empty() ? "" : ", ") + one.name;
    return "none: the profile " + runtime.name + " prices " + names +
           "; rehearse emit --for NAME says those of one";
  }
  const Framework& one = priced.value().front();
  const Result<Emitted> made = emit_flags(one, scenario, model_json, gpus_per_node);
  if (!made) return "none: " + made.error().message;
  std::vector<Setting> flags = made.value().flags;
  std::erase_if(flags, [&](const Setting& flag) { return !says_something(one, flag); });
  std::string text = flags_text(flags);
  const char* before = "; no flag says ";
  for (const std::string& line : made.value().refused) {
    text += before + line.substr(0, line.find(':'));
    before = ", ";
  }
  return text;
}

std::string model_object(const std::string& model_json) {
  const Result<JsonValue> read = parse_json(model_json, "model");
  if (!read || !read.value().is(JsonKind::String)) return model_json;
  const Result<JsonValue> file = read_json(read.value().text);
  return file ? Json(file.value()).dump() : "";
}

}  // namespace rehearse
