// SPDX-License-Identifier: Apache-2.0
// A scenario whose plan has lists and ranges becomes a space.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "schedules/base/json_keys.h"
#include "schedules/base/shipped.h"
#include "schedules/order/registry.h"
#include "schedules/runtime/runtime_file.h"
#include "schedules/scenario/expert_plan.h"
#include "schedules/scenario/keys/plan_aliases.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/open_scenario.h"
#include "schedules/scenario/reader/plan_reader.h"
#include "sim/search/space/space.h"
#include "sim/search/space/space_values.h"

namespace rehearse::sim {
namespace {

// As messages have it.
std::string path_in_file(const PlanField& key) {
  return "plan." + path_of(key);
}

// A list, or {"min": a, "max": b} for a number: what `search` alone takes.
bool is_range(const JsonValue& value, const KeySpec& spec) {
  return value.is(JsonKind::Object) && (spec.types & kObject) == 0 &&
         (value.given("min") != nullptr || value.given("max") != nullptr);
}

class SpaceReader {
 public:
  SpaceReader(JsonValue root, const std::string& path, const ScenarioOptions& options)
      : root_(std::move(root)), path_(path), options_(options), report_(path) {}

  Result<Space> read() {
    if (!root_.is(JsonKind::Object)) return parse_scenario("[]", path_, 1, options_).error();
    space_.runtime = options_.runtime.value_or(runtime_of_file(root_));
    rename_plan_keys(member_of(root_, "plan"), report_);
    if (!report_.ok()) return report_.error();
    ScenarioOptions rest = options_;
    rest.overrides.clear();
    for (const std::string& text : options_.overrides) {
      if (text.starts_with("plan.")) {
        override_plan(text);
      } else {
        rest.overrides.push_back(text);
      }
    }
    JsonValue& plan = member_of(root_, "plan");
    if (plan.is(JsonKind::Null)) plan.kind = JsonKind::Object;
    if (plan.is(JsonKind::Object)) take_lists(plan, plan_key_table(), "");
    if (!report_.ok()) return report_.error();
    check_keys(root_, scenario_key_table(), "", report_);
    if (!report_.ok()) return report_.error();
    space_.plan = plan;
    read_runtimes();
    if (!report_.ok()) return report_.error();
    const bool open_batch = is_open(space_, &Plan::global_batch);
    plan = {};
    Result<Scenario> base = parse_scenario(to_json_text(root_), path_, root_.line, rest);
    if (!base) return base.error();
    space_.base = std::move(base).value();
    read_routings();
    if (!report_.ok()) return report_.error();
    for (const JsonMember& member : space_.plan.members) {
      if (!member.value.is(JsonKind::Null)) space_.base.given.push_back(member.key);
    }
    for (const SpaceKey& list : space_.lists) space_.base.given.push_back(list.key);
    if (options_.gpus) {
      space_.gpus = options_.gpus;
    } else if (const JsonValue* gpus = root_.given("gpus")) {
      space_.gpus = static_cast<std::int32_t>(gpus->integer);
    }
    for (const std::string& text : rest.overrides) {
      if (text.starts_with("gpus=")) space_.gpus = space_.base.gpus;
      if (text.starts_with("model=") || text.starts_with("model.")) override_model(text);
    }
    space_.model_json = model_text();
    // Plans are compared at one global batch, so its default must not depend on them.
    if (open_batch) {
      const std::int64_t samples = space_.gpus ? *space_.gpus : space_.base.cluster.gpus_per_node;
      member_of(space_.plan, &Plan::global_batch) = integer_value(samples);
      space_.base.warnings.push_back("plan.global_batch is left out: every plan is given " +
                                     std::to_string(samples) + ", one sample per GPU");
    }
    return std::move(space_);
  }

