// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/config/rope_config.h"

#include <algorithm>
#include <array>

#include "schedules/model/config/config_keys.h"
#include "schedules/model/config/near_miss.h"

namespace rehearse {
namespace {

// modeling_rope_utils.py of transformers; "su" is what longrope was called before.
constexpr std::array<std::string_view, 8> kRopeTypes{"default",  "linear", "dynamic", "yarn",
                                                     "longrope", "su",     "llama3",  "mrope"};

constexpr KeySpec type(std::string_view name) {
  return {.name = name, .types = kString, .choices = kRopeTypes};
}
constexpr KeySpec positive_number(std::string_view name) {
  return {.name = name, .types = kNumber, .min = 0, .above_min = true};
}
constexpr KeySpec number(std::string_view name) {
  return {.name = name, .types = kNumber};
}
constexpr KeySpec factors(std::string_view name) {
  return {.name = name, .types = kArray, .item_types = kNumber};
}

constexpr std::array kRopeKeys{
    type("rope_type"),
    type("type"),
    positive_number("rope_theta"),
    KeySpec{
        .name = "partial_rotary_factor", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    positive_number("factor"),
    positive_number("low_freq_factor"),
    positive_number("high_freq_factor"),
    KeySpec{
        .name = "original_max_position_embeddings", .types = kInteger, .min = 1, .max = 1 << 30},
    positive_number("attention_factor"),
    number("beta_fast"),
    number("beta_slow"),
    number("mscale"),
    number("mscale_all_dim"),
    KeySpec{.name = "truncate", .types = kBool},
    factors("short_factor"),
    factors("long_factor"),
};
// Without meaning for text alone: of models that see pictures, and of files from before
// transformers knew YaRN.
constexpr std::array<std::string_view, 3> kIdleWords{"mrope_section", "mrope_interleaved",
                                                     "finetuned"};
constexpr KeyTable kOfOneKind{.title = "rope of a kind of layer", .keys = kRopeKeys, .open = true};

// Gemma 3 says them by kind of layer.
constexpr std::array kLayerKinds{
    KeySpec{.name = "full_attention", .types = kObject, .members = &kOfOneKind},
    KeySpec{.name = "sliding_attention", .types = kObject, .members = &kOfOneKind},
};
constexpr auto kAllKeys = [] {
  std::array<KeySpec, kRopeKeys.size() + kLayerKinds.size()> all{};
  std::ranges::copy(kRopeKeys, all.begin());
  std::ranges::copy(kLayerKinds, all.begin() + kRopeKeys.size());
  return all;
}();

bool is_known_rope(std::string_view word) {
  return std::ranges::find(kAllKeys, word, &KeySpec::name) != kAllKeys.end() ||
         std::ranges::find(kIdleWords, word) != kIdleWords.end();
}

// The known words that `rope` has, or that it lacks.
std::vector<std::string_view> words(const JsonValue& rope, bool lacks) {
  std::vector<std::string_view> all;
  for (const KeySpec& spec : kAllKeys) {
    if ((rope.find(spec.name) == nullptr) == lacks) all.push_back(spec.name);
  }
  return all;
}

bool is_filled(const JsonValue* object) {
  return object != nullptr && !object->members.empty();
}

// The object's members into `rope`; those that it lacks stay.
class RopeReader {
 public:
  explicit RopeReader(const JsonValue& object) : object_(object) {}
  void read(RotaryConfig& rope) const {
    if (const JsonValue* type = either("rope_type", "type")) rope.kind = kind_of(type->text);
    number("rope_theta", rope.theta);
    number("partial_rotary_factor", rope.share);
    number("factor", rope.factor);
    number("low_freq_factor", rope.low_frequency);
    number("high_freq_factor", rope.high_frequency);
    number("attention_factor", rope.attention_factor);
    unless_zero("beta_fast", rope.beta_fast);
    unless_zero("beta_slow", rope.beta_slow);
    number("mscale", rope.magnitude);
    number("mscale_all_dim", rope.magnitude_all);
    if (const JsonValue* at = object_.given("original_max_position_embeddings")) {
      rope.original_positions = at->integer;
    }
    if (const JsonValue* at = object_.given("truncate")) rope.truncate = at->boolean;
    list("short_factor", rope.short_factors);
    list("long_factor", rope.long_factors);
  }

 private:
  static RotaryKind kind_of(std::string_view type) {
    constexpr std::array<std::pair<std::string_view, RotaryKind>, 6> kKinds{{
        {"linear", RotaryKind::Linear},
        {"dynamic", RotaryKind::Dynamic},
        {"yarn", RotaryKind::Yarn},
        {"longrope", RotaryKind::LongRope},
        {"su", RotaryKind::LongRope},
        {"llama3", RotaryKind::Llama3},
    }};
    const auto at =
        std::ranges::find(kKinds, type, &std::pair<std::string_view, RotaryKind>::first);
    return at == kKinds.end() ? RotaryKind::Default : at->second;
  }
  const JsonValue* either(std::string_view key, std::string_view older) const {
    const JsonValue* value = object_.given(key);
    return value != nullptr ? value : object_.given(older);
  }
  void number(std::string_view key, double& to) const {
    if (const JsonValue* value = object_.given(key)) to = value->number;
  }
  // transformers takes 0 as if it were left out.
  void unless_zero(std::string_view key, double& to) const {
    const JsonValue* value = object_.given(key);
    if (value != nullptr && value->number != 0) to = value->number;
  }
  void list(std::string_view key, std::vector<double>& to) const {
    const JsonValue* value = object_.given(key);
    if (value == nullptr) return;
    to.clear();
    for (const JsonValue& item : value->items) to.push_back(item.number);
  }
  const JsonValue& object_;
};

// What is wrong with it; "": nothing. Where a factor is left out yarn and longrope take the ratio
// of the model's positions and the original ones.
std::string fault_of(const RotaryConfig& rope, const Transformer& model) {
  const auto pairs = static_cast<std::size_t>(rotary_dim(rope, model.rotary_head_dim()) / 2);
  switch (rope.kind) {
    case RotaryKind::Linear:
    case RotaryKind::Dynamic:
    case RotaryKind::Llama3:
      if (rope.factor == 0) return "needs a factor";
      break;
    case RotaryKind::LongRope:
      for (const auto& list : {rope.short_factors, rope.long_factors}) {
        if (list.size() != pairs || std::ranges::any_of(list, [](double f) { return !(f > 0); })) {
          return "needs short_factor and long_factor, " + std::to_string(pairs) +
                 " positive numbers each";
        }
      }
      break;
    case RotaryKind::Default:
    case RotaryKind::Yarn:
      break;
  }
  if (rope.kind == RotaryKind::Llama3 && rope.high_frequency < rope.low_frequency) {
    return "high_freq_factor must not be less than low_freq_factor";
  }
  return "";
}

// Phi 3 rotates plainly or by longrope alone: its class takes YaRN for an older word for that, and
// refuses the others (configuration_phi3.py, convert_rope_params_to_dict, validate_rope). "": fits.
std::string other_than_longrope(Transformer& model) {
  if (!names("phi3", model.model_type)) return {};
  RotaryKind& kind = model.rotary.kind;
  if (kind == RotaryKind::Yarn) kind = RotaryKind::LongRope;
  if (kind == RotaryKind::Default || kind == RotaryKind::LongRope) return {};
  return "phi3 has the types default and longrope alone";
}

bool has_objects(const JsonValue& rope) {
  return std::ranges::any_of(
      rope.members, [](const JsonMember& member) { return member.value.is(JsonKind::Object); });
}

// Gemma 3 says it by kind of layer: {"full_attention": {...}, "sliding_attention": {...}}.
void read_by_layer_kind(const JsonValue& object, Transformer& model) {
  for (const auto& [kind, rope] : {std::pair{"full_attention", &model.rotary},
                                   std::pair{"sliding_attention", &model.windowed_rotary}}) {
    const JsonValue* one = object.given(kind);
    if (one != nullptr && one->is(JsonKind::Object)) RopeReader(*one).read(*rope);
  }
}

}  // namespace

constinit const KeyTable kRopeTable{.title = "rope", .keys = kAllKeys, .open = true};

void check_rope_words(const JsonValue& rope, const std::string& key, JsonReport& report) {
  const std::vector<std::string_view> absent = words(rope, true);
  for (const JsonMember& member : rope.members) {
    const std::string at = join_key(key, member.key);
    if (is_known_rope(member.key)) {
      if (member.value.is(JsonKind::Object)) check_rope_words(member.value, at, report);
      continue;
    }
    const std::string_view meant = near_miss(member.key, absent);
    if (meant.empty()) continue;
    report.fail(member.line, at, "unknown key, the nearest known one is " + std::string(meant));
  }
}

std::vector<std::string> unread_rope_words(const JsonValue& rope) {
  std::vector<std::string> unread;
  const std::vector<std::string_view> present = words(rope, false);
  for (const JsonMember& member : rope.members) {
    if (is_known_rope(member.key)) {
      if (!member.value.is(JsonKind::Object)) continue;
      for (const std::string& inside : unread_rope_words(member.value)) {
        unread.push_back("." + member.key + inside);
      }
      continue;
    }
    const std::string_view meant = near_miss(member.key, present);
    unread.push_back("." + member.key + ": no key of rotary positions that is known: ignored" +
                     (meant.empty() ? "" : "; it stands beside " + std::string(meant)));
  }
  return unread;
}

void read_rope(const ConfigReader& config, Transformer& model) {
  const JsonValue* scaling = config.given("rope_scaling");
  const JsonValue* parameters = config.given("rope_parameters");
  if (is_filled(scaling) && is_filled(parameters)) {
    return config.fail("rope_scaling", "stands beside rope_parameters: one of them is enough");
  }
  const auto row = find_config_key(model.model_type, "partial_rotary_factor");
  if (row->use == KeyUse::Executed) config.read("partial_rotary_factor", model.rotary.share);
  const JsonValue* rope = is_filled(scaling) ? scaling : parameters;
  if (rope == nullptr) return;
  const std::string_view name = rope == scaling ? "rope_scaling" : "rope_parameters";
  const bool by_kind = has_objects(*rope);
  if (by_kind && (!model.rotary_by_layer_kind || rope == scaling)) {
    return config.fail(name, "parameters per kind of layer belong to gemma3_text alone");
  }
  if (!by_kind && model.rotary_by_layer_kind && is_filled(parameters)) {
    return config.fail(name,
                       "gemma3_text says them by kind of layer: full_attention, "
                       "sliding_attention");
  }
  // transformers 5 puts the object over {"rope_type": "default"} and looks at rope_type alone;
  // version 4 took the older word.
  const JsonValue* older = rope->given("type");
  const bool overlooked = model.rotary_by_layer_kind && rope == scaling && older != nullptr &&
                          older->text != "default" && rope->given("rope_type") == nullptr;
  if (overlooked) {
    return config.fail(name, "transformers 5 does not look at type in " + model.model_type +
                                 ", and rotates as if nothing were said: write rope_type for it");
  }
  // A class with a key of its own for them does not look at the object's.
  const std::int64_t original = model.rotary.original_positions;
  if (by_kind) {
    read_by_layer_kind(*rope, model);
  } else {
    const JsonValue *theta = rope->given("rope_theta"), *outside = config.given("rope_theta");
    if (theta != nullptr && outside != nullptr && outside->number != theta->number) {
      return config.fail("rope_theta", "disagrees with rope_theta of " + std::string(name));
    }
    RopeReader(*rope).read(model.rotary);
  }
  const std::string other = other_than_longrope(model);
  if (!other.empty()) return config.fail(name, other);
  if (original > 0) model.rotary.original_positions = original;
  for (const RotaryConfig* one : {&model.rotary, &model.windowed_rotary}) {
    const std::string fault = fault_of(*one, model);
    if (!fault.empty()) return config.fail(name, fault);
  }
}

bool is_performed_rope(const JsonValue& rope) {
  return std::ranges::all_of(rope.members, [](const JsonMember& member) {
    if (member.value.is(JsonKind::Object)) return is_performed_rope(member.value);
    const bool type = member.key == "rope_type" || member.key == "type";
    return !type || member.value.text != "mrope";
  });
}

}  // namespace rehearse
