// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/emit_flags.h"

#include <algorithm>
#include <map>

#include "schedules/frameworks/emitted_files.h"
#include "schedules/frameworks/import_flags.h"
#include "schedules/frameworks/model_facts.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/keys/plan_notes.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/stage_layers.h"

namespace rehearse {
namespace {

Json train_facts(const TrainOptions& t) {
  return {{"steps", t.steps},
          {"learning_rate", number_value(t.learning_rate)},
          {"min_learning_rate", number_value(t.min_learning_rate)},
          {"lr_decay", t.lr_decay},
          {"warmup_steps", t.warmup_steps},
          {"beta1", number_value(t.beta1)},
          {"beta2", number_value(t.beta2)},
          {"epsilon", number_value(t.epsilon)},
          {"weight_decay", number_value(t.weight_decay)},
          {"clip_norm", number_value(t.clip_norm)},
          {"seed", t.seed},
          {"weight_decay_matrices_only", t.weight_decay_matrices_only},
          {"router_auxiliary_loss", number_value(t.router_auxiliary_loss)},
          {"router_z_loss", number_value(t.router_z_loss)},
          {"router_bias_rate", number_value(t.router_bias_rate)}};
}

class Emitter {
 public:
  Emitter(const Framework& framework, const Scenario& scenario, const std::string& model_json,
          std::int32_t gpus_per_node)
      : framework_(framework), scenario_(scenario), model_json_(model_json) {
    const Plan& plan = scenario.plan;
    const std::int32_t gpus = plan.gpus(), node = std::min(gpus, gpus_per_node);
    facts_ = {{"plan", Json::parse(plan_json(plan, -1))},
              {"model", model_facts(scenario.model)},
              {"train", train_facts(scenario.train)},
              {"gpus", gpus},
              {"m", plan.microbatches()},
              {"devices", node},
              {"nodes", (gpus + node - 1) / node}};
    // In full, whatever word a plan has for it.
    const Precision& p = plan.precision;
    facts_["plan"]["precision"] = {
        {"parameters", p.parameters},
        {"gradients", p.gradients},
        {"optimizer", p.optimizer},
        {"compute", facts_["plan"]["precision"].is_object() ? facts_["plan"]["precision"]["compute"]
                                                            : facts_["plan"]["precision"]}};
    facts_["plan"]["layout"] =
        layout_text(plan.stage_layers, plan.prediction_stage, plan.prediction_layers);
    facts_["plan"]["even"] = std::ranges::adjacent_find(plan.stage_layers, std::not_equal_to<>{}) ==
                             plan.stage_layers.end();
    facts_["plan"]["selective"] = plan.recompute.is_word_selective();
  }

  Result<Emitted> run() {
    if (scenario_.plan.micro_batch_auto) {
      return Error{
          "plan.micro_batch: is still to be chosen: simulate says which is best, --set "
          "plan.micro_batch=N takes it"};
    }
    for (const Step& step : framework_.emit_steps) {
      if (const Result<> done = take_step(step); !done) return done.error();
    }
    name_model();
    for (const FlagRow& row : framework_.flags) {
      if (row.absent) continue;
      if (const Result<> done = take_row(row); !done) return done.error();
    }
    if (const Result<> done = take_environment(); !done) return done.error();
    if (made_.refused.empty()) check();
    // A key is named once, however many flags say it.
    std::ranges::sort(made_.refused);
    made_.refused.erase(std::unique(made_.refused.begin(), made_.refused.end()),
                        made_.refused.end());  // clang 14 lacks ranges::unique's
    if (const Result<> done = write_files(); !done) return done.error();
    return std::move(made_);
  }

 private:
  Names names() {
    return {.value = [this](const std::string& name) -> Result<Json> {
              if (const auto let = lets_.find(name); let != lets_.end()) return let->second;
              return member_at(facts_, name);
            },
            .given = {},
            .lookup = [this](const std::string& table,
                             const std::string& text) { return framework_.lookup(table, text); }};
  }