 private:
  // The scenario reader has checked it; here it is for the files that are saved.
  void override_model(const std::string& text) {
    JsonValue& model = member_of(root_, "model");
    if (text.starts_with("model=")) return override_key(text, "model");
    if (model.is(JsonKind::String)) {
      const auto found = find_meant_file(model.text, path_, "models");
      Result<JsonValue> inside = read_json(found ? *found : model.text);
      if (!inside) return;
      model = std::move(inside).value();
    }
    override_key(text, "model");
  }
  std::string model_text() {
    const JsonValue& model = member_of(root_, "model");
    if (!model.is(JsonKind::String)) return to_json_text(model);
    const auto found = find_meant_file(model.text, path_, "models");
    return json_quoted(
        std::filesystem::absolute(found ? *found : model.text).lexically_normal().string());
  }

  void override_plan(const std::string& text) { override_key(text, "plan"); }

  void override_key(const std::string& text, std::string_view root) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return report_.fail(0, "", "--set " + json_excerpt(text) + ": must be KEY=VALUE");
    }
    JsonValue* at = &member_of(root_, root);
    for (std::size_t from = root.size() + 1; from <= equals;) {
      const std::size_t end = std::min(text.find('.', from), equals);
      if (at->is(JsonKind::Null)) at->kind = JsonKind::Object;
      if (!at->is(JsonKind::Object)) {
        return report_.fail(0, text.substr(0, equals),
                            "--set goes into a value that is not an object");
      }
      at = &member_of(*at, std::string(plan_key(text.substr(from, end - from))));
      from = end + 1;
    }
    const std::string value = text.substr(equals + 1);
    Result<JsonValue> parsed = parse_json(value, "");
    *at = parsed ? std::move(parsed).value() : text_value(value);
    forget_lines(*at);
  }
  static void forget_lines(JsonValue& value) {
    value.line = 0;
    for (JsonValue& item : value.items) forget_lines(item);
    for (JsonMember& member : value.members) {
      member.line = 0;
      forget_lines(member.value);
    }
  }

  // A file's order has its own micro-batches, positions and chunks: there is nothing to search.
  bool refused_file(const JsonValue& schedule, const std::string& key) {
    if (!schedule.is(JsonKind::String) || !schedule.text.starts_with("file:")) return false;
    report_.fail(
        schedule.line, key,
        json_excerpt(schedule.text) +
            " is one order, made for one pipeline: \"rehearse simulate\" says what it takes; "
            "search takes orders by name");
    return true;
  }

  // What the plans may name, each by its own name from then on, and what they have by default.
  void read_runtimes() {
    const auto read = [&](const std::string& name, std::int32_t line) -> const std::string& {
      Result<RuntimeTraits> made = read_runtime(name, path_);
      if (!made) {
        report_.fail(line, path_in_file(&Plan::runtime), made.error().message);
        return name;
      }
      return space_.runtimes.emplace_back(std::move(made).value()).name;
    };
    space_.runtime = read(space_.runtime, 0);
    for (JsonMember& member : space_.plan.members) {
      if (member.key != key_of(&Plan::runtime) || member.value.is(JsonKind::Null)) continue;
      member.value.text = read(member.value.text, member.line);
    }
    for (SpaceKey& list : space_.lists) {
      if (list.key != key_of(&Plan::runtime)) continue;
      for (JsonValue& value : list.values) value.text = read(value.text, value.line);
    }
  }

  // Every value of expert_routing is legal for the model; what runs wrote is read once.
  void read_routings() {
    const std::string_view key = key_of(&Plan::expert_routing);
    const auto read = [&](const JsonValue& value) {
      Plan plan;
      const Result<> good =
          read_expert_routing(value, {.from = path_, .model = &space_.base.model}, plan);
      if (!good)
        return report_.fail(value.line, path_in_file(&Plan::expert_routing), good.error().message);
      if (plan.expert_routing != ExpertRouting::Measured) return;
      space_.routings.push_back(std::move(plan.expert_measured));
    };
    if (const JsonValue* value = space_.plan.given(key)) read(*value);
    for (const SpaceKey& list : space_.lists) {
      if (list.key == key) std::ranges::for_each(list.values, read);
    }
  }

