// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/launch_flags.h"

#include <algorithm>

#include "schedules/frameworks/emit_flags.h"
#include "schedules/frameworks/framework_file.h"

namespace rehearse {
namespace {

// Of the plan's keys, and not what the framework takes where the flag is left out.
bool says_something(const Framework& framework, const Setting& flag) {
  const FlagRow* row = framework.find(flag.flag);
  if (row == nullptr || !row->key.starts_with("plan.")) return false;
  if (row->standard.is_null() || flag.values.size() != 1) return true;
  return flag.values[0] != shown(row->standard);
}

}  // namespace

Result<std::string> launch_flags(const Scenario& scenario, const std::string& model_json,
                                 std::int32_t gpus_per_node) {
  const RuntimeTraits& runtime = scenario.plan.runtime;
  for (const std::string& name : framework_names()) {
    const Result<Framework> read = read_framework(name);
    if (!read) return read.error();
    const Framework& framework = read.value();
    if (std::ranges::find(framework.runtimes, runtime.name) == framework.runtimes.end()) continue;
    const Result<Emitted> made = emit_flags(framework, scenario, model_json, gpus_per_node);
    if (!made) return "none: " + made.error().message;
    std::vector<Setting> flags = made.value().flags;
    std::erase_if(flags, [&](const Setting& flag) { return !says_something(framework, flag); });
    std::string text = flags_text(flags);
    for (const std::string& line : made.value().refused) {
      const std::string key = line.substr(0, line.find(':'));
      text += (&line == &made.value().refused.front() ? "; no flag says " : ", ") + key;
    }
    return text;
  }
  return "none: those of " + runtime.title + " are not known here; the layout above is the plan";
}

std::string model_object(const std::string& model_json) {
  const Result<JsonValue> read = parse_json(model_json, "model");
  if (!read || !read.value().is(JsonKind::String)) return model_json;
  const Result<JsonValue> file = read_json(read.value().text);
  return file ? Json(file.value()).dump() : "";
}

}  // namespace rehearse
