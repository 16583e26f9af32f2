// SPDX-License-Identifier: Apache-2.0
// Files of mappings: what they may say, and how they are found.
#include "schedules/model/kinds/mapping.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "schedules/base/files.h"
#include "schedules/model/dialects/hf_dialects.h"

namespace rehearse {
namespace {

constexpr KeySpec text_key(std::string_view name, std::string_view about, bool required = false) {
  return {.name = name, .types = kString, .required = required, .about = about};
}
constexpr KeySpec object(std::string_view name, std::string_view about,
                         const KeyTable* members = nullptr) {
  return {.name = name, .types = kObject, .members = members, .about = about};
}
constexpr KeySpec texts_key(std::string_view name, std::string_view about) {
  return {.name = name, .types = kArray, .item_types = kString, .about = about};
}

constexpr std::array<std::string_view, 2> kNorms{"rms", "layer"};
constexpr std::array kStreamKeys{
    text_key("h", "the key of its width", true),
    KeySpec{.name = "norm", .types = kString, .choices = kNorms, .about = "of every block"},
    KeySpec{.name = "norm_bias", .types = kBool, .about = "norms have shifts; left out: no"},
    KeySpec{.name = "norm_from_one", .types = kBool, .about = "norms multiply by 1 + weight"},
    text_key("streams", "how many residual streams, each h wide: an expression; left out: one"),
};
constexpr KeyTable kStream{.title = "stream", .keys = kStreamKeys};
constexpr std::array kPredictionKeys{
    text_key("depths", "how many layers predict further tokens"),
    KeySpec{.name = "ways",
            .types = kObject,
            .about = "which way of every choice such a layer takes; left out: as the last layer"},
    text_key("pattern", "for people"),
    KeySpec{.name = "counted", .types = kBool, .about = "among the parameters"},
};
constexpr KeyTable kPrediction{.title = "prediction", .keys = kPredictionKeys};

constexpr std::array kRunKeys{
    text_key("as", "the dialect by whose keys it is performed", true),
    texts_key("leaves", "keys of that dialect that the mapping alone reads"),
    object("defaults", "what the class has where a config is silent of the dialect's keys"),
};
constexpr KeyTable kRun{.title = "run", .keys = kRunKeys};

constexpr std::array kOuterKeys{
    text_key("kind", "that stands there", true),
    text_key("name", "of its module"),
    text_key("when", "whether it is there: an expression; left out: it is"),
    text_key("times", "how often, # in its name is which: an expression; left out: once"),
    object("bind", "symbol to expression of keys"),
};
constexpr KeyTable kOuter{.title = "outer kind", .keys = kOuterKeys};
constexpr KeySpec kinds_key(std::string_view name, std::string_view about) {
  return {.name = name, .types = kArray, .items = &kOuter, .item_types = kObject, .about = about};
}

constexpr std::array<std::string_view, 1> kMappingVersions{"mapping/1"};
constexpr std::array kMappingKeys{
    text_key("$schema", "for editors"),
    KeySpec{.name = "schema",
            .types = kString,
            .choices = kMappingVersions,
            .required = true,
            .about = "version of this format"},
    text_key("model_type", "of the configs that it reads", true),
    text_key("says", "for people"),
    texts_key("sources", "for people"),
    text_key("as", "the dialect that reads such configs as they are; nothing else is said then"),
    object("aliases", "other words for a key"),
    object("defaults", "every key that counts, with what the class has where a config is silent"),
    texts_key("ignores", "keys that change no cost"),
    object("stream", "what blocks read and add to", &kStream),
    text_key("layers", "how many: an expression; left out: as many as a choice's list has"),
    text_key("vocabulary", "the key of the number of words; left out: vocab_size"),
    text_key("tied", "whether the head's matrix is the embedding's: an expression"),
    text_key("rotary", "share of a head that rotates: a key; left out: all"),
    text_key("softcap", "the key of the soft cap of logits; left out: none"),
    text_key("embedding", "name of the table"),
    kinds_key("at_embedding", "kinds behind the table"),
    kinds_key("at_head", "kinds before the last norm"),
    text_key("final_norm", "name of the norm before the head"),
    text_key("head", "name of the head's matrix"),
    text_key("layer_name", "of a layer's tensors, # for its number"),
    KeySpec{.name = "layer",
            .types = kArray,
            .about =
                "the blocks of a layer, lists of norm:NAME, choose:NAME, norm_after:NAME; behind "
                "a norm @CHOICE.WAY: where that way is taken alone"},
    object("choose", "by layer: `from` says which way is taken, the rest are the ways"),
    object("prediction", "layers that predict further tokens", &kPrediction),
    object("run", "how a config without other kinds is performed; left out: it is priced alone",
           &kRun),
};
constexpr KeyTable kMapping{.title = "Mapping: a model_type of config.json in layer kinds",
                            .keys = kMappingKeys};

// What changes no cost in any family: numbers that rows are multiplied by or rotated with, losses
// of routers, names of functions.
constexpr std::array<std::string_view, 31> kCostless{"rms_norm_eps",
                                                     "layer_norm_eps",
                                                     "layer_norm_epsilon",
                                                     "layernorm_epsilon",
                                                     "norm_eps",
                                                     "rope_theta",
                                                     "rope_scaling",
                                                     "rope_parameters",
                                                     "rope_interleave",
                                                     "hidden_act",
                                                     "mlp_hidden_act",
                                                     "attention_dropout",
                                                     "hidden_dropout",
                                                     "residual_dropout",
                                                     "norm_topk_prob",
                                                     "routed_scaling_factor",
                                                     "scoring_func",
                                                     "topk_method",
                                                     "router_aux_loss_coef",
                                                     "router_jitter_noise",
                                                     "output_router_logits",
                                                     "aux_loss_alpha",
                                                     "seq_aux",
                                                     "ep_size",
                                                     "pretraining_tp",
                                                     "logit_scale",
                                                     "logits_scaling",
                                                     "embedding_multiplier",
                                                     "residual_multiplier",
                                                     "attention_multiplier",
                                                     "attention_value_scale"};

}  // namespace

const KeyTable& mapping_key_table() {
  return kMapping;
}

const std::vector<std::string>& mapped_types() {
  static const std::vector<std::string> kTypes = shipped_names("mappings");
  return kTypes;
}

bool is_mapped(std::string_view model_type) {
  return std::ranges::binary_search(mapped_types(), model_type);
}

std::string Mapping::as() const {
  const JsonValue* other = document.given("as");
  return other == nullptr ? std::string() : other->text;
}

Result<Mapping> parse_mapping(const JsonValue& document, const std::string& path) {
  JsonReport report(path);
  check_keys(document, kMapping, "", report);
  if (report.ok() && document.given("as") == nullptr) {
    for (const std::string_view key :
         {"defaults", "stream", "layer", "choose", "layer_name", "embedding", "final_norm"}) {
      if (document.given(key) == nullptr)
        report.fail(document.line, std::string(key), "is required");
    }
  }
  if (!report.ok()) return report.error();
  return Mapping{
      .model_type = document.given("model_type")->text, .path = path, .document = document};
}

Result<Mapping> read_mapping(std::string_view model_type) {
  const std::string path = shipped_directory() + "/mappings/" + std::string(model_type) + ".json";
  const Result<JsonValue> document = read_json(path);
  if (!document) return document.error();
  return parse_mapping(document.value(), path);
}

std::vector<std::string_view> keys_of(const Mapping& mapping) {
  std::vector<std::string_view> keys{"model_type"};
  for (const std::string_view list : {"defaults", "aliases"}) {
    const JsonValue* object = mapping.document.given(list);
    if (object == nullptr) continue;
    for (const JsonMember& member : object->members) {
      keys.push_back(std::string_view(member.key).substr(0, member.key.find('.')));
    }
  }
  if (const JsonValue* ignores = mapping.document.given("ignores")) {
    for (const JsonValue& item : ignores->items) keys.push_back(item.text);
  }
  keys.insert(keys.end(), kCostless.begin(), kCostless.end());
  return keys;
}

std::string nearest_family(const JsonValue& object) {
  // Words that a family has of its own count; what all have says nothing.
  std::string best;
  std::size_t most = 0, fewest = 0;
  const auto offer = [&](std::string_view family, std::size_t known, std::size_t own) {
    if (known < most || (known == most && (most == 0 || own >= fewest))) return;
    most = known;
    fewest = own;
    best = family;
  };
  for (const Dialect& dialect : config_dialects()) {
    std::size_t known = 0;
    for (const JsonMember& member : object.members) {
      const ConfigKey* row = find_config_key(dialect.model_type, member.key);
      if (row != nullptr && row->dialects != "*") ++known;
    }
    offer(dialect.model_type, known, meaningful_keys(dialect.model_type).size());
  }
  for (const std::string& type : mapped_types()) {
    const Result<Mapping> mapping = read_mapping(type);
    if (!mapping || !mapping.value().as().empty()) continue;
    const std::vector<std::string_view> keys = keys_of(mapping.value());
    std::size_t known = 0;
    for (const JsonMember& member : object.members) {
      if (std::ranges::find(keys, member.key) != keys.end()) ++known;
    }
    offer(type, known, keys.size());
  }
  return most > 1 ? best : "";
}

}  // namespace rehearse