  // A list of parts, which is no list of values to try.
  static bool is_one_value(const JsonValue& value, const KeySpec& spec) {
    return value.is(JsonKind::Array) &&
           std::ranges::any_of(value.items, [&](const JsonValue& item) {
             return item.is(JsonKind::String) &&
                    std::ranges::find(spec.parts, item.text) != spec.parts.end();
           });
  }

  // `inside`: the path of the object in the plan, with a dot behind it.
  void take_lists(JsonValue& object, const KeyTable& table, const std::string& inside) {
    for (JsonMember& member : object.members) {
      const bool names_order = inside.empty() && member.key == key_of(&Plan::schedule);
      if (names_order && refused_file(member.value, path_in_file(&Plan::schedule))) return;
      const KeySpec* spec = find_key(table, member.key);
      if (spec == nullptr) continue;
      if (member.value.is(JsonKind::Object) && spec->members != nullptr) {
        take_lists(member.value, *spec->members, inside + member.key + '.');
        if (!report_.ok()) return;
        continue;
      }
      if (!spec->searchable) continue;
      const std::string path = inside + member.key, key = "plan." + path;
      if (is_one_value(member.value, *spec)) {
        check_key(member.value, *spec, key, report_);
      } else if (member.value.is(JsonKind::Array)) {
        take_list(member, path, *spec, key);
      } else if (inside.empty() && is_range(member.value, *spec)) {
        take_range(member, *spec, key);
      }
      if (!report_.ok()) return;
    }
  }
  void take_list(JsonMember& member, const std::string& path, const KeySpec& spec,
                 const std::string& key) {
    if (member.value.items.empty()) {
      return report_.fail(member.line, key, "the list is empty: nothing to search");
    }
    for (std::size_t i = 0; i < member.value.items.size(); ++i) {
      const JsonValue& item = member.value.items[i];
      const std::string at = key + "[" + std::to_string(i) + "]";
      if (item.is(JsonKind::Null) || item.is(JsonKind::Array)) {
        return report_.fail(item.line, at, "must be a value");
      }
      check_key(item, spec, at, report_);
      if (!item.is(JsonKind::String) || member.key != key_of(&Plan::schedule)) continue;
      if (refused_file(item, at)) return;
      if (find_schedule(item.text) == nullptr) {
        report_.fail(item.line, at, unknown_schedule(item.text, json_excerpt(item.text)));
      }
    }
    space_.lists.push_back({path, std::move(member.value.items)});
    member.value = {};
  }
  void take_range(JsonMember& member, const KeySpec& spec, const std::string& key) {
    std::array<JsonValue, 2> bounds{integer_value(1), integer_value(1 << 24)};
    for (const JsonMember& bound : member.value.members) {
      if (bound.key != "min" && bound.key != "max") {
        return report_.fail(bound.line, key + "." + bound.key, "a range has min and max alone");
      }
      if (!bound.value.is(JsonKind::Integer)) {
        return report_.fail(bound.line, key + "." + bound.key, "must be an integer");
      }
      check_key(bound.value, spec, key + "." + bound.key, report_);
      bounds[bound.key == "max" ? 1 : 0] = bound.value;
    }
    if (bounds[0].integer > bounds[1].integer) {
      return report_.fail(member.line, key, "min is more than max: nothing to search");
    }
    space_.ranges.push_back({member.key, {bounds[0], bounds[1]}});
    member.value = {};
  }

  JsonValue root_;
  std::string path_;
  const ScenarioOptions& options_;
  JsonReport report_;
  Space space_;
};

}  // namespace

Result<Space> read_space(const std::string& named, const ScenarioOptions& options) {
  std::string path = named;
  Result<JsonValue> root = open_scenario(path);
  if (!root) return root.error();
  return SpaceReader(std::move(root).value(), path, options).read();
}

Result<Space> parse_space(std::string_view text, const std::string& path,
                          const ScenarioOptions& options) {
  Result<JsonValue> root = parse_json(text, path);
  if (!root) return root.error();
  return SpaceReader(std::move(root).value(), path, options).read();
}

}  // namespace rehearse::sim
