// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/plan_use.h"

#include <algorithm>

#include "schedules/base/json_keys.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/keys/scenario_keys.h"

namespace rehearse {
namespace {

// Keys beside the plan's, of one use, between blanks.
struct UseRow {
  std::string_view keys;
  RunUse run;
};
constexpr UseRow kKeys[]{
    {"gpus model", {}},
    {"cluster domain_gpus variation variation.seed variation.speed_sigma variation.jitter_sigma "
     "variation.slow",
     {KeyUse::NoMeaning, "", "", "any machine runs any scenario; predictions are for the cluster"}},
    {"name $schema", {KeyUse::NoMeaning, "", "", "for people and editors"}},
};
constexpr UseRow kTrainKeys{
    "train.data train.steps train.learning_rate train.seed train.beta1 train.beta2 "
    "train.epsilon train.weight_decay train.weight_decay_matrices_only train.clip_norm "
    "train.warmup_steps train.lr_decay train.min_learning_rate train.checkpoint_every "
    "train.router_auxiliary_loss train.router_load_balancing train.router_z_loss "
    "train.router_bias_rate train.loss_scale",
    {}};

// Whether `word` is one of `words`, which blanks part.
bool is_among(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

std::string code(std::string_view words) {
  std::string text;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    text += (text.empty() ? "`" : ", `") + std::string(words.substr(at, end - at)) + "`";
    at = end + 1;
  }
  return text;
}

// Calls visit(path, member, run) for the members of the scenario, and of the objects inside it,
// whose value is beyond what `run` performs, or does without a word.
template <class Visit>
void for_each_beyond(const JsonValue& object, const std::string& path, const Visit& visit) {
  for (const JsonMember& member : object.members) {
    const std::string at = join_key(path, member.key);
    if (at == "model" || at == "cluster") continue;
    const RunUse* run = find_run_use(at);
    if (run != nullptr && !run->runs.empty() && !is_one_of(&member.value, run->runs)) {
      visit(at, member, *run);
    }
    if (member.value.is(JsonKind::Object)) for_each_beyond(member.value, at, visit);
  }
}

// Chunks of attention are as samples of their own: whole ones.
std::string length_lacks(const Transformer& model, const Plan& plan) {
  const std::int64_t chunk = model.attention_chunk;
  const bool rest = chunk > 0 && plan.sequence_length > chunk && plan.sequence_length % chunk != 0;
  return rest ? "a last, shorter chunk of attention is priced" : "";
}

// The first stage has the embedding and the last one the head, but a stage between them without
// layers has no kernels at all, and so none that hands its input on.
bool has_empty_stage(const Plan& plan) {
  const std::vector<std::int32_t>& layers = plan.stage_layers;
  return layers.size() > 2 && std::find(layers.begin() + 1, layers.end() - 1, 0) < layers.end() - 1;
}

}  // namespace

std::vector<PlanKey> run_keys(std::span<const PlanRow> rows) {
  std::vector<PlanKey> keys;
  for (const UseRow& row : kKeys) keys.push_back({std::string(row.keys), row.run});
  const auto add = [&](const std::string& key, const RunUse& run) {
    if (run.runs.empty() && keys.back().run == run && keys.back().keys.starts_with("plan.")) {
      keys.back().keys += " " + key;
    } else {
      keys.push_back({key, run});
    }
  };
  for (const PlanRow& row : rows) {
    const std::string key = "plan." + std::string(row.key.name);
    if (row.key.members != nullptr && row.key.types == kObject) continue;  // its members are
    add(key, row.run);
  }
  for (const PlanRow& row : overlap_rows())
    add("plan.overlap." + std::string(row.key.name), row.run);
  for (const TraitRow& row : kTraitRows) {
    if (row.of_plan) add("plan." + std::string(row.key.name), row.run);
  }
  PlanKey& training = keys.emplace_back();
  training.keys = kTrainKeys.keys;
  training.run = kTrainKeys.run;
  return keys;
}

const RunUse* find_run_use(std::string_view path) {
  if (path.starts_with("plan.")) {
    path.remove_prefix(5);
    if (const PlanRow* row = find_plan_row(path)) return &row->run;
    const auto trait = std::ranges::find_if(
        kTraitRows, [&](const TraitRow& row) { return row.of_plan && row.key.name == path; });
    return trait == kTraitRows.end() ? nullptr : &trait->run;
  }
  if (is_among(kTrainKeys.keys, path)) return &kTrainKeys.run;
  const auto row =
      std::ranges::find_if(kKeys, [&](const UseRow& one) { return is_among(one.keys, path); });
  return row == std::end(kKeys) ? nullptr : &row->run;
}

std::vector<Unperformed> unperformed_of(const JsonValue& scenario, const std::string& file) {
  std::vector<Unperformed> found;
  for_each_beyond(scenario, "", [&](const auto& path, const JsonMember& member, const auto& run) {
    if (run.use != KeyUse::Priced) return;
    found.push_back({.file = file,
                     .line = member.line,
                     .key = path,
                     .value = shown_value(member.value),
                     .priced = std::string(run.about)});
  });
  return found;
}

std::vector<std::string> said_of(const JsonValue& scenario) {
  std::vector<std::string> said;
  for_each_beyond(scenario, "", [&](const auto& path, const JsonMember& member, const auto& run) {
    if (run.use != KeyUse::Said) return;
    said.push_back(path + " " + shown_value(member.value) + ": " + std::string(run.about));
  });
  return said;
}

std::string plan_keys_text(std::span<const PlanRow> rows) {
  std::string text = "| keys | column | `run` performs | priced; said; why |\n|---|---|---|---|\n";
  for (const auto& [keys, run] : run_keys(rows)) {
    std::string performed = run.use == KeyUse::Executed ? "all" : "";
    for (std::size_t at = 0; at < run.runs.size();) {
      const std::size_t end = std::min(run.runs.find(" | ", at), run.runs.size());
      performed += (at == 0 ? "`" : ", `") + std::string(run.runs.substr(at, end - at)) + "`";
      at = end + 3;
    }
    text += "| " + code(keys) + " | " + std::string(name_of(run.use)) + " | " + performed + " | " +
            std::string(run.about) + " |\n";
  }
  return text;
}

std::string later_keys_text() {
  std::string text;
  const auto list = [&](const std::string& what, std::span<const std::string_view> words) {
    if (words.empty()) return;
    text += "- " + what + ": ";
    for (const std::string_view word : words) {
      text += (word == words.front() ? "`" : ", `") + std::string(word) + "`";
    }
    text += '\n';
  };
  const auto walk = [&](const auto& self, const KeyTable& table, const std::string& path) -> void {
    list(path.empty() ? "top level" : "`" + path + "`", table.later);
    for (const KeySpec& spec : table.keys) {
      const std::string at = join_key(path, spec.name);
      list("values of `" + at + "`", spec.later);
      if (spec.members != nullptr) self(self, *spec.members, at);
    }
  };
  walk(walk, scenario_key_table(), "");
  return text;
}

std::vector<Unperformed> unperformed_pairs(const Transformer& model, const Plan& plan,
                                           const JsonValue& scenario, const std::string& file) {
  std::vector<Unperformed> found;
  const auto add = [&](const PlanField& field, std::int32_t value, const std::string& lacks) {
    if (lacks.empty()) return;
    const std::string_view key = key_of(field);
    const JsonValue* said = scenario.given("plan");
    const JsonMember* at = said == nullptr ? nullptr : said->find(key);
    found.push_back({.file = file,
                     .line = at == nullptr ? scenario.line : at->line,
                     .key = "plan." + std::string(key),
                     .value = std::to_string(value),
                     .priced = lacks});
  };
  add(&Plan::sequence_length, static_cast<std::int32_t>(plan.sequence_length),
      length_lacks(model, plan));
  add(&Plan::stage_layers, 0,
      has_empty_stage(plan) ? "a stage between the first and the last without layers is priced"
                            : "");
  return found;
}

}  // namespace rehearse
