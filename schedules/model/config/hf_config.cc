// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/config/hf_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "schedules/model/config/layer_config.h"
#include "schedules/model/config/model_keys.h"
#include "schedules/model/config/rope_config.h"
#include "schedules/model/dialects/hf_dialects.h"
#include "schedules/model/kinds/mapping.h"
#include "schedules/model/kinds/performed.h"

namespace rehearse {
namespace {

constexpr double kParameters = 1e15;  // beyond it sums of bytes leave int64

const Dialect* find_dialect(std::string_view model_type) {
  for (const Dialect& dialect : config_dialects()) {
    if (dialect.model_type == model_type) return &dialect;
  }
  return nullptr;
}

// Kinds and ranges of the keys that the dialect knows; typing mistakes among the others; what no
// command takes.
void check_dialect_keys(const JsonValue& object, const Dialect& dialect, const std::string& key,
                        JsonReport& report) {
  constexpr std::int32_t kTypingMistake = 2;  // edits
  std::vector<std::string_view> absent;
  for (const std::string_view name : meaningful_keys(dialect.model_type)) {
    if (object.find(name) == nullptr) absent.push_back(name);
  }
  for (const JsonMember& member : object.members) {
    const std::string at = join_key(key, member.key);
    if (const ConfigKey* row = find_config_key(dialect.model_type, member.key)) {
      if (row->use == KeyUse::NoMeaning) continue;
      if (const KeySpec* spec = find_key(model_key_table(), member.key)) {
        check_key(member.value, *spec, at, report);
        const bool rotary = spec->members == &kRopeTable;
        if (rotary && member.value.is(JsonKind::Object)) check_rope_words(member.value, at, report);
      }
      if (row->use == KeyUse::Refused && !is_one_of(&member.value, row->runs)) {
        report.fail(member.line, at,
                    shown_value(member.value) + " is refused: " + std::string(row->about), true);
      }
      continue;
    }
    const std::string_view meant = nearest(member.key, absent);
    if (!meant.empty() && edit_distance(member.key, meant) <= kTypingMistake) {
      report.fail(member.line, at, "unknown key, the nearest known one is " + std::string(meant));
    }
  }
  for (const Spelling& spelling : dialect.spellings) {
    const JsonValue* own = object.given(spelling.own);
    const JsonValue* common = object.given(spelling.common);
    if (own == nullptr || common == nullptr || own->kind != common->kind) continue;
    if (own->number == common->number && own->text == common->text) continue;
    report.fail(own->line, join_key(key, spelling.own),
                "disagrees with " + std::string(spelling.common));
  }
}

// As torch.nn.Embedding counts: -1 is the last row. What lies beyond the table stands for no row.
void read_padding_token(const ConfigReader& config, Transformer& model) {
  if (config.is_null("pad_token_id")) model.padding_token = -1;
  const JsonValue* given = config.given("pad_token_id");
  if (given == nullptr) return;
  if (!given->is(JsonKind::Integer)) return config.fail("pad_token_id", "must be an integer");
  model.padding_token = given->integer < 0 ? given->integer + model.vocabulary : given->integer;
}

void read_dimensions(const ConfigReader& config, const Dialect& dialect, Transformer& model) {
  config.read("hidden_size", model.hidden);
  config.read("num_hidden_layers", model.layers);
  config.read("num_attention_heads", model.heads);
  config.read("num_key_value_heads", model.kv_heads);
  if (config.is_null("num_key_value_heads")) model.kv_heads = 0;  // as many as of queries
  config.read("head_dim", model.head_dim);
  config.read("intermediate_size", model.ffn_hidden);
  config.read("vocab_size", model.vocabulary);
  config.read("max_position_embeddings", model.max_positions);
  config.read("tie_word_embeddings", model.tied_embedding);
  config.read("mlp_bias", model.mlp_bias);
  config.read("attention_bias", model.qkv_bias);
  config.read("attention_bias", model.projection_bias);
  config.read("rope_theta", model.rotary.theta);
  config.read("initializer_range", model.initializer_range);
  if (find_config_key(dialect.model_type, "pad_token_id")->use == KeyUse::Executed) {
    read_padding_token(config, model);
  }
  for (const std::string_view epsilon :
       {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"}) {
    if (find_config_key(dialect.model_type, epsilon) != nullptr) {
      config.read(epsilon, model.norm_epsilon);
    }
  }
  read_activation(config, dialect, model);
  read_dropout(config, model);
  const std::string positions = config.text("position_embedding_type", "");
  if (positions == "absolute" || positions == "learned") model.positions = PositionKind::Learned;
  if (positions == "rope" || positions == "rotary") model.positions = PositionKind::Rope;
  if (positions == "alibi") model.positions = PositionKind::Alibi;
}

std::string with_number(std::string_view key, std::int64_t number) {
  return std::string(key) + " " + std::to_string(number);
}

// Derived sizes, and what must divide what.
void derive(const ConfigReader& config, Transformer& model) {
  const bool latent = model.latent.used();
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.ffn_hidden == 0) model.ffn_hidden = 4 * model.hidden;
  if (model.head_dim == 0) {
    if (model.hidden % model.heads != 0) {
      config.fail("hidden_size", std::to_string(model.hidden) + " is not a multiple of " +
                                     with_number("num_attention_heads", model.heads));
    }
    model.head_dim = model.hidden / model.heads;
  }
  if (!latent && model.heads % model.kv_heads != 0) {
    config.fail("num_key_value_heads", std::to_string(model.kv_heads) + " does not divide " +
                                           with_number("num_attention_heads", model.heads));
  }
  if (latent && model.latent.qk_rope_head_dim % 2 != 0) {
    config.fail("qk_rope_head_dim",
                std::to_string(model.latent.qk_rope_head_dim) + " is odd: pairs of columns rotate");
  }
  const Experts& experts = model.experts;
  if (experts.count > 0 && config.given("num_experts_per_tok") == nullptr &&
      experts.per_token == 0) {
    config.fail("num_experts_per_tok",
                "is required: the class has " + std::to_string(experts.count) +
                    " experts (n_routed_experts 0: none) and does not say how many a token takes");
  } else if (experts.count > 0 && (experts.per_token < 1 || experts.per_token > experts.count)) {
    config.fail("num_experts_per_tok", std::to_string(experts.per_token) +
                                           " is not between 1 and the " +
                                           std::to_string(experts.count) + " experts");
  } else if (experts.count > 0 && experts.count % experts.groups != 0) {
    config.fail("n_group", std::to_string(experts.groups) + " groups do not divide " +
                               std::to_string(experts.count) + " experts");
  } else if (experts.count > 0 &&
             (experts.kept_groups > experts.groups ||
              experts.per_token > experts.kept_groups * (experts.count / experts.groups))) {
    config.fail("topk_group", std::to_string(experts.kept_groups) + " of " +
                                  with_number("n_group", experts.groups) + " do not hold " +
                                  with_number("num_experts_per_tok", experts.per_token));
  }
  // A row beyond the table stands for none.
  if (model.padding_token < 0 || model.padding_token >= model.vocabulary) model.padding_token = -1;
  const double width = static_cast<double>(model.heads) * static_cast<double>(model.head_dim);
  if (width > kMaxWidth) config.fail("num_attention_heads", "heads x head size is beyond 2^20");
  const LatentAttention& sizes = model.latent;
  for (const auto& [key, size] : {std::pair{"qk_nope_head_dim", sizes.qk_nope_head_dim},
                                  {"qk_rope_head_dim", sizes.qk_rope_head_dim},
                                  {"v_head_dim", sizes.v_head_dim}}) {
    if (static_cast<double>(model.heads) * static_cast<double>(size) <= kMaxWidth) continue;
    config.fail(key, "heads x " + std::string(key) + " is beyond 2^20");
  }
}

// What YaRN stretches, latent attention's scores are multiplied by the square of (transformers,
// modeling_deepseek_v3.py, yarn_apply_mscale).
void scale_latent_attention(Transformer& model) {
  const RotaryConfig& rope = model.rotary;
  const bool stretched = rope.kind != RotaryKind::Default && rope.factor > 1;
  if (!model.latent.used() || !stretched || rope.magnitude_all == 0) return;
  const double magnitude = 0.1 * rope.magnitude_all * std::log(rope.factor) + 1;
  model.attention_scale = attention_scale(model, 0) * magnitude * magnitude;
}

// An odd share of a head is rounded up, and must still lie within it.
void check_rotating_columns(const ConfigReader& config, const Transformer& model) {
  if (model.latent.used()) return;
  if (rotary_dim(model.rotary, model.head_dim) <= model.head_dim) return;
  config.fail(config.given("head_dim") != nullptr ? "head_dim" : "num_attention_heads",
              "heads have " + std::to_string(model.head_dim) +
                  " columns, which is odd: pairs of columns rotate");
}

void check_size(const ConfigReader& config, const Transformer& model) {
  double parameters = static_cast<double>(embedding_parameters(model)) +
                      static_cast<double>(head_parameters(model));
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    parameters += static_cast<double>(layer_parameters(model, layer));
  }
  if (parameters > kParameters) {
    config.fail("num_hidden_layers", "the model has more than 10^15 parameters");
  }
}

}  // namespace

