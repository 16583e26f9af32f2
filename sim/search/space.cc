// SPDX-License-Identifier: Apache-2.0
#include "sim/search/space.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "schedules/base/json_keys.h"
#include "schedules/base/shipped.h"
#include "schedules/order/registry.h"
#include "schedules/runtime/runtime_file.h"
#include "schedules/scenario/open_scenario.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/plan_reader.h"
#include "schedules/scenario/scenario_keys.h"

namespace rehearse::sim {
namespace {

JsonValue integer_value(std::int64_t value) {
  JsonValue json;
  json.kind = JsonKind::Integer;
  json.integer = value;
  json.number = static_cast<double>(value);
  return json;
}
JsonValue text_value(std::string_view value) {
  JsonValue json;
  json.kind = JsonKind::String;
  json.text = value;
  return json;
}
JsonValue flag_value(bool value) {
  JsonValue json;
  json.kind = JsonKind::Bool;
  json.boolean = value;
  return json;
}

JsonValue& member_of(JsonValue& object, std::string_view key) {
  for (JsonMember& member : object.members) {
    if (member.key == key) return member.value;
  }
  object.members.push_back({std::string(key), object.line, {}});
  return object.members.back().value;
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
    if (plan.is(JsonKind::Object)) take_lists(plan);
    if (!report_.ok()) return report_.error();
    check_keys(root_, scenario_key_table(), "", report_);
    if (!report_.ok()) return report_.error();
    space_.plan = plan;
    read_runtimes();
    if (!report_.ok()) return report_.error();
    const bool open_batch = plan.given("global_batch") == nullptr &&
                            std::ranges::none_of(space_.lists, [](const SpaceKey& list) {
                              return list.key == "global_batch";
                            });
    plan = {};
    Result<Scenario> base = parse_scenario(to_json_text(root_), path_, root_.line, rest);
    if (!base) return base.error();
    space_.base = std::move(base).value();
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
      member_of(space_.plan, "global_batch") = integer_value(samples);
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
      at = &member_of(*at, text.substr(from, end - from));
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
        report_.fail(line, "plan.runtime", made.error().message);
        return name;
      }
      return space_.runtimes.emplace_back(std::move(made).value()).name;
    };
    for (const std::int32_t stage : {0, 3}) read(std::string(default_runtime(stage)), 0);
    for (JsonMember& member : space_.plan.members) {
      if (member.key != "runtime" || member.value.is(JsonKind::Null)) continue;
      member.value.text = read(member.value.text, member.line);
    }
    for (SpaceKey& list : space_.lists) {
      if (list.key != "runtime") continue;
      for (JsonValue& value : list.values) value.text = read(value.text, value.line);
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

  void take_lists(JsonValue& plan) {
    for (JsonMember& member : plan.members) {
      if (member.key == "schedule" && refused_file(member.value, "plan.schedule")) return;
      const KeySpec* spec = find_key(plan_key_table(), member.key);
      if (spec == nullptr || !spec->searchable) continue;
      const std::string key = "plan." + member.key;
      if (is_one_value(member.value, *spec)) {
        check_key(member.value, *spec, key, report_);
      } else if (member.value.is(JsonKind::Array)) {
        take_list(member, *spec, key);
      } else if (is_range(member.value, *spec)) {
        take_range(member, *spec, key);
      }
      if (!report_.ok()) return;
    }
  }
  void take_list(JsonMember& member, const KeySpec& spec, const std::string& key) {
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
      if (member.key == "schedule" && item.is(JsonKind::String) && refused_file(item, at)) return;
      if (member.key == "schedule" && item.is(JsonKind::String) &&
          find_schedule(item.text) == nullptr) {
        report_.fail(item.line, at, unknown_schedule(item.text, json_excerpt(item.text)));
      }
    }
    space_.lists.push_back({member.key, std::move(member.value.items)});
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

// What a key may be: the list, the given value, or (limited by a range) what `usual` says.
std::vector<JsonValue> values_of(const Space& space, std::string_view key,
                                 std::vector<JsonValue> usual) {
  for (const SpaceKey& list : space.lists) {
    if (list.key == key) return list.values;
  }
  if (const JsonValue* given = space.plan.given(key)) return {*given};
  for (const SpaceKey& range : space.ranges) {
    if (range.key != key) continue;
    std::erase_if(usual, [&](const JsonValue& value) {
      return value.is(JsonKind::Integer) &&
             (value.integer < range.values[0].integer || value.integer > range.values[1].integer);
    });
  }
  return usual;
}
// Whether the plan lists parts of layers to compute again, which then every family's does.
bool has_parts(const Space& space) {
  const JsonValue* given = space.plan.given("recompute");
  return given != nullptr && given->is(JsonKind::Array);
}
bool is_open(const Space& space, std::string_view key) {
  return space.plan.given(key) == nullptr &&
         std::ranges::none_of(space.lists, [&](const SpaceKey& list) { return list.key == key; });
}

std::vector<JsonValue> divisors(std::int64_t of) {
  std::vector<JsonValue> found;
  for (std::int64_t i = 1; i <= of; ++i) {
    if (of % i == 0) found.push_back(integer_value(i));
  }
  return found;
}

std::int64_t gpus_of(const Space& space) {
  if (space.gpus) return *space.gpus;
  const JsonValue* data = space.plan.given("data_parallel");
  if (data == nullptr) return space.base.cluster.gpus_per_node;
  std::int64_t product = data->integer;
  for (const char* key : {"tensor_parallel", "pipeline_parallel", "context_parallel"}) {
    const JsonValue* size = space.plan.given(key);
    if (size != nullptr) product = std::min<std::int64_t>(product * size->integer, 1 << 24);
  }
  return product;
}

// Chunks per position worth trying: those that divide the layers, or the layers with a slot each
// for embedding and head; where there are none, the smallest.
std::vector<JsonValue> usual_chunks(std::int64_t layers, std::int64_t p) {
  std::vector<JsonValue> found;
  for (std::int64_t v = 2; p * v <= layers + 2; ++v) {
    if (layers % (p * v) == 0 || (layers + 2) % (p * v) == 0) found.push_back(integer_value(v));
  }
  if (found.empty()) {
    for (std::int64_t v = 2; v <= 4 && p * v <= layers; ++v) found.push_back(integer_value(v));
  }
  return found;
}

struct ScheduleChoice {
  JsonValue name, chunks;
};

// Names that are not tried unless asked for: one stage's alone; dominated ones; planned ones, which
// take seconds each.
bool is_usual(const ScheduleInfo& info) {
  return !info.one_stage && !info.dominated && !info.planned;
}

bool is_kept(const Space& space, std::string_view schedule) {
  return space.frameworks.empty() ||
         std::ranges::any_of(space.frameworks, [&](const Framework& framework) {
           return framework.runs(std::string(schedule));
         });
}
bool is_kept(const Space& space, const Plan& plan) {
  return space.frameworks.empty() ||
         std::ranges::any_of(space.frameworks,
                             [&](const Framework& framework) { return framework.launches(plan); });
}

std::vector<ScheduleChoice> schedule_choices(const Space& space, std::int64_t p) {
  const std::int64_t layers = space.base.model.layers;
  if (p == 1) return {{text_value("none"), integer_value(1)}};
  std::vector<JsonValue> names;
  for (const ScheduleInfo& info : schedule_table()) {
    if (is_usual(info) && is_kept(space, info.name)) names.push_back(text_value(info.name));
  }
  names = values_of(space, "schedule", std::move(names));
  std::vector<ScheduleChoice> choices;
  for (const JsonValue& name : names) {
    const ScheduleInfo* info = find_schedule(name.text);
    if (info == nullptr || info->chunks != ChunkRule::Many) {
      // The others have their own number of chunks; a scenario's is for those that take one.
      choices.push_back({name, {}});
      continue;
    }
    for (const JsonValue& v : values_of(space, "virtual_stages", usual_chunks(layers, p))) {
      choices.push_back({name, v});
    }
  }
  return choices;
}

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

std::vector<std::string> keep_released(Space& space, const std::vector<Framework>& frameworks) {
  std::vector<std::string> left_out;
  const JsonValue* runtime = space.plan.given("runtime");
  const bool own =
      runtime != nullptr && std::ranges::any_of(space.runtimes, [&](const RuntimeTraits& traits) {
        return traits.name == runtime->text && traits.own_executor;
      });
  if (own || !is_open(space, "schedule")) return left_out;
  space.frameworks = frameworks;
  for (const ScheduleInfo& info : schedule_table()) {
    if (is_usual(info) && !is_kept(space, info.name)) left_out.emplace_back(info.name);
  }
  return left_out;
}

Result<> use_framework(Space& space, const Framework& framework) {
  space.frameworks = {framework};
  if (!is_open(space, "runtime")) return {};
  Result<RuntimeTraits> runtime = read_runtime(framework.runtimes.front(), space.base.path);
  if (!runtime) return runtime.error();
  member_of(space.plan, "runtime") = text_value(runtime.value().name);
  space.base.given.emplace_back("runtime");
  space.runtimes.push_back(std::move(runtime).value());
  return {};
}

namespace {

// A rank that is left with fewer tokens than this has shorter kernels than launches: more context
// parallelism than that is tried where it is asked for.
constexpr std::int64_t kLeastTokens = 1024;

std::vector<JsonValue> usual_contexts(const Space& space, std::int64_t ranks) {
  std::int64_t longest = 0;
  for (const JsonValue& length :
       values_of(space, "sequence_length", {integer_value(space.base.model.max_positions)})) {
    longest = std::max(longest, length.integer);
  }
  std::vector<JsonValue> found = divisors(ranks);
  std::erase_if(found, [&](const JsonValue& c) {
    return c.integer > 1 && longest < c.integer * kLeastTokens;
  });
  return found;
}

}  // namespace

std::string fixed_sizes(const Space& space) {
  std::string text;
  for (const char* key :
       {"tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel"}) {
    const JsonValue* size = space.plan.given(key);
    if (size == nullptr) continue;
    text += (text.empty() ? "" : ", ") + std::string(key) + " " + std::to_string(size->integer);
  }
  return text;
}

std::vector<MeshSize> meshes(const Space& space) {
  const std::int64_t gpus = gpus_of(space);
  const std::vector<JsonValue> data = values_of(space, "data_parallel", {});
  std::vector<MeshSize> found;
  for (const JsonValue& t : values_of(space, "tensor_parallel", divisors(gpus))) {
    if (gpus % t.integer != 0 || space.base.model.heads % t.integer != 0) continue;
    for (const JsonValue& p : values_of(space, "pipeline_parallel", divisors(gpus / t.integer))) {
      const std::int64_t inner = t.integer * p.integer;
      if (gpus % inner != 0 || p.integer > space.base.model.layers + 2) continue;
      for (const JsonValue& c :
           values_of(space, "context_parallel", usual_contexts(space, gpus / inner))) {
        if (gpus % (inner * c.integer) != 0) continue;
        const std::int64_t d = gpus / (inner * c.integer);
        const auto is_d = [&](const JsonValue& value) { return value.integer == d; };
        if (!data.empty() && std::ranges::none_of(data, is_d)) continue;
        found.push_back({static_cast<std::int32_t>(t.integer), static_cast<std::int32_t>(p.integer),
                         static_cast<std::int32_t>(c.integer)});
      }
    }
  }
  return found;
}

namespace {

std::vector<JsonValue> expert_cuts(const MeshSize& mesh) {
  if (mesh.tensor == 1) return {JsonValue{}};
  return {integer_value(1), integer_value(mesh.tensor)};
}
// Experts that lie whole on every rank send no tokens, by whichever dispatcher.
bool sends_nothing_twice(const Space& space, const JsonValue& plan) {
  const JsonValue *ranks = plan.given("expert_parallel"), *dispatch = plan.given("expert_dispatch");
  return space.base.model.experts.count > 0 && is_open(space, "expert_dispatch") &&
         ranks != nullptr && ranks->integer == 1 && dispatch != nullptr &&
         dispatch->text != "all_to_all";
}

// Calls visit(assignment of the lists that no loop below owns), one per combination.
template <class Visit>
void each_extra(const Space& space, const MeshSize& mesh, Visit visit) {
  constexpr std::array<std::string_view, 10> kOwn{
      "tensor_parallel", "pipeline_parallel", "context_parallel",  "data_parallel", "schedule",
      "virtual_stages",  "zero_stage",        "sequence_parallel", "micro_batch",   "recompute"};
  std::vector<const SpaceKey*> extra;
  for (const SpaceKey& list : space.lists) {
    if (std::ranges::find(kOwn, list.key) == kOwn.end()) extra.push_back(&list);
  }
  // Experts on as many ranks as divide their number, whole or cut as the dense matrices are, their
  // tokens sent copy by copy or once to each rank and node (an all-gather sends more, unless more
  // experts are chosen than there are ranks); the reader refuses what a mesh cannot hold.
  const std::array experts{
      SpaceKey{"expert_parallel", divisors(space.base.model.experts.count)},
      SpaceKey{"expert_tensor_parallel", expert_cuts(mesh)},
      SpaceKey{"expert_dispatch", {text_value("all_to_all"), text_value("deduplicated")}}};
  for (const SpaceKey& key : experts) {
    if (space.base.model.experts.count > 0 && is_open(space, key.key)) extra.push_back(&key);
  }
  std::vector<std::size_t> at(extra.size(), 0);
  JsonValue plan = space.plan;
  while (true) {
    for (std::size_t i = 0; i < extra.size(); ++i) {
      member_of(plan, extra[i]->key) = extra[i]->values[at[i]];
    }
    if (!sends_nothing_twice(space, plan)) visit(plan);
    std::size_t i = extra.size();
    while (i > 0 && ++at[i - 1] == extra[i - 1]->values.size()) at[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace

std::vector<PlanFamily> families_of(const Space& space, const MeshSize& mesh,
                                    std::optional<Error>& refused) {
  const std::int64_t gpus = gpus_of(space);
  const std::int64_t replicas = gpus / (std::int64_t{mesh.tensor} * mesh.pipeline);
  std::vector<JsonValue> stages;
  for (std::int64_t z = 0; z <= 3; ++z) stages.push_back(integer_value(z));
  stages = values_of(space, "zero_stage", std::move(stages));
  if (replicas == 1 && is_open(space, "zero_stage")) stages = {integer_value(0)};
  std::vector<JsonValue> sequence =
      values_of(space, "sequence_parallel", {flag_value(false), flag_value(true)});
  if (mesh.tensor == 1 && is_open(space, "sequence_parallel")) sequence = {flag_value(false)};
  const std::vector<ScheduleChoice> schedules = schedule_choices(space, mesh.pipeline);

  std::vector<PlanFamily> found;
  std::int32_t kind = -1;
  each_extra(space, mesh, [&](JsonValue plan) {
    member_of(plan, "tensor_parallel") = integer_value(mesh.tensor);
    member_of(plan, "pipeline_parallel") = integer_value(mesh.pipeline);
    member_of(plan, "context_parallel") = integer_value(mesh.context);
    member_of(plan, "data_parallel") =
        integer_value(gpus / (std::int64_t{mesh.tensor} * mesh.pipeline * mesh.context));
    member_of(plan, "micro_batch") = {};
    if (!has_parts(space)) member_of(plan, "recompute") = {};
    for (const JsonValue& parallel : sequence) {
      member_of(plan, "sequence_parallel") = parallel;
      bool fresh = true, fresh_sharded = true;
      std::int32_t kind_sharded = 0, kind_whole = 0;
      for (const JsonValue& stage : stages) {
        member_of(plan, "zero_stage") = stage;
        const bool sharded = stage.integer == 3;
        bool& is_new = sharded ? fresh_sharded : fresh;
        if (is_new) (sharded ? kind_sharded : kind_whole) = ++kind;
        is_new = false;
        for (const ScheduleChoice& choice : schedules) {
          member_of(plan, "schedule") = choice.name;
          member_of(plan, "virtual_stages") = choice.chunks;
          JsonReport report(space.base.path);
          std::vector<std::string> warnings;
          const PlanContext context{.model = &space.base.model,
                                    .gpus = static_cast<std::int32_t>(gpus),
                                    .gpus_per_node = space.base.cluster.gpus_per_node,
                                    .runtimes = space.runtimes};
          Plan resolved = resolve_plan(plan, context, report, warnings);
          if (!report.ok()) {
            if (!refused) refused = report.error();
            continue;
          }
          if (!is_kept(space, resolved)) {
            if (!refused) {
              refused = Error{space.base.path + ": plan: " + space.frameworks.front().title +
                              " can launch none of the plans that the scenario leaves open"};
            }
            continue;
          }
          found.push_back({std::move(resolved), sharded ? kind_sharded : kind_whole});
        }
      }
    }
  });
  return found;
}

std::vector<std::string> framework_runtimes(const Space& space) {
  std::vector<std::string> names;
  for (const RuntimeTraits& runtime : space.runtimes) {
    if (!runtime.own_executor) names.push_back(runtime.name);
  }
  return names;
}

std::vector<std::int32_t> micro_batches_of(const Space& space, const Plan& family) {
  std::vector<std::int32_t> possible = micro_batch_candidates(family);
  if (is_open(space, "micro_batch")) {
    std::vector<JsonValue> usual;
    for (const std::int32_t b : possible) usual.push_back(integer_value(b));
    possible.clear();
    for (const JsonValue& b : values_of(space, "micro_batch", std::move(usual))) {
      possible.push_back(static_cast<std::int32_t>(b.integer));
    }
    return possible;
  }
  std::vector<std::int32_t> asked;
  for (const JsonValue& value : values_of(space, "micro_batch", {})) {
    if (value.is(JsonKind::String)) return possible;  // "auto"
    const auto b = static_cast<std::int32_t>(value.integer);
    if (std::ranges::find(possible, b) != possible.end()) asked.push_back(b);
  }
  return asked;
}

std::vector<RecomputeMode> recomputes_of(const Space& space, const Plan& family) {
  if (has_parts(space)) return {RecomputeMode::None};
  std::vector<JsonValue> usual{text_value("none"), text_value("selective"), text_value("full")};
  if (is_fused(family.attention_kernel)) usual.erase(usual.begin() + 1);
  std::vector<RecomputeMode> modes;
  for (const JsonValue& value : values_of(space, "recompute", std::move(usual))) {
    const auto found = std::ranges::find(kRecomputeNames, value.text);
    modes.push_back(static_cast<RecomputeMode>(found - kRecomputeNames.begin()));
  }
  return modes;
}

Result<Plan> plan_of(const Plan& family, std::int32_t micro_batch, RecomputeMode recompute) {
  Result<Plan> chosen = choose_micro_batch(family, micro_batch);
  if (!chosen) return chosen;
  Plan plan = std::move(chosen).value();
  plan.recompute = recompute;
  return plan;
}

}  // namespace rehearse::sim
