// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/kinds/performed.h"

#include <algorithm>
#include <utility>

#include "schedules/model/layer_mix.h"

namespace rehearse {
namespace {

bool is_listed(const JsonValue* words, std::string_view word) {
  return words != nullptr && std::ranges::any_of(words->items, [&](const JsonValue& item) {
           return item.text == word;
         });
}

// The config as one of the dialect that `run` names. What the mapping reads and the dialect does
// not perform is the mapping's alone, as are keys of `leaves`, inside of objects too; `defaults`
// stand where the config is silent.
JsonValue in_dialect(const JsonValue& mapping, const JsonValue& object) {
  const JsonValue& run = *mapping.given("run");
  const std::string& dialect = run.given("as")->text;
  const JsonValue* leaves = run.given("leaves");
  const auto is_left = [&](const std::string& key) {
    const ConfigKey* row = find_config_key(dialect, key);
    if (row == nullptr || is_listed(leaves, key)) return true;
    return row->use == KeyUse::Priced && mapping.given("defaults")->find(key) != nullptr;
  };
  JsonValue like{.kind = JsonKind::Object, .line = object.line};
  for (const JsonMember& member : object.members) {
    if (is_left(member.key)) continue;
    like.members.push_back(member);
    JsonValue& value = like.members.back().value;
    if (member.key == "model_type") value.text = dialect;
    std::erase_if(value.members,
                  [&](const JsonMember& inner) { return is_listed(leaves, inner.key); });
  }
  if (const JsonValue* defaults = run.given("defaults")) {
    for (const JsonMember& member : defaults->members) {
      if (object.find(member.key) == nullptr) like.members.push_back(member);
    }
  }
  return like;
}

// What layers are made of, the mapping says; how much of a head rotates too.
void take_numbers(const Transformer& like, Transformer& model) {
  model.activation = like.activation;
  model.norm_epsilon = like.norm_epsilon;
  model.initializer_range = like.initializer_range;
  model.padding_token = like.padding_token;
  model.dropouts = like.dropouts;
  const double share = std::exchange(model.rotary, like.rotary).share;
  model.rotary.share = share;
  model.attention_scale = like.attention_scale;
  const Experts& router = like.experts;
  model.experts.group_best = router.group_best;
  model.experts.sigmoid = router.sigmoid;
  model.experts.normalised = router.normalised;
  model.experts.weight_scale = router.weight_scale;
  model.experts.correction_bias = router.correction_bias;
}

}  // namespace

void read_performed(const Mapping& mapping, const JsonValue& object, const std::string& key,
                    const JsonReport& report, ModelFile& file) {
  const JsonValue& document = mapping.document;
  if (document.given("run") == nullptr || file.model.mix ||
      !beyond_plain_layers(file.model).empty())
    return;
  JsonReport own(report.path());
  ModelFile like = parse_model_file(in_dialect(document, object), file.model.name, key, own);
  if (!own.ok()) {  // prices do not depend on it
    file.use.unperformed.front().priced =
        "run reads it as " + document.given("run")->given("as")->text + ": " + own.error().message;
    return;
  }
  take_numbers(like.model, file.model);
  file.use.unperformed = std::move(like.use.unperformed);
  file.use.run_notes = std::move(like.use.run_notes);
}

}  // namespace rehearse
