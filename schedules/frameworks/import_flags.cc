// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/import_flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "schedules/base/files.h"
#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"
#include "schedules/frameworks/flag_values.h"
#include "schedules/frameworks/model_facts.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace {

constexpr std::int32_t kMostGpus = 1 << 20;

// A key of the scenario that is being made, and the flag that says it; nullptr: the framework's own
// value.
struct SaidKey {
  Json value;
  const Setting* by = nullptr;
};

void set_member(Json& object, std::string_view path, Json value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) {
    object[path] = std::move(value);
    return;
  }
  set_member(object[path.substr(0, dot)], path.substr(dot + 1), std::move(value));
}

class Importer {
 public:
  Importer(const Framework& framework, const Settings& settings, const ImportOptions& options)
      : framework_(framework), settings_(settings), options_(options) {
    made_.framework = framework.name;
    made_.title = framework.title;
    made_.warnings = settings.warnings;
  }

  Result<Imported> run() {
    if (const Json why = framework_.lookup("refused_programs", settings_.program); !why.is_null()) {
      return Error{file() + ": " + settings_.program + ": " + shown(why)};
    }
    if (const Result<> known = report_flags(); !known) return known.error();
    Result<std::map<std::string, GivenFlag>> values =
        flag_values(framework_, settings_.flags, made_.warnings);
    if (!values) return values.error();
    flags_ = std::move(values).value();
    if (const Result<> model = open_model(); !model) return model.error();
    if (const Result<> taken = take_flags(); !taken) return taken.error();
    name_model();
    for (const Step& step : framework_.import_steps) {
      if (const Result<> done = take_step(step); !done) return done.error();
    }
    if (const Result<> launched = resolve_gpus(); !launched) return launched.error();
    if (const Result<> read = read_scenario_text(); !read) return read.error();
    for (const Setting& variable : settings_.launch.environment) report_variable(variable);
    return std::move(made_);
  }

 private:
  // --- what becomes of every flag