std::span<const std::string_view> known_model_types() {
  static const std::vector<std::string_view> types = [] {
    std::vector<std::string_view> names;
    for (const Dialect& dialect : config_dialects()) names.push_back(dialect.model_type);
    return names;
  }();
  return types;
}

namespace {

bool is_known(std::string_view model_type) {
  return find_dialect(model_type) != nullptr || is_mapped(model_type);
}

// The language model of a file that describes several (gemma3: text_config beside vision_config);
// nullptr where the file is of one model.
const JsonValue* language_model(const JsonValue& object) {
  const JsonValue* type = object.given("model_type");
  if (type != nullptr && type->is(JsonKind::String) && is_known(type->text)) return nullptr;
  const JsonValue* text = object.given("text_config");
  return text != nullptr && text->is(JsonKind::Object) ? text : nullptr;
}

// "vision_config, audio_config": the models beside it.
std::string other_models(const JsonValue& object) {
  std::string names;
  for (const JsonMember& member : object.members) {
    if (!member.key.ends_with("_config") || !member.value.is(JsonKind::Object)) continue;
    if (member.key == "text_config" || member.key == "quantization_config") continue;
    names += (names.empty() ? "model." : ", model.") + member.key;
  }
  return names;
}

}  // namespace

ModelFile parse_model_file(const JsonValue& object, const std::string& name, const std::string& key,
                           JsonReport& report) {
  ModelFile file;
  Transformer& model = file.model;
  if (!object.is(JsonKind::Object)) {
    report.fail(object.line, key, "must be an object, not " + std::string(name_of(object.kind)));
    return file;
  }
  if (const JsonValue* text = language_model(object)) {
    file = parse_model_file(*text, name, join_key(key, "text_config"), report);
    if (const std::string beside = other_models(object); !beside.empty()) {
      file.use.notes.push_back(beside + ": not read: the language model alone (text_config) is");
    }
    return file;
  }
  const JsonValue* type = object.given("model_type");
  if (type == nullptr || !type->is(JsonKind::String)) {
    report.fail(type == nullptr ? object.line : type->line, join_key(key, "model_type"),
                type == nullptr ? "is required" : "must be a string");
    return file;
  }
  const Dialect* dialect = find_dialect(type->text);
  if (dialect == nullptr && is_mapped(type->text)) {
    const Result<Mapping> mapping = read_mapping(type->text);
    if (!mapping) {
      report.fail(type->line, join_key(key, "model_type"), mapping.error().message);
      return file;
    }
    if (mapping.value().as().empty()) {
      MappedModel read = read_mapped(mapping.value(), object, name, key, report);
      file.model = std::move(read.model);
      file.use = std::move(read.use);
      if (report.ok()) check_size(ConfigReader(object, key, {}, report), file.model);
      if (report.ok()) read_performed(mapping.value(), object, key, report, file);
      return file;
    }
    dialect = find_dialect(mapping.value().as());
  }
  if (dialect == nullptr) {
    std::vector<std::string_view> known(known_model_types().begin(), known_model_types().end());
    known.insert(known.end(), mapped_types().begin(), mapped_types().end());
    const std::string near = nearest_family(object);
    report.fail(type->line, join_key(key, "model_type"),
                json_excerpt(type->text) + " is not known" +
                    (near.empty() ? what_is_known(type->text, known)
                                  : "; its other keys are most like those of " + near),
                true);
    return file;
  }
  check_dialect_keys(object, *dialect, key, report);
  if (!report.ok()) return file;
  model = dialect->defaults();
  model.name = name;
  model.model_type = dialect->model_type;
  const ConfigReader config(object, key, dialect->spellings, report);
  read_dimensions(config, *dialect, model);
  if (dialect->finish != nullptr) dialect->finish(config, model);
  if (!report.ok()) return file;
  derive(config, model);
  const bool rotates = find_config_key(dialect->model_type, "rope_parameters") != nullptr;
  if (report.ok() && rotates) read_rope(config, model);
  if (report.ok() && rotates) check_rotating_columns(config, model);
  if (report.ok()) scale_latent_attention(model);
  if (report.ok()) check_size(config, model);
  if (report.ok()) file.use = use_of(object, report.path(), key, model);
  return file;
}