  Result<> take_step(const Step& step) {
    if (step.when) {
      const Result<Json> when = step.when->evaluate(names());
      if (!when) return when.error();
      if (!holds(when.value())) return {};
    }
    if (step.kind == Step::Kind::Let && step.to) {
      Result<Json> value = step.to->evaluate(names());
      if (!value) return value.error();
      lets_[step.name] = std::move(value).value();
      return {};
    }
    const Result<std::string> text = step.text.written(names());
    if (!text) return text.error();
    if (step.kind == Step::Kind::Refuse) made_.refused.push_back(text.value());
    if (step.kind == Step::Kind::Warn) made_.notes.push_back(text.value());
    return {};
  }

  // The framework's own name for a model that costs the same.
  void name_model() {
    if (framework_.models.empty()) return;
    const std::string wanted = costs(facts_["model"]);
    for (const NamedModel& model : framework_.models) {
      JsonReport report("model");
      const Result<JsonValue> read = parse_json(model.config, "model");
      if (!read) continue;
      Transformer found;
      if (read.value().is(JsonKind::String)) {
        const Result<Scenario> shipped = parse_scenario(
            R"({"model": )" + model.config + R"(, "gpus": 1, "plan": {"sequence_length": 128}})",
            "model", 1, {.needs_cluster = false});
        if (!shipped) continue;
        found = shipped.value().model;
      } else {
        found = parse_model_file(read.value(), "model", "model", report).model;
        if (!report.ok()) continue;
      }
      if (costs(model_facts(found)) != wanted) continue;
      for (const auto& [name, value] : model.flags) {
        const FlagRow* row = framework_.find_by_name(name);
        if (row != nullptr) add(*row, Json(value));
      }
      return;
    }
    made_.refused.push_back("model: " + framework_.title + " has no model of this shape by name");
  }
  static std::string costs(Json facts) {
    facts.erase("max_positions");
    return facts.dump();
  }

  void add(const FlagRow& row, const Json& value) {
    if (value.is_null() || (value.is_array() && value.empty()) ||
        (value.is_boolean() && value.integer() == 0 && row.takes == Takes::Yes)) {
      return;
    }
    Setting setting{.flag = row.flag, .file = framework_.name};
    if (value.is_array()) {
      for (const Json& item : value.items()) setting.values.push_back(shown(item));
    } else if (row.takes != Takes::Yes) {
      setting.values.push_back(shown(value));
    }
    made_.flags.push_back(std::move(setting));
    groups_.push_back(row.group);
  }

  Result<> take_row(const FlagRow& row) {
    if (row.emit) {
      const Result<Json> value = row.emit->evaluate(names());
      if (!value) return Error{row.flag + ": " + value.error().message};
      add(row, value.value());
      return {};
    }
    if (!row.sets) return {};
    const Json key = member_at(facts_, row.key);
    if (row.takes == Takes::Yes) {
      if (equal(key, row.value)) add(row, Json(true));
      return {};
    }
    if (row.words.empty()) {
      add(row, key);
      return {};
    }
    for (const auto& [word, value] : row.words) {
      if (!equal(value, key)) continue;
      add(row, Json(word));
      return {};
    }
    return {};
  }

  Result<> take_environment() {
    for (const Step& step : framework_.environment) {
      if (step.when) {
        const Result<Json> when = step.when->evaluate(names());
        if (!when) return when.error();
        if (!holds(when.value())) continue;
      }
      const Result<Json> value = step.to ? step.to->evaluate(names()) : Result<Json>(Json());
      if (!value) return value.error();
      made_.environment.emplace_back(step.name,
                                     value.value().is_null() ? "" : shown(value.value()));
    }
    return {};
  }