  // A name may be given by --var; an expression may hold anything, line breaks too.
  static std::string unknown_text(const std::string& unknown) {
    const bool name = std::ranges::all_of(
        unknown, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
    if (name) return "$" + unknown + " is known to a run alone: --var " + unknown + "=VALUE";
    return json_excerpt(unknown) + " is known to a run alone, and --var gives values to names only";
  }

  Result<> report_flags() {
    for (const Setting& setting : settings_.flags) {
      FlagReport report{.setting = setting};
      if (const FlagRow* row = framework_.find(setting.flag)) {
        report.use = row->use;
        report.key = row->key;
        report.note = row->note;
        report.source = row->source;
        if (row->use == FlagUse::Used && !setting.unknown.empty()) {
          return setting_error(setting, unknown_text(setting.unknown));
        }
        if (row->use == FlagUse::Refused && !setting.null) {
          return setting_error(setting, row->note.empty() ? "no plan" : row->note);
        }
      } else if (const FlagFamily* family = framework_.family(setting.flag)) {
        report.use = family->use;
        report.note = family->note;
        if (family->use == FlagUse::Refused && !setting.null) {
          return setting_error(setting, family->note);
        }
      } else if (!options_.ignore_unknown) {
        return setting_error(setting, "no flag of " + framework_.title +
                                          " that is known here; the nearest is " +
                                          framework_.nearest_flag(setting.flag) +
                                          "; --ignore-unknown goes on without it");
      }
      made_.flags.push_back(std::move(report));
    }
    return {};
  }
  void report_variable(const Setting& variable) {
    FlagReport report{.setting = variable, .use = FlagUse::NoEffect};
    if (read_variables_.contains(variable.flag)) report.use = FlagUse::Used;
    made_.environment.push_back(std::move(report));
  }

  // --- what formulas may ask for

  Names names() {
    return {.value = [this](const std::string& name) { return value_of(name); },
            .given = [this](const std::string& name) { return flags_.contains(name); },
            .lookup = [this](const std::string& table,
                             const std::string& text) { return framework_.lookup(table, text); }};
  }
  Result<Json> value_of(const std::string& name) {
    if (const auto let = lets_.find(name); let != lets_.end()) return let->second;
    if (const auto flag = flags_.find(name); flag != flags_.end()) {
      if (asked_ == nullptr) asked_ = flag->second.setting;
      return flag->second.value;
    }
    if (const FlagRow* row = framework_.find_by_name(name)) return row->standard;
    if (const auto key = keys_.find(name); key != keys_.end()) return key->second.value;
    if (name == "gpus" || name == "d" || name == "m") {
      if (const Result<> launched = resolve_gpus(); !launched) return launched.error();
      if (name == "gpus") return Json(gpus_);
      if (name == "d") return Json(replicas());
      const std::int64_t each = replicas() * size("plan.micro_batch");
      return Json(each == 0 ? 0 : size("plan.global_batch") / each);
    }
    if (name == "base") return Json(!options_.base.empty());
    if (name == "nodes") return Json(settings_.launch.nodes);
    if (name == "gpus_per_node") return Json(settings_.launch.gpus_per_node);
    if (name.starts_with("env.")) return variable(name.substr(4));
    if (name.starts_with("set.")) return override_of(name.substr(4));
    if (name.starts_with("model.")) return member_at(facts_, std::string_view(name).substr(6));
    return Json();
  }
  Json override_of(const std::string& key) const {
    for (const std::string& set : options_.set) {
      if (set.starts_with(key + "=")) return Json(set.substr(key.size() + 1));
    }
    return Json();
  }
  Json variable(const std::string& name) {
    for (const Setting& one : settings_.launch.environment) {
      if (one.flag != name) continue;
      read_variables_.insert(name);
      return Json(one.values.empty() ? std::string() : one.values[0]);
    }
    return Json();
  }
  std::int64_t size(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() || !found->second.value.is_number()
               ? 1
               : std::max<std::int64_t>(found->second.value.integer(), 1);
  }
  std::int64_t mesh() const {
    return size("plan.tensor_parallel") * size("plan.pipeline_parallel") *
           size("plan.context_parallel");
  }
  std::int64_t replicas() const { return std::max<std::int64_t>(gpus_ / mesh(), 1); }

  // The smallest number of GPUs from `asked` on that the mesh divides, and the experts'.
  std::int64_t legal_gpus(std::int64_t asked) const {
    const std::int64_t stage = mesh() / size("plan.pipeline_parallel");
    const auto tensor = keys_.contains("plan.expert_tensor_parallel")
                            ? size("plan.expert_tensor_parallel")
                            : size("plan.tensor_parallel");
    const std::int64_t experts = size("plan.expert_parallel") * tensor;
    std::int64_t legal = (asked + mesh() - 1) / mesh() * mesh();
    while (legal <= kMostGpus && legal / mesh() * stage % experts != 0) legal += mesh();
    return legal;
  }
  Result<> resolve_gpus() {
    if (gpus_ > 0) return {};
    if (options_.gpus > 0) {
      gpus_ = options_.gpus;
      return {};
    }
    if (keys_.contains("gpus")) {
      gpus_ = static_cast<std::int32_t>(std::min<std::int64_t>(size("gpus"), kMostGpus));
      return {};
    }
    const std::int32_t asked = settings_.launch.gpus > 0 ? settings_.launch.gpus : base_gpus_;
    if (asked == 0) return Error{file() + ": it does not say how many GPUs there are: --gpus N"};
    const std::int64_t legal = legal_gpus(asked);
    if (legal > kMostGpus) return Error{file() + ": no number of GPUs fits its layout: --gpus N"};
    gpus_ = static_cast<std::int32_t>(legal);
    if (legal != asked) {
      made_.warnings.push_back("the " + std::to_string(asked) +
                               " GPUs that it launches are no multiple of its layout, " +
                               std::to_string(mesh()) +
                               " in a replica: gpus = " + std::to_string(legal) +
                               " (the smallest that fits); --gpus N says otherwise");
    }
    return {};
  }
  std::string file() const {
    return settings_.flags.empty() ? framework_.title : settings_.flags.front().file;
  }

  // --- the model that the command line or a file's flags name

  Result<> open_model() {
    if (!options_.model_json.empty()) {
      keys_["model"] = {Json::parse(options_.model_json), nullptr};
      take_facts(options_.model_json);
    }
    if (options_.model.empty() && !options_.base.empty()) return open_base();
    if (options_.model.empty()) return {};
    const Result<ModelFile> read = read_named_model(options_.model);
    if (!read) return read.error();
    facts_ = model_facts(read.value().model);
    return {};
  }
  Result<> open_base() {
    const Result<JsonValue> base = read_json(scenario_file(options_.base));
    if (!base) return base.error();
    if (const JsonValue* model = base.value().given("model")) take_facts(to_json_text(*model));
    if (const JsonValue* gpus = base.value().given("gpus"); gpus != nullptr && gpus_ == 0) {
      base_gpus_ = static_cast<std::int32_t>(gpus->integer);
    }
    return {};
  }
  static Result<ModelFile> read_named_model(const std::string& name) {
    const std::optional<std::string> path = find_file(name, "", "models");
    if (!path)
      return Error{"--model " + json_excerpt(name) +
                   ": no such file, nor a shipped model: rehearse list models"};
    return read_model_file(*path);
  }
  // A row of the framework's own models, all of whose flags are as they stand here.
  void name_model() {
    if (!options_.model.empty() || !options_.model_json.empty()) return;
    for (const NamedModel& model : framework_.models) {
      const Setting* by = nullptr;
      const bool same = std::ranges::all_of(model.flags, [&](const auto& flag) {
        const auto found = flags_.find(flag.first);
        if (found == flags_.end() || !matches(flag.second, shown(found->second.value)))
          return false;
        by = found->second.setting;
        return true;
      });
      if (!same) continue;
      keys_["model"] = {Json::parse(model.config), by};
      return take_facts(model.config);
    }
  }
  // Takes what a model says of itself, as JSON: an object, or the name of a shipped one.
  void take_facts(const std::string& config) {
    JsonReport report("model");
    const Result<JsonValue> read = parse_json(config, "model");
    if (!read) return;
    if (read.value().is(JsonKind::String)) {
      const Result<ModelFile> shipped = read_named_model(read.value().text);
      if (shipped) facts_ = model_facts(shipped.value().model);
      return;
    }
    const ModelFile made = parse_model_file(read.value(), "model", "model", report);
    if (report.ok()) facts_ = model_facts(made.model);
  }

  // --- keys

  void set_key(const std::string& key, Json value, const Setting* by) {
    if (value.is_null()) {
      keys_.erase(key);
      std::erase(order_, key);
      return;
    }
    if (!keys_.contains(key)) order_.push_back(key);
    keys_[key] = {std::move(value), by};
  }

  // Flags that are keys of their own.
  Result<> take_flags() {
    for (const FlagRow& row : framework_.flags) {
      if (!row.sets) continue;
      const auto given = flags_.find(row.name);
      const bool said = given != flags_.end();
      Json value = said ? given->second.value : row.standard;
      if (row.takes == Takes::Yes) {
        if (said)
          set_key(row.key, row.value, given->second.setting);
        else if (!row.standard.is_null() && !keys_.contains(row.key)) {
          set_key(row.key, row.standard, nullptr);
        }
        continue;
      }
      if (!row.words.empty() && !value.is_null()) {
        const auto word = std::ranges::find_if(
            row.words, [&](const auto& one) { return matches(one.first, shown(value)); });
        if (word == row.words.end()) {
          if (said) return setting_error(*given->second.setting, unknown_word(row, shown(value)));
          continue;
        }
        value = word->second;
      }
      if (!value.is_null())
        set_key(row.key, std::move(value), said ? given->second.setting : nullptr);
    }
    return {};
  }
  static std::string unknown_word(const FlagRow& row, const std::string& word) {
    std::vector<std::string_view> known;
    for (const auto& one : row.words) known.push_back(one.first);
    return "not a value that is known here: " + json_excerpt(word) + what_is_known(word, known);
  }

  Error at_flag(const Step& step, const std::string& what) const {
    const Setting* by = asked_;
    if (!step.name.empty() && (step.kind == Step::Kind::Refuse || step.kind == Step::Kind::Say)) {
      const auto named = flags_.find(formula_name(step.name));
      if (named != flags_.end()) by = named->second.setting;
    }
    return by == nullptr ? Error{file() + ": " + what} : setting_error(*by, what);
  }

  Result<> take_step(const Step& step) {
    asked_ = nullptr;
    const Names names = this->names();
    if (step.when) {
      const Result<Json> when = step.when->evaluate(names);
      if (!when) return at_flag(step, when.error().message);
      if (!holds(when.value())) return {};
    }
    if (step.kind == Step::Kind::Let || step.kind == Step::Kind::Set) {
      Result<Json> value = step.to ? step.to->evaluate(names) : Result<Json>(Json());
      if (!value) return at_flag(step, value.error().message);
      if (step.kind == Step::Kind::Let)
        lets_[step.name] = std::move(value).value();
      else
        set_key(step.name, std::move(value).value(), asked_);
      return {};
    }
    const Result<std::string> text = step.text.written(names);
    if (!text) return at_flag(step, text.error().message);
    if (step.kind == Step::Kind::Refuse) return at_flag(step, text.value());
    if (step.kind == Step::Kind::Warn) made_.warnings.push_back(text.value());
    if (step.kind != Step::Kind::Say) return {};
    for (FlagReport& report : made_.flags) {
      const FlagRow* row = framework_.find(report.setting.flag);
      if (row == nullptr || row->flag != step.name) continue;
      report.use = step.use;
      report.note = text.value();
    }
    return {};
  }

  // --- the scenario

  Result<> read_scenario_text();
  Result<Json> document();
  Result<Scenario> parse(const std::string& text) const;
  static Result<> take_override(Json& document, const std::string& set);
  Error blamed(const Error& error) const;
  void leave_out_defaults(Json& document);
  void name_precision(Json& document);
  void say_model_is_another();

  const Framework& framework_;
  const Settings& settings_;
  const ImportOptions& options_;
  Imported made_;
  std::map<std::string, GivenFlag> flags_;
  std::map<std::string, Json> lets_;
  std::map<std::string, SaidKey> keys_;
  std::vector<std::string> order_;
  std::set<std::string> read_variables_;
  Json facts_ = Json::object();
  const Setting* asked_ = nullptr;  // the first flag that a step asked for
  std::int32_t gpus_ = 0, base_gpus_ = 0;
  bool model_is_here_ = false;  // the flags say its shape
};

// A member per line, lists on one.
std::string lines_of(const Json& object, const std::string& indent) {
  std::string text;
  for (const auto& [key, value] : object.members()) {
    text += (text.empty() ? "" : ",") + ("\n" + indent + "  ") + json_quoted(key) + ": ";
    text += value.is_object() ? lines_of(value, indent + "  ") : value.dump();
  }
  return "{" + text + "\n" + indent + "}";
}

constexpr std::string_view kOrigin = "import";

// The scenario's members in the order in which people read them.
Result<Json> Importer::document() {
  Json plan = Json::object(), model = Json::object(), train = Json::object();
  Json made{{"name", options_.name.empty() ? framework_.title : options_.name}};
  if (!options_.base.empty()) {
    std::string path = options_.base;
    path = scenario_file(path);
    const Result<JsonValue> base = read_json(path);
    if (!base) return base.error();
    made = Json(base.value());
    if (const Json* old = made.find("plan")) plan = *old;
    if (const Json* old = made.find("train")) train = *old;
  }
  const bool over = !options_.base.empty();
  for (const std::string& key : order_) {
    const SaidKey& said = keys_.at(key);
    if (over && said.by == nullptr) continue;  // the base's value, not the framework's
    if (key.starts_with("plan."))
      set_member(plan, std::string_view(key).substr(5), said.value);
    else if (key.starts_with("model."))
      set_member(model, std::string_view(key).substr(6), said.value);
    else if (key.starts_with("train."))
      set_member(train, std::string_view(key).substr(6), said.value);
  }
  if (!options_.runtime.empty()) plan["runtime"] = options_.runtime;
  if (!options_.model.empty()) {
    const std::optional<std::string> path = find_file(options_.model, "", "models");
    made["model"] = path.value_or(options_.model);
  } else if (keys_.contains("model")) {
    made["model"] = keys_.at("model").value;
    // The flags say nothing of its shape but the vocabulary.
    const auto vocabulary = keys_.find("model.vocab_size");
    if (made["model"].is_object() && vocabulary != keys_.end() &&
        vocabulary->second.by != nullptr) {
      made["model"]["vocab_size"] = vocabulary->second.value;
    }
  } else if (!over || !made.contains("model")) {
    if (model.empty())
      return Error{file() + ": it does not say which model it trains: --model FILE"};
    made["model"] = std::move(model);
    model_is_here_ = true;
  }
  if (!model_is_here_) say_model_is_another();
  if (!options_.cluster.empty()) made["cluster"] = options_.cluster;
  made["gpus"] = gpus_;
  made["plan"] = std::move(plan);
  if (!train.empty()) made["train"] = std::move(train);
  for (const std::string& set : options_.set) {
    if (const Result<> done = take_override(made, set); !done) return done.error();
  }
  return made;
}

// Flags of a model's shape, where the model is one that is named.
void Importer::say_model_is_another() {
  for (FlagReport& report : made_.flags) {
    const auto said = keys_.find(report.key);
    const bool taken = said != keys_.end() && said->second.by != nullptr &&
                       report.key == "model.vocab_size" && keys_.contains("model");
    if (report.use != FlagUse::Used || !report.key.starts_with("model.") || taken) continue;
    report.use = FlagUse::NoEffect;
    report.note = "the model is the one that is named: nothing of its shape is taken from here";
  }
}

// KEY=VALUE of --set, VALUE as JSON or else a string.
Result<> Importer::take_override(Json& document, const std::string& set) {
  const std::size_t equals = set.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return Error{"--set " + json_excerpt(set) + ": KEY=VALUE is expected"};
  }
  const std::string key = set.substr(0, equals), text = set.substr(equals + 1);
  const Result<JsonValue> value = parse_json(text, "--set");
  if (key.starts_with("model.") && document["model"].is_string()) {
    const Result<JsonValue> file = read_json(document["model"].text());
    if (!file) return file.error();
    document["model"] = Json(file.value());
  }
  set_member(document, key, value ? Json(value.value()) : Json(text));
  return {};
}

