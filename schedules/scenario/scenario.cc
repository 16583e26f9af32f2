// SPDX-License-Identifier: Apache-2.0
// Joins the readers: document, overrides, model, cluster source, plan, train options.
#include "schedules/scenario/scenario.h"

#include <algorithm>
#include <iterator>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "schedules/base/shipped.h"
#include "schedules/base/utf8.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/scenario/expert_plan.h"
#include "schedules/scenario/keys/plan_aliases.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/keys/plan_use.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/open_scenario.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/reader/plan_reader.h"
#include "schedules/scenario/reader/train_reader.h"

namespace rehearse {
namespace {

JsonValue empty_object(std::int32_t line) {
  JsonValue value;
  value.kind = JsonKind::Object;
  value.line = line;
  return value;
}

JsonMember* find_member(JsonValue& object, std::string_view key) {
  for (JsonMember& member : object.members) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

// Lines belong to one file: values from elsewhere have none.
void forget_lines(JsonValue& value) {
  value.line = 0;
  for (JsonValue& item : value.items) forget_lines(item);
  for (JsonMember& member : value.members) {
    member.line = 0;
    forget_lines(member.value);
  }
}

class ScenarioReader {
 public:
  ScenarioReader(JsonValue root, const std::string& path, const ScenarioOptions& options)
      : root_(std::move(root)), options_(options), report_(path) {
    scenario_.path = path;
  }

  Result<Scenario> read() {
    file_runtime_ = runtime_of_file(root_);
    for (const auto step : {&ScenarioReader::rename_keys, &ScenarioReader::override_keys,
                            &ScenarioReader::count_layers, &ScenarioReader::check,
                            &ScenarioReader::model, &ScenarioReader::cluster, &ScenarioReader::plan,
                            &ScenarioReader::train, &ScenarioReader::variation}) {
      (this->*step)();
      if (!report_.ok()) return report_.error();
      if (nested_error_) return *nested_error_;
    }
    return std::move(scenario_);
  }

 private:
  // --cluster, --gpus and --set, in this order: as if the file said so.
  void override_keys() {
    if (!root_.is(JsonKind::Object)) return;  // check() says so
    if (options_.cluster) {
      // A path of the command line is relative to where the user stands.
      const auto found = find_meant(*options_.cluster, "", "cluster");
      if (!found) return report_.fail(0, "cluster", no_such_file(*options_.cluster, "clusters"));
      JsonValue name;
      name.kind = JsonKind::String;
      name.text = *options_.cluster;
      set({"cluster"}, std::move(name));
      cluster_path_ = *found;
    }
    if (options_.gpus) {
      JsonValue count;
      count.kind = JsonKind::Integer;
      count.integer = *options_.gpus;
      count.number = static_cast<double>(*options_.gpus);
      set({"gpus"}, std::move(count));
    }
    for (const std::string& text : options_.overrides) {
      override_key(text);
      if (!report_.ok() || nested_error_) return;
    }
  }

  void override_key(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return report_.fail(0, "", "--set " + json_excerpt(text) + ": must be KEY=VALUE");
    }
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(utf8_length(rest))) {
      if (utf8_length(rest) > 0) continue;
      return report_.fail(0, text.substr(0, equals), "--set: the value is not UTF-8 text");
    }
    std::vector<std::string> keys;
    for (std::size_t at = 0; at <= equals;) {
      const std::size_t end = std::min(text.find('.', at), equals);
      keys.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    const std::string value = text.substr(equals + 1);
    Result<JsonValue> parsed = parse_json(value, "");
    JsonValue json;
    if (parsed) {
      json = std::move(parsed).value();
      forget_lines(json);
    } else {  // not JSON: a string, as it is
      json.kind = JsonKind::String;
      json.text = value;
    }
    if (keys.size() > 1 && keys[0] == "plan") keys[1] = plan_key(keys[1]);
    set(keys, std::move(json));
  }

  // What other programs call the plan's keys.
  void rename_keys() {
    JsonMember* plan = root_.is(JsonKind::Object) ? find_member(root_, "plan") : nullptr;
    if (plan != nullptr) rename_plan_keys(plan->value, report_);
  }
  // num_layers_per_virtual_pipeline_stage waits until the model is read.
  void count_layers() {
    JsonMember* plan = root_.is(JsonKind::Object) ? find_member(root_, "plan") : nullptr;
    JsonMember* layers = plan != nullptr && plan->value.is(JsonKind::Object)
                             ? find_member(plan->value, std::string(kLayersPerVirtualStage))
                             : nullptr;
    if (layers == nullptr) return;
    const JsonValue value = layers->value;
    if (!value.is(JsonKind::Integer) || value.integer < 1) {
      return report_.fail(value.line, "plan." + layers->key, "must be an integer of at least 1");
    }
    layers_per_stage_ = value.integer;
    std::erase_if(plan->value.members,
                  [](const JsonMember& member) { return member.key == kLayersPerVirtualStage; });
  }

  void set(const std::vector<std::string>& keys, JsonValue value) {
    JsonValue* at = &root_;
    if (keys.size() == 1 && keys[0] == "model") model_path_.clear();
    if (keys.size() == 1 && keys[0] == "cluster") cluster_path_.clear();
    std::string path;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      path = join_key(path, keys[i]);
      if (i == 1 && at->is(JsonKind::String)) open_in_place(keys[0], *at);
      if (nested_error_ || !report_.ok()) return;
      if (at->is(JsonKind::Null)) *at = empty_object(0);
      if (!at->is(JsonKind::Object)) {
        return report_.fail(0, path, "--set goes into a value that is not an object");
      }
      JsonMember* member = find_member(*at, keys[i]);
      if (member == nullptr) {
        at->members.push_back({keys[i], 0, {}});
        member = &at->members.back();
      }
      at = &member->value;
      if (i + 1 == keys.size()) member->line = 0;
    }
    *at = std::move(value);
  }

