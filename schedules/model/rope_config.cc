// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/rope_config.h"

#include <algorithm>
#include <array>

namespace rehearse {
namespace {

// modeling_rope_utils.py of transformers; "su" is what longrope was called before.
constexpr std::array<std::string_view, 8> kRopeTypes{"default",  "linear", "dynamic", "yarn",
                                                     "longrope", "su",     "llama3",  "mrope"};

constexpr KeySpec type(std::string_view name) {
  return {.name = name, .types = kString, .choices = kRopeTypes};
}
constexpr KeySpec positive(std::string_view name) {
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
    positive("rope_theta"),
    KeySpec{
        .name = "partial_rotary_factor", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    positive("factor"),
    positive("low_freq_factor"),
    positive("high_freq_factor"),
    KeySpec{
        .name = "original_max_position_embeddings", .types = kInteger, .min = 1, .max = 1 << 30},
    positive("attention_factor"),
    number("beta_fast"),
    number("beta_slow"),
    number("mscale"),
    number("mscale_all_dim"),
    KeySpec{.name = "truncate", .types = kBool},
    factors("short_factor"),
    factors("long_factor"),
};

bool is_filled(const JsonValue* object) {
  return object != nullptr && !object->members.empty();
}

double share_in(const JsonValue* object, std::string_view key, double otherwise) {
  const JsonValue* share = object == nullptr ? nullptr : object->given(key);
  return share != nullptr && share->is_number() ? share->number : otherwise;
}

}  // namespace

constinit const KeyTable kRopeTable{.title = "rope", .keys = kRopeKeys, .open = true};

void read_rope(const ConfigReader& config, Transformer& model) {
  const JsonValue* scaling = config.given("rope_scaling");
  const JsonValue* parameters = config.given("rope_parameters");
  if (is_filled(scaling) && is_filled(parameters)) {
    return config.fail("rope_scaling", "stands beside rope_parameters: one of them is enough");
  }
  for (const JsonValue* rope : {scaling, parameters}) {
    if (rope != nullptr && std::ranges::any_of(rope->members, [](const JsonMember& member) {
          return member.value.is(JsonKind::Object);
        })) {  // gemma3 and its kin
      return config.fail(rope == scaling ? "rope_scaling" : "rope_parameters",
                         "parameters per kind of layer belong to no dialect here");
    }
    const JsonValue* theta = rope == nullptr ? nullptr : rope->given("rope_theta");
    if (theta == nullptr) continue;
    const JsonValue* outside = config.given("rope_theta");
    if (outside != nullptr && outside->number != theta->number) {
      return config.fail("rope_theta",
                         "disagrees with rope_theta of " +
                             std::string(rope == scaling ? "rope_scaling" : "rope_parameters"));
    }
    model.rope_theta = theta->number;
  }
}

bool is_plain_rope(const JsonValue& rope) {
  return std::ranges::all_of(rope.members, [](const JsonMember& member) {
    const JsonValue& value = member.value;
    if (value.is(JsonKind::Null) || member.key == "rope_theta") return true;
    if (member.key == "rope_type" || member.key == "type") return value.text == "default";
    return member.key == "partial_rotary_factor" && value.number == 1;
  });
}

// configuration_gpt_neox.py: rope_parameters wins over rotary_pct, whose default is 0.25.
double rotated_share(const JsonValue& file) {
  constexpr double kDefault = 0.25;
  const double outside = share_in(&file, "rotary_pct", kDefault);
  const double inside = share_in(file.given("rope_scaling"), "partial_rotary_factor", outside);
  return share_in(file.given("rope_parameters"), "partial_rotary_factor", inside);
}

}  // namespace rehearse