Result<Scenario> Importer::parse(const std::string& text) const {
  ScenarioOptions how;
  const Result<JsonValue> read = parse_json(text, std::string(kOrigin));
  how.needs_cluster = read && read.value().given("cluster") != nullptr;
  return parse_scenario(text, std::string(kOrigin), 1, how);
}

// An error of the reader, "import:12: plan.x: what", at the flag that said plan.x.
Error Importer::blamed(const Error& error) const {
  std::string_view rest = error.message;
  if (!rest.starts_with(kOrigin)) return error;
  rest.remove_prefix(kOrigin.size());
  while (!rest.empty() && (rest.front() == ':' || rest.front() == ' ' ||
                           (rest.front() >= '0' && rest.front() <= '9'))) {
    rest.remove_prefix(1);
  }
  std::string key(rest.substr(0, rest.find(": ")));
  const std::string what(rest.size() > key.size() + 2 ? rest.substr(key.size() + 2) : rest);
  for (std::string at = key; !at.empty();) {
    const auto said = keys_.find(at);
    if (said != keys_.end() && said->second.by != nullptr) {
      Error made = setting_error(*said->second.by, key + ": " + what);
      made.unsupported = error.unsupported;
      return made;
    }
    const std::size_t dot = at.rfind('.');
    at = dot == std::string::npos ? "" : at.substr(0, dot);
  }
  return Error{file() + ": " + std::string(rest), error.unsupported, error.infeasible};
}