namespace {

// Python writes an infinite number as a word that is no JSON (time_step_limit of Nemotron-H): here
// it is the largest number, as long as the word.
std::string with_finite_numbers(std::string text) {
  constexpr std::string_view kWord = "Infinity", kLargest = "1e308   ";
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && quoted) {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text.compare(i, kWord.size(), kWord) == 0) {
      text.replace(i, kWord.size(), kLargest);
    }
  }
  return text;
}

}  // namespace

Result<ModelFile> read_model_file(const std::string& path) {
  Result<std::string> text = read_text_file(path, kMostText);
  if (!text) return text.error();
  const Result<JsonValue> root = parse_json(with_finite_numbers(std::move(text).value()), path);
  if (!root) return root.error();
  const std::filesystem::path file(path);
  // A downloaded file is always config.json: its folder says which model it is.
  const bool generic = file.stem() == "config" && !file.parent_path().filename().empty();
  JsonReport report(path);
  ModelFile read = parse_model_file(
      root.value(), generic ? file.parent_path().filename().string() : file.stem().string(), "",
      report);
  if (!report.ok()) return report.error();
  return read;
}

Result<Transformer> read_transformer(const std::string& path) {
  Result<ModelFile> read = read_model_file(path);
  if (!read) return read.error();
  return std::move(read).value().model;
}

Transformer parse_transformer(const JsonValue& object, const std::string& name,
                              const std::string& key, JsonReport& report) {
  return parse_model_file(object, name, key, report).model;
}

}  // namespace rehearse
