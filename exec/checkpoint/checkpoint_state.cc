// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/checkpoint_state.h"

#include <utility>

#include "exec/checkpoint/model_facts.h"
#include "schedules/base/json_reader.h"
#include "schedules/model/optimizer.h"

namespace rehearse::exec {
namespace {

constexpr std::string_view kSchema = "rehearse.checkpoint/1";

struct Document {
  std::string text;
  JsonValue json;
};

// What is wrong with a state that is not of this version's kind; the version is what its schema
// ends in.
std::string other_schema(const JsonValue* schema) {
  const std::string_view kind = kSchema.substr(0, kSchema.find('/') + 1);
  if (schema == nullptr || !schema->is(JsonKind::String) || !schema->text.starts_with(kind)) {
    return "not " + std::string(kSchema);
  }
  return "the checkpoint has version " + json_excerpt(schema->text.substr(kind.size())) +
         ", this program reads version " + json_excerpt(kSchema.substr(kind.size()));
}

// A file that calls itself a checkpoint's state.
Result<Document> read_document(const std::string& path) {
  constexpr std::int64_t kMost = std::int64_t{64} << 20;
  Result<std::string> text = read_text_file(path, kMost);
  if (!text) return text.error();
  Document document{.text = std::move(text).value()};
  Result<JsonValue> json = parse_json(document.text, path);
  if (!json) return json.error();
  document.json = std::move(json).value();
  const JsonValue* schema = document.json.given("schema");
  if (schema == nullptr || schema->text != kSchema) {
    return json_error(path, 0, "schema", other_schema(schema));
  }
  return document;
}

// What version 0.1 wrote has no sums: neither its own nor those of other files.
Result<> unchanged(const Document& document, const std::string& path) {
  const bool summed = document.json.find("crc32c") != nullptr ||
                      document.json.find("digest") != nullptr ||
                      document.json.find("written") != nullptr;
  return check_own_digest(document.text, path, summed);
}

Result<std::int64_t> count_of(const JsonValue& json, std::string_view key,
                              const std::string& path) {
  const JsonValue* value = json.given(key);
  if (value == nullptr || !value->is(JsonKind::Integer) || value->integer < 0) {
    return json_error(path, 0, std::string(key), "must be an integer of at least 0");
  }
  return value->integer;
}

// A value for a message: an object that stands for a number may have any length and many lines.
std::string one_line(std::string value) {
  constexpr std::size_t kShown = 60;
  std::erase(value, '\n');
  return value.size() <= kShown ? value : value.substr(0, kShown) + "...";
}

// JSON as it is after one reading: 1e+06 is 1000000 then.
std::string as_read(const std::string& json) {
  return to_json_text(parse_json(json, "").value());
}

}  // namespace

std::string state_json(const CheckpointState& state, const Transformer& model) {
  std::string text = "{\n  \"schema\": " + json_quoted(kSchema);
  const auto add = [&text](std::string_view key, const std::string& value) {
    text += ",\n  " + json_quoted(key) + ": " + value;
  };
  add("step", std::to_string(state.step));
  add("written", std::to_string(state.written));
  add("samples", std::to_string(state.samples));
  add("sequence_length", std::to_string(state.sequence_length));
  add("data", json_quoted(state.data));
  add("seed", std::to_string(state.seed));
  add("learning_rate", json_number(state.learning_rate));
  add("loss", json_number(state.loss));
  add("grad_norm", json_number(state.grad_norm));
  if (state.loss_scale > 0 || state.skipped_steps > 0) {
    add("loss_scale", json_number(state.loss_scale));
    add("clean_steps", std::to_string(state.clean_steps));
    add("skipped_steps", std::to_string(state.skipped_steps));
  }
  add("schedule_hash", json_quoted(state.schedule_hash));
  std::string facts;
  for (const ModelFact& fact : model_facts(model)) {
    facts += (facts.empty() ? "{" : ", ") + json_quoted(fact.key) + ": " + fact.value;
  }
  add("model", facts + '}');
  add("plan", state.plan);
  add("crc32c", digests_json(state.digests));
  return with_own_digest(text + "\n}\n");
}

Result<CheckpointState> read_state(const std::string& path, const Transformer& model) {
  const Result<Document> read = read_document(path);
  if (!read) return read.error();
  const JsonValue& json = read.value().json;
  const JsonValue* of = json.given("model");
  if (of == nullptr) return json_error(path, 0, "model", "is missing");
  for (const ModelFact& fact : model_facts(model)) {
    const JsonMember* found = of->find(fact.key);
    if (found == nullptr && fact.later) continue;
    const std::string theirs = found == nullptr ? "null" : to_json_text(found->value);
    const std::string ours = as_read(fact.value);
    if (theirs != ours) {
      return json_error(
          path, 0, "model." + std::string(fact.key),
          "the checkpoint's model has " + one_line(theirs) + ", this run's " + one_line(ours));
    }
  }
  CheckpointState state;
  for (const auto& [key, to] : {std::pair{"step", &state.step},
                                {"samples", &state.samples},
                                {"sequence_length", &state.sequence_length}}) {
    const Result<std::int64_t> value = count_of(json, key, path);
    if (!value) return value.error();
    *to = value.value();
  }
  if (const JsonValue* scale = json.given("loss_scale")) {
    const bool number = scale->is(JsonKind::Number) || scale->is(JsonKind::Integer);
    if (!number || scale->number < 0) {
      return json_error(path, 0, "loss_scale", "must be a number of at least 0");
    }
    state.loss_scale = scale->number;
    for (const auto& [key, to] :
         {std::pair{"clean_steps", &state.clean_steps}, {"skipped_steps", &state.skipped_steps}}) {
      const Result<std::int64_t> value = count_of(json, key, path);
      if (!value) return value.error();
      *to = value.value();
    }
    if (state.skipped_steps > state.step) {
      return json_error(path, 0, "skipped_steps", "more than the steps that were done");
    }
  }
  std::int64_t tokens = 0;
  if (__builtin_mul_overflow(state.samples, state.sequence_length, &tokens)) {
    return json_error(path, 0, "samples", "beyond what a run can have read");
  }
  if (const Result<> same = unchanged(read.value(), path); !same) return same.error();
  if (const JsonValue* digests = json.given("crc32c")) {
    Result<Digests> sums = read_digests(*digests, path);
    if (!sums) return sums.error();
    state.digests = std::move(sums).value();
  }
  if (const JsonValue* written = json.given("written")) state.written = written->integer;
  const JsonValue* plan = json.given("plan");
  const JsonValue* optimizer =
      plan == nullptr || !plan->is(JsonKind::Object) ? nullptr : plan->given("optimizer");
  const bool said = optimizer != nullptr && optimizer->is(JsonKind::String);
  // Checkpoints of before the key are those of the first.
  state.optimizer = said ? optimizer->text : std::string(kOptimizerNames.front());
  return state;
}

Result<CheckpointHead> read_head(const std::string& path) {
  const Result<Document> read = read_document(path);
  if (!read) return read.error();
  const JsonValue& json = read.value().json;
  const Result<std::int64_t> step = count_of(json, "step", path);
  if (!step) return step.error();
  if (const Result<> same = unchanged(read.value(), path); !same) return same.error();
  const JsonValue* written = json.given("written");
  return CheckpointHead{.step = step.value(), .written = written ? written->integer : 0};
}

}  // namespace rehearse::exec