  // Read back, the plan must be the same, key by key, and the model cost the same.
  void check() {
    Settings settings{.flags = made_.flags, .launch = {}, .warnings = {}};
    const Plan& plan = scenario_.plan;
    for (const auto& [name, value] : made_.environment) {
      settings.launch.environment.push_back({.flag = name, .values = {value}, .file = "emit"});
    }
    const Result<Imported> read =
        import_flags(framework_, settings,
                     {.gpus = plan.gpus(),
                      .model_json = framework_.names_models() ? "" : model_json_,
                      .runtime = plan.runtime.name,
                      .brief = false});
    if (!read) {
      made_.refused.push_back(read.error().message);
      return;
    }
    const Plan& back = read.value().scenario.plan;
    if (const Result<JsonValue> given = parse_json(plan_json(plan, -1), "plan")) {
      for (IdleKey& idle : keys_without_effect(given.value(), plan)) {
        idle_.push_back(std::move(idle.key));
      }
    }
    for (const PlanRow& row : plan_rows()) {
      if (path_of(row) != "overlap") compare(row, plan, back);
    }
    for (const PlanRow& row : overlap_rows()) compare(row, plan, back);
    for (const TraitRow& row : kTraitRows) {
      if (!row.of_plan) continue;
      differ(std::string(row.key.name), trait_json(row, plan.runtime),
             trait_json(row, back.runtime));
    }
    // How it trains costs nothing: what the files do not say is said here.
    const Json training = train_facts(scenario_.train),
               trains = train_facts(read.value().scenario.train);
    for (const Json::Member& fact : training.members()) {
      if (equal(fact.value, trains[fact.key])) continue;
      made_.notes.push_back("train." + fact.key + ": " + shown(fact.value) + ": " +
                            framework_.title + " would train with " + shown(trains[fact.key]));
    }
    const Json model = model_facts(scenario_.model),
               found = model_facts(read.value().scenario.model);
    for (const Json::Member& fact : model.members()) {
      if (fact.key == "max_positions") continue;
      const std::string said = fact.value.dump(), got = found[fact.key].dump();
      if (said != got) {
        made_.refused.push_back("model: " + fact.key + " " + said + ": " + framework_.title +
                                " would have " + got);
      }
    }
  }
  static std::string bytes_of(const Precision& p) {
    return std::to_string(p.parameters) + "+" + std::to_string(p.gradients) + "+" +
           std::to_string(p.optimizer) + " bytes, products in " + std::string(name_of(p.compute));
  }
  void compare(const PlanRow& row, const Plan& plan, const Plan& back) {
    const std::string path = path_of(row);
    if (row.of_experts && scenario_.model.experts.count == 0) return;
    if (std::ranges::find(idle_, path) != idle_.end()) return;
    if (path == "precision")
      return differ(path, bytes_of(plan.precision), bytes_of(back.precision));
    std::string said = value_json(row, plan);
    // Rates that are left open are none as far as time goes; those that differ by place are not
    // one.
    if (path == "dropout" && said.empty()) {
      if (plan.dropouts.residual < 0) return;
      said = "rates that differ by place";
    }
    differ(path, said, value_json(row, back));
  }
  void differ(const std::string& path, const std::string& said, const std::string& got) {
    if (said == got) return;
    made_.refused.push_back("plan." + path + ": " + said + ": " + framework_.title +
                            (got.empty()     ? " says nothing of it"
                             : got == "null" ? " leaves it to its own default"
                                             : " would run " + got));
  }

  Result<> write_files() {
    for (const EmittedFile& file : framework_.files) {
      Result<std::string> text =
          emitted_text(file, made_.flags, groups_, made_.environment, names());
      if (!text) return text.error();
      made_.files.push_back({file.name, std::move(text).value()});
    }
    return {};
  }

  const Framework& framework_;
  const Scenario& scenario_;
  const std::string& model_json_;
  Emitted made_;
  Json facts_;
  std::map<std::string, Json> lets_;
  std::vector<std::string> groups_;  // of each flag
  std::vector<std::string> idle_;    // keys that change nothing in this plan
};

}  // namespace

Result<Emitted> emit_flags(const Framework& framework, const Scenario& scenario,
                           const std::string& model_json, std::int32_t gpus_per_node) {
  return Emitter(framework, scenario, model_json, gpus_per_node).run();
}

std::string flags_text(const std::vector<Setting>& flags) {
  std::string text;
  for (const Setting& setting : flags) text += (text.empty() ? "" : " ") + command_words(setting);
  return text;
}

}  // namespace rehearse