// Bytes that a word says become the word.
void Importer::name_precision(Json& document) {
  Json& plan = document["plan"];
  const Json* said = plan.find("precision");
  if (said == nullptr || !said->is_object()) return;
  const Json whole = *said;
  const Result<Scenario> as_said = parse(lines_of(document, ""));
  if (!as_said) return;
  for (const std::string_view word : kComputeTypeNames) {
    plan["precision"] = word;
    const Result<Scenario> named = parse(lines_of(document, ""));
    if (!named) continue;
    Precision precision = named.value().plan.precision;
    precision.name = as_said.value().plan.precision.name;
    if (precision == as_said.value().plan.precision) return;
  }
  plan["precision"] = whole;
}

// Keys without which the scenario is the same; sizes, batch, order and precision stay.
void Importer::leave_out_defaults(Json& document) {
  const Result<Scenario> whole = parse(lines_of(document, ""));
  if (!whole) return;
  static const std::set<std::string, std::less<>> kStay{
      "tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch", "global_batch",
      "sequence_length", "schedule",          "precision",     "zero_stage",  "runtime"};
  const auto tried = [&](Json& object, const std::string& key) {
    Json without = object;
    without.erase(key);
    std::swap(object, without);
    const Result<Scenario> read = parse(lines_of(document, ""));
    if (!read || !(read.value().plan == whole.value().plan)) std::swap(object, without);
  };
  std::vector<std::string> keys;
  for (const Json::Member& member : document["plan"].members()) {
    if (!kStay.contains(member.key)) keys.push_back(member.key);
  }
  for (const std::string& key : keys) {
    Json& plan = document["plan"];
    if (plan[key].is_object()) {
      std::vector<std::string> inner;
      for (const Json::Member& member : plan[key].members()) inner.push_back(member.key);
      for (const std::string& one : inner) tried(document["plan"][key], one);
    }
    tried(document["plan"], key);
  }
}

Result<> Importer::read_scenario_text() {
  Result<Json> made = document();
  if (!made) return made.error();
  Json whole = std::move(made).value();
  std::string text = lines_of(whole, "");
  Result<Scenario> read = parse(text);
  if (!read) return blamed(read.error());
  if (options_.brief) {
    name_precision(whole);
    leave_out_defaults(whole);
    text = lines_of(whole, "");
    read = parse(text);
    if (!read) return blamed(read.error());
  }
  for (const std::string& warning : read.value().warnings) made_.warnings.push_back(warning);
  made_.scenario = std::move(read).value();
  made_.text = text + "\n";
  return {};
}

}  // namespace

Result<Imported> import_flags(const Framework& framework, const Settings& settings,
                              const ImportOptions& options) {
  Result<Imported> made = Importer(framework, settings, options).run();
  if (made || settings.missing_base.empty()) return made;
  Error error = made.error();
  error.message += "; what it rests on, " + settings.missing_base + ", is not beside it";
  return error;
}

}  // namespace rehearse