  // The file that a key, `model` or `cluster`, names; a short name of a shipped one is said.
  std::optional<std::string> find_meant(const std::string& name, const std::string& from,
                                        const std::string& key) {
    auto found = find_file(name, from, key + "s");
    if (found || name.ends_with(".json")) return found;  // a file that is not there
    const std::optional<std::string> id = meant_id(name, key + "s");
    if (!id) return found;
    scenario_.warnings.push_back(key + ": " + json_excerpt(name) + " is taken as " + *id);
    return find_file(*id, from, key + "s");
  }
  // The same; `known` is where --cluster has found it already, or empty.
  std::optional<std::string> find_named(const std::string& name, const std::string& key,
                                        const std::string& known) {
    return known.empty() ? find_meant(name, report_.path(), key) : known;
  }

  // --set model.num_hidden_layers=4 where `model` names a file: the file's object takes its place.
  void open_in_place(const std::string& key, JsonValue& value) {
    if (key != "model" && key != "cluster") return;
    std::string& origin = key == "model" ? model_path_ : cluster_path_;
    const auto found = find_named(value.text, key, origin);
    if (!found) return report_.fail(value.line, key, no_such_file(value.text, key + "s"));
    const std::int32_t line = value.line;
    Result<JsonValue> inside = read_json(*found);
    if (!inside) {
      nested_error_ = inside.error();
      return;
    }
    value = std::move(inside).value();
    forget_lines(value);
    value.line = line;
    origin = *found;
  }

  void check() {
    check_keys(root_, scenario_key_table(), "", report_);
    const JsonValue* name = root_.given("name");
    scenario_.name = name != nullptr ? name->text : stem_of(report_.path());
  }

  void model() {
    const JsonValue* model = root_.given("model");
    if (model == nullptr) {
      if (options_.needs_model) report_.fail(root_.line, "model", "is required");
      return;
    }
    has_model_ = true;
    if (model->is(JsonKind::Object)) {
      return take(parse_model_file(*model, model_path_.empty() ? "inline" : stem_of(model_path_),
                                   "model", report_));
    }
    const auto found = find_meant(model->text, report_.path(), "model");
    if (!found) return report_.fail(model->line, "model", no_such_file(model->text, "models"));
    Result<ModelFile> read = read_model_file(*found);
    if (read) {
      take(std::move(read).value());
    } else {
      nested_error_ = read.error();
    }
  }

  void take(ModelFile file) {
    scenario_.model = std::move(file.model);
    scenario_.model_notes = std::move(file.use.notes);
    use_ = std::move(file.use);
  }

