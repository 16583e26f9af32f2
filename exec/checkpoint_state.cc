#include "exec/checkpoint_state.h"

#include <utility>
#include <vector>

#include "schedules/json_reader.h"

namespace rehearse::exec {
namespace {

constexpr std::string_view kSchema = "rehearse.checkpoint/1";

// What makes two models one: Hugging Face's key and its value as JSON. Positions count only where
// they are learned: others hold no parameters, and a run may lengthen them.
std::vector<std::pair<std::string, std::string>> model_facts(const Transformer& model) {
  const auto yes = [](bool value) { return std::string(value ? "true" : "false"); };
  const bool learned = model.positions == PositionKind::Learned;
  return {{"model_type", json_quoted(model.model_type)},
          {"num_hidden_layers", std::to_string(model.layers)},
          {"hidden_size", std::to_string(model.hidden)},
          {"num_attention_heads", std::to_string(model.heads)},
          {"num_key_value_heads", std::to_string(model.kv_heads)},
          {"head_dim", std::to_string(model.head_dim)},
          {"intermediate_size", std::to_string(model.ffn_hidden)},
          {"vocab_size", std::to_string(model.vocabulary)},
          {"max_position_embeddings", learned ? std::to_string(model.max_positions) : "null"},
          {"tie_word_embeddings", yes(model.tied_embedding)},
          {"gated_mlp", yes(model.mlp == MlpKind::Gated)},
          {"norm_epsilon", json_number(model.norm_epsilon)},
          {"rope_theta", json_number(model.rope_theta)}};
}

}  // namespace

std::string state_json(const CheckpointState& state, const Transformer& model) {
  std::string text = "{\n  \"schema\": " + json_quoted(kSchema);
  const auto add = [&text](std::string_view key, const std::string& value) {
    text += ",\n  " + json_quoted(key) + ": " + value;
  };
  add("step", std::to_string(state.step));
  add("samples", std::to_string(state.samples));
  add("sequence_length", std::to_string(state.sequence_length));
  add("data", json_quoted(state.data));
  add("seed", std::to_string(state.seed));
  add("learning_rate", json_number(state.learning_rate));
  add("loss", json_number(state.loss));
  add("grad_norm", json_number(state.grad_norm));
  add("schedule_hash", json_quoted(state.schedule_hash));
  std::string facts;
  for (const auto& [key, value] : model_facts(model)) {
    facts += (facts.empty() ? "{" : ", ") + json_quoted(key) + ": " + value;
  }
  add("model", facts + '}');
  add("plan", state.plan);
  return text + "\n}\n";
}

Result<CheckpointState> read_state(const std::string& path, const Transformer& model) {
  const Result<JsonValue> read = read_json(path);
  if (!read) return read.error();
  const JsonValue& json = read.value();
  const JsonValue* schema = json.given("schema");
  if (schema == nullptr || schema->text != kSchema) {
    return json_error(path, 0, "schema", "not " + std::string(kSchema));
  }
  const JsonValue* of = json.given("model");
  if (of == nullptr) return json_error(path, 0, "model", "is missing");
  for (const auto& [key, value] : model_facts(model)) {
    const JsonMember* found = of->find(key);
    const std::string theirs = found == nullptr ? "null" : to_json_text(found->value);
    if (theirs != value) {
      return json_error(path, 0, "model." + key,
                        "the checkpoint's model has " + theirs + ", this run's " + value);
    }
  }
  CheckpointState state;
  for (const auto& [key, to] : {std::pair{"step", &state.step},
                                {"samples", &state.samples},
                                {"sequence_length", &state.sequence_length}}) {
    const JsonValue* value = json.given(key);
    if (value == nullptr || !value->is(JsonKind::Integer) || value->integer < 0) {
      return json_error(path, 0, key, "must be an integer of at least 0");
    }
    *to = value->integer;
  }
  std::int64_t tokens = 0;
  if (__builtin_mul_overflow(state.samples, state.sequence_length, &tokens)) {
    return json_error(path, 0, "samples", "beyond what a run can have read");
  }
  return state;
}

}  // namespace rehearse::exec
