// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "schedules/model/hf_dialects.h"
#include "schedules/model/layer_config.h"
#include "schedules/model/rope_config.h"

namespace rehearse {
namespace {

constexpr double kWidth = 1 << 20;  // hidden, heads x head size and the like
constexpr double kMlpWidth = 1 << 24;
constexpr double kLayers = 1 << 14;
constexpr double kVocabulary = 1 << 27;
constexpr double kPositions = 1 << 30;
constexpr double kExperts = 1 << 14;
constexpr double kParameters = 1e15;  // beyond it sums of bytes leave int64

constexpr std::array<std::string_view, 14> kActivations{
    "gelu",          "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh",
    "gelu_accurate", "relu",     "relu2",     "quick_gelu",  "silu",
    "swish",         "swiglu",   "geglu",     "tanh"};
constexpr std::array<std::string_view, 5> kPositionKinds{"absolute", "learned", "rope", "rotary",
                                                         "alibi"};

constexpr KeySpec count(std::string_view name, double max, double min = 1) {
  return {.name = name, .types = kInteger, .min = min, .max = max};
}
constexpr KeySpec flag(std::string_view name) {
  return {.name = name, .types = kBool};
}
constexpr KeySpec positive(std::string_view name) {
  return {.name = name, .types = kNumber, .min = 0, .above_min = true};
}
constexpr KeySpec share(std::string_view name) {
  return {.name = name, .types = kNumber, .min = 0, .max = 1};
}
constexpr KeySpec rope(std::string_view name) {
  return {.name = name, .types = kObject, .members = &kRopeTable};
}

// Every key that some dialect reads.
constexpr std::array kKeys{
    KeySpec{.name = "model_type",
            .types = kString,
            .required = true,
            .about = "Hugging Face's name of the dialect"},
    count("hidden_size", kWidth),
    count("n_embd", kWidth),
    count("n_embed", kWidth),
    count("d_model", kWidth),
    count("num_hidden_layers", kLayers),
    count("n_layer", kLayers),
    count("n_layers", kLayers),
    count("num_attention_heads", kWidth),
    count("n_head", kWidth),
    count("n_heads", kWidth),
    count("num_key_value_heads", kWidth),
    count("head_dim", kWidth),
    count("intermediate_size", kMlpWidth),
    count("n_inner", kMlpWidth),
    count("expansion_ratio", 64),
    count("vocab_size", kVocabulary),
    count("max_position_embeddings", kPositions),
    count("n_positions", kPositions),
    count("seq_length", kPositions),
    count("max_seq_len", kPositions),
    KeySpec{.name = "hidden_act", .types = kString, .choices = kActivations},
    KeySpec{.name = "activation_function", .types = kString, .choices = kActivations},
    KeySpec{.name = "position_embedding_type", .types = kString, .choices = kPositionKinds},
    KeySpec{.name = "hidden_activation", .types = kString, .choices = kActivations},
    share("resid_pdrop"),
    share("attn_pdrop"),
    share("embd_pdrop"),
    share("emb_pdrop"),
    share("attention_dropout"),
    share("hidden_dropout"),
    share("residual_dropout"),
    share("embedding_dropout"),
    flag("use_bias"),
    positive("norm_epsilon"),
    positive("query_pre_attn_scalar"),
    positive("attn_logit_softcapping"),
    positive("final_logit_softcapping"),
    positive("rope_local_base_freq"),
    count("original_max_position_embeddings", kPositions),
    count("sliding_window_pattern", kLayers),
    flag("tie_word_embeddings"),
    flag("attention_bias"),
    flag("mlp_bias"),
    flag("no_bias"),
    flag("use_parallel_residual"),
    flag("learned_pos_emb"),
    flag("use_sliding_window"),
    flag("scale_attn_weights"),
    flag("scale_attn_by_inverse_layer_idx"),
    flag("apply_residual_connection_post_layernorm"),
    flag("qkv_bias"),
    flag("output_router_logits"),
    flag("norm_topk_prob"),
    flag("rope_interleave"),
    KeySpec{.name = "layer_types", .types = kArray, .item_types = kString},
    KeySpec{.name = "initializer_range", .types = kNumber, .min = 0, .max = 1e3},
    rope("rope_parameters"),
    rope("rope_scaling"),
    KeySpec{
        .name = "partial_rotary_factor", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    KeySpec{.name = "rotary_pct", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    positive("rope_theta"),
    positive("rotary_emb_base"),
    positive("rms_norm_eps"),
    positive("layer_norm_eps"),
    positive("layer_norm_epsilon"),
    count("sliding_window", kPositions, 0),
    count("max_window_layers", kLayers, 0),
    KeySpec{.name = "attn_config", .types = kObject},
    count("num_experts", kExperts, 0),
    count("num_local_experts", kExperts, 0),
    count("n_routed_experts", kExperts, 0),
    count("num_experts_per_tok", kExperts, 0),
    count("experts_per_token", kExperts, 0),
    count("n_shared_experts", kExperts, 0),
    count("moe_intermediate_size", kMlpWidth),
    count("shared_expert_intermediate_size", kMlpWidth, 0),
    count("first_k_dense_replace", kLayers, 0),
    count("moe_layer_freq", kLayers),
    count("n_group", kExperts),
    count("topk_group", kExperts),
    positive("routed_scaling_factor"),
    KeySpec{.name = "topk_method", .types = kString},
    KeySpec{.name = "scoring_func", .types = kString},
    count("num_nextn_predict_layers", kLayers, 0),
    count("num_mtp_layers", kLayers, 0),
    count("interleave_moe_layer_step", kLayers),
    count("intermediate_size_mlp", kMlpWidth),
    KeySpec{
        .name = "moe_layers", .types = kArray, .min = 0, .max = kLayers, .item_types = kInteger},
    flag("use_qk_norm"),
    positive("swiglu_alpha"),
    positive("swiglu_limit"),
    KeySpec{.name = "no_rope_layers", .types = kArray, .min = 0, .max = 1, .item_types = kInteger},
    count("no_rope_layer_interval", kLayers),
    count("attention_chunk_size", kPositions),
    flag("attn_temperature_tuning"),
    KeySpec{.name = "attn_scale", .types = kNumber},
    positive("floor_scale"),
    count("decoder_sparse_step", kLayers),
    KeySpec{.name = "mlp_only_layers",
            .types = kArray,
            .min = 0,
            .max = kLayers,
            .item_types = kInteger},
    count("kv_lora_rank", kWidth),
    count("q_lora_rank", kWidth),
    count("qk_nope_head_dim", kWidth),
    count("qk_rope_head_dim", kWidth, 0),
    count("v_head_dim", kWidth),
};
constexpr KeyTable kTable{
    .title = "Model: a Hugging Face config.json", .keys = kKeys, .open = true};

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
      if (const KeySpec* spec = find_key(kTable, member.key)) {
        check_key(member.value, *spec, at, report);
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
  const bool latent = model.latent.kv_lora_rank > 0;
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
  if (experts.count > 0 && (experts.per_token < 1 || experts.per_token > experts.count)) {
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
  if (width > kWidth) config.fail("num_attention_heads", "heads x head size is beyond 2^20");
}

// What YaRN stretches, latent attention's scores are multiplied by the square of (transformers,
// modeling_deepseek_v3.py, yarn_apply_mscale).
void scale_latent_attention(Transformer& model) {
  const RotaryConfig& rope = model.rotary;
  const bool stretched = rope.kind != RotaryKind::Default && rope.factor > 1;
  if (model.latent.kv_lora_rank == 0 || !stretched || rope.magnitude_all == 0) return;
  const double magnitude = 0.1 * rope.magnitude_all * std::log(rope.factor) + 1;
  model.attention_scale = attention_scale(model, 0) * magnitude * magnitude;
}

void check_size(const ConfigReader& config, const Transformer& model) {
  const double per_layer = static_cast<double>(
      std::max(layer_parameters(model, 0), layer_parameters(model, model.experts.first_layer)));
  const double tables = static_cast<double>(embedding_parameters(model)) +
                        static_cast<double>(head_parameters(model));
  if (per_layer * static_cast<double>(model.layers) + tables > kParameters) {
    config.fail("num_hidden_layers", "the model has more than 10^15 parameters");
  }
}

}  // namespace

std::string_view ConfigReader::spelled(std::string_view common) const {
  for (const Spelling& spelling : spellings_) {
    if (spelling.common == common && object_.find(spelling.own) != nullptr) return spelling.own;
  }
  return common;
}

const JsonValue* ConfigReader::given(std::string_view common) const {
  if (const JsonValue* own = object_.given(spelled(common))) return own;
  return object_.given(common);
}

bool ConfigReader::is_null(std::string_view common) const {
  return object_.find(spelled(common)) != nullptr && given(common) == nullptr;
}

void ConfigReader::read(std::string_view common, std::int64_t& to) const {
  if (const JsonValue* value = given(common)) to = value->integer;
}
void ConfigReader::read(std::string_view common, double& to) const {
  if (const JsonValue* value = given(common)) to = value->number;
}
void ConfigReader::read(std::string_view common, bool& to) const {
  if (const JsonValue* value = given(common)) to = value->boolean;
}

std::string ConfigReader::text(std::string_view common, std::string_view otherwise) const {
  const JsonValue* value = given(common);
  return value == nullptr ? std::string(otherwise) : value->text;
}

void ConfigReader::fail(std::string_view common, const std::string& what, bool unsupported) const {
  const JsonMember* member = object_.find(spelled(common));
  report_.fail(member == nullptr ? object_.line : member->line, join_key(key_, spelled(common)),
               what, unsupported);
}

std::span<const std::string_view> known_model_types() {
  static const std::vector<std::string_view> types = [] {
    std::vector<std::string_view> names;
    for (const Dialect& dialect : config_dialects()) names.push_back(dialect.model_type);
    return names;
  }();
  return types;
}

const KeyTable& model_key_table() {
  return kTable;
}

namespace {

// The language model of a file that describes several (gemma3: text_config beside vision_config);
// nullptr where the file is of one model.
const JsonValue* language_model(const JsonValue& object) {
  const JsonValue* type = object.given("model_type");
  if (type != nullptr && type->is(JsonKind::String) && find_dialect(type->text)) return nullptr;
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
  if (dialect == nullptr) {
    report.fail(
        type->line, join_key(key, "model_type"),
        json_excerpt(type->text) + " is not known" + what_is_known(type->text, known_model_types()),
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
  // A model none of whose layers has experts is a dense one.
  if (model.experts.first_layer >= model.layers) model.experts = {};
  if (!report.ok()) return file;
  derive(config, model);
  const bool rotates = find_config_key(dialect->model_type, "rope_parameters") != nullptr;
  if (report.ok() && rotates) read_rope(config, model);
  if (report.ok()) scale_latent_attention(model);
  if (report.ok()) check_size(config, model);
  if (report.ok()) file.use = use_of(object, report.path(), key, model);
  return file;
}

Result<ModelFile> read_model_file(const std::string& path) {
  const Result<JsonValue> root = read_json(path);
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