  // The cluster is opened by sim; here only its gpus_per_node is read ahead.
  void cluster() {
    const JsonValue* cluster = root_.given("cluster");
    ClusterSource& source = scenario_.cluster;
    source.gpus_per_node = 1;
    if (cluster == nullptr) {
      if (options_.needs_cluster) report_.fail(root_.line, "cluster", "is required");
      return;
    }
    if (cluster->is(JsonKind::Object)) {
      source.path = cluster_path_.empty() ? report_.path() : cluster_path_;
      source.inline_json = to_json_text(*cluster);
      source.line = cluster->line;
      return node_size(*cluster, "cluster.", report_);
    }
    const auto found = find_named(cluster->text, "cluster", cluster_path_);
    if (!found)
      return report_.fail(cluster->line, "cluster", no_such_file(cluster->text, "clusters"));
    source.path = *found;
    const Result<JsonValue> file = read_json(*found);
    JsonReport inside(*found);
    if (file) {
      node_size(file.value(), "", inside);
      if (!inside.ok()) nested_error_ = inside.error();
    } else {
      nested_error_ = file.error();
    }
  }

  void node_size(const JsonValue& cluster, const std::string& prefix, JsonReport& report) {
    const JsonValue* given = cluster.given("gpus_per_node");
    if (!cluster.is(JsonKind::Object)) return report.fail(cluster.line, "", "must be an object");
    if (given == nullptr) return report.fail(cluster.line, prefix + "gpus_per_node", "is required");
    JsonValue count = *given;
    drop_sources(count);
    if (!count.is(JsonKind::Integer) || count.integer < 1 || count.integer > 65536) {
      return report.fail(given->line, prefix + "gpus_per_node",
                         "must be an integer from 1 to 65536");
    }
    scenario_.cluster.gpus_per_node = static_cast<std::int32_t>(count.integer);
    const JsonValue* used = root_.given("domain_gpus");
    if (used == nullptr) return;
    if (used->integer > count.integer) {
      return report_.fail(used->line, "domain_gpus",
                          std::to_string(used->integer) + " of the " +
                              std::to_string(count.integer) + " GPUs of a node");
    }
    scenario_.cluster.domain_gpus = static_cast<std::int32_t>(used->integer);
    scenario_.cluster.gpus_per_node = scenario_.cluster.domain_gpus;
  }

  void plan() {
    const JsonValue nothing = empty_object(root_.line);
    const JsonValue* given = root_.given("plan");
    JsonValue json = given == nullptr ? nothing : *given;
    count_virtual_stages(json);
    if (!report_.ok()) return;
    const JsonValue* gpus = root_.given("gpus");
    PlanContext context{.model = has_model_ ? &scenario_.model : nullptr,
                        .gpus_per_node = scenario_.cluster.gpus_per_node,
                        .runtime = options_.runtime.value_or(file_runtime_)};
    if (gpus != nullptr) {
      context.gpus = static_cast<std::int32_t>(gpus->integer);
      context.gpus_line = gpus->line;
    } else if (scenario_.cluster.path.empty()) {
      // Without a cluster there is no node to fill: one replica.
      context.gpus_per_node = said_gpus_of_a_replica(json);
    }
    scenario_.plan = resolve_plan(json, context, report_, scenario_.warnings);
    if (!report_.ok()) return;
    scenario_.gpus = scenario_.plan.gpus();
    for (const JsonMember& member : json.members) {
      if (!member.value.is(JsonKind::Null)) scenario_.given.push_back(member.key);
    }
    if (options_.runtime) scenario_.given.emplace_back(key_of(&Plan::runtime));
    note_defaults(json);
    if (scenario_.plan.schedule.starts_with("file:")) find_schedule_file(json);
    scenario_.run_notes = said_of(root_);
    scenario_.unperformed = std::move(use_.unperformed);
    for (Unperformed& key : unperformed_of(root_, report_.path())) {
      scenario_.unperformed.push_back(std::move(key));
    }
    if (!has_model_) return;
    if (scenario_.plan.runtime.own_executor) {
      std::ranges::move(use_.run_notes, std::back_inserter(scenario_.model_notes));
    }
    for (Unperformed& key :
         unperformed_pairs(scenario_.model, scenario_.plan, root_, report_.path())) {
      scenario_.unperformed.push_back(std::move(key));
    }
  }

  // What num_layers_per_virtual_pipeline_stage means: layers / positions / it chunks.
  void count_virtual_stages(JsonValue& plan) {
    if (layers_per_stage_ == 0) return;
    const JsonValue* positions = given_in(plan, &Plan::pipeline_parallel);
    const std::int64_t p = positions == nullptr ? 1 : std::max<std::int64_t>(positions->integer, 1);
    const std::int64_t each = p * layers_per_stage_, layers = scenario_.model.layers;
    const std::string key = "plan." + std::string(kLayersPerVirtualStage);
    if (!has_model_ || layers % each != 0) {
      return report_.fail(0, key,
                          std::to_string(layers_per_stage_) + " does not divide the " +
                              std::to_string(layers) + " layers over pipeline_parallel " +
                              std::to_string(p));
    }
    JsonValue stages;
    stages.kind = JsonKind::Integer;
    stages.integer = layers / each;
    stages.number = static_cast<double>(stages.integer);
    plan.members.push_back({std::string(key_of(&Plan::virtual_stages)), 0, stages});
  }

  void note_defaults(const JsonValue& json) {
    const Plan& plan = scenario_.plan;
    std::vector<std::string>& notes = scenario_.plan_notes;
    const bool by_stage = file_runtime_ != RuntimeTraits{}.name;
    if (by_stage && !options_.runtime && given_in(json, &Plan::runtime) == nullptr) {
      notes.push_back("plan.runtime is left out: " + plan.runtime.name + " (" + plan.runtime.title +
                      "), since the file says zero_stage 3");
    }
    const std::string experts = has_model_ ? expert_default_note(json, scenario_.model, plan) : "";
    if (!experts.empty()) notes.push_back(experts);
  }

  void find_schedule_file(const JsonValue& plan) {
    const std::string name = scenario_.plan.schedule.substr(5);
    const auto found = find_file(name, report_.path(), "");
    if (!found) {
      return report_.fail(given_in(plan, &Plan::schedule)->line, "plan." + path_of(&Plan::schedule),
                          "no such file: " + json_excerpt(name));
    }
    scenario_.plan.schedule = "file:" + *found;
  }

  void train() {
    const JsonValue nothing = empty_object(root_.line);
    const JsonValue* train = root_.given("train");
    const Transformer* model = has_model_ ? &scenario_.model : nullptr;
    scenario_.train =
        read_train(train == nullptr ? nothing : *train, model, scenario_.plan.optimizer, report_);
    scenario_.plan.router_balance = router_balance(scenario_.train);
    if (train == nullptr || train->given("loss_scale") == nullptr) return;
    const ComputeType type = scenario_.plan.precision.compute;
    if (type == ComputeType::Fp16) return;
    scenario_.warnings.push_back("train.loss_scale changes nothing: the plan computes in " +
                                 std::string(name_of(type)) + ", not in fp16");
  }

  void variation() {
    const JsonValue* given = root_.given("variation");
    if (given != nullptr) scenario_.variation = read_variation(*given, scenario_.gpus, report_);
  }

  JsonValue root_;
  const ScenarioOptions& options_;
  JsonReport report_;
  std::optional<Error> nested_error_;  // of another file
  std::string model_path_, cluster_path_;
  std::string file_runtime_;  // the default that the file has before anything is set over it
  bool has_model_ = false;
  std::int64_t layers_per_stage_ = 0;  // num_layers_per_virtual_pipeline_stage; 0: not said
  ConfigUse use_;
  Scenario scenario_;
};

// A scenario of this document. Beside it, where --cluster is given, the cluster that it names
// itself.
Result<Scenario> read_document(JsonValue root, const std::string& path,
                               const ScenarioOptions& options) {
  if (!options.cluster) return ScenarioReader(std::move(root), path, options).read();
  Result<Scenario> read = ScenarioReader(root, path, options).read();
  if (!read) return read;
  Scenario scenario = std::move(read).value();
  ScenarioOptions as_filed = options;
  as_filed.cluster.reset();
  Result<Scenario> filed = ScenarioReader(std::move(root), path, as_filed).read();
  if (filed) scenario.file_cluster = std::move(filed).value().cluster;  // else it names none
  return scenario;
}

}  // namespace

std::vector<std::string> Scenario::notes() const {
  std::vector<std::string> notes;
  for (const Unperformed& key : unperformed) {
    if (key.priced.empty()) continue;
    const bool own = key.file == path;  // else of the model's own file
    notes.push_back((own ? "" : "model.") + priced_note(key));
  }
  notes.insert(notes.end(), plan_notes.begin(), plan_notes.end());
  notes.insert(notes.end(), model_notes.begin(), model_notes.end());
  return notes;
}

Result<Scenario> parse_scenario(std::string_view text, const std::string& path, std::int32_t line,
                                const ScenarioOptions& options) {
  Result<JsonValue> root = parse_json(text, path, line);
  if (!root) return root.error();
  return read_document(std::move(root).value(), path, options);
}

Result<Scenario> read_scenario(const std::string& named, const ScenarioOptions& options) {
  std::string path = named;
  Result<JsonValue> root = open_scenario(path);
  if (!root) return root.error();
  return read_document(std::move(root).value(), path, options);
}

}  // namespace rehearse
