// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/variation.h"

#include <array>
#include <charconv>
#include <optional>
#include <string>

namespace rehearse {
namespace {

constexpr double kMostSigma = 0.3;  // wider than any cluster; the spread is cut at half and double

constexpr std::array kSlowKeys{
    KeySpec{.name = "ranks",
            .types = kString | kInteger,
            .min = 0,
            .max = 1 << 20,
            .required = true,
            .about = "\"8-15\", first and last, or one rank"},
    KeySpec{.name = "speed",
            .types = kNumber,
            .min = 0.01,
            .max = 100,
            .required = true,
            .about = "of a GPU as described: 0.9 computes a tenth less in a second"},
};
constexpr KeyTable kSlow{.title = "slow", .keys = kSlowKeys};

constexpr std::array kKeys{
    KeySpec{.name = "seed", .types = kInteger, .min = 0, .max = 1e15, .about = "of the luck"},
    KeySpec{.name = "speed_sigma",
            .types = kNumber,
            .min = 0,
            .max = kMostSigma,
            .about = "relative spread of the GPUs' speeds"},
    KeySpec{.name = "jitter_sigma",
            .types = kNumber,
            .min = 0,
            .max = kMostSigma,
            .about = "relative spread of the times of single ops"},
    KeySpec{.name = "slow",
            .types = kArray,
            .items = &kSlow,
            .item_types = kObject,
            .about = "GPUs that are known to differ"},
};

std::optional<std::int32_t> number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

}  // namespace

constinit const KeyTable kVariation{.title = "variation", .keys = kKeys};

Variation read_variation(const JsonValue& value, std::int32_t gpus, JsonReport& report) {
  Variation variation;
  if (const JsonValue* seed = value.given("seed")) variation.seed = seed->integer;
  if (const JsonValue* sigma = value.given("speed_sigma")) variation.speed_sigma = sigma->number;
  if (const JsonValue* sigma = value.given("jitter_sigma")) variation.jitter_sigma = sigma->number;
  const JsonValue* slow = value.given("slow");
  if (slow == nullptr) return variation;
  for (std::size_t i = 0; i < slow->items.size(); ++i) {
    const JsonValue& ranks = *slow->items[i].given("ranks");
    const std::string text =
        ranks.is(JsonKind::String) ? ranks.text : std::to_string(ranks.integer);
    const std::size_t dash = text.find('-');
    const auto first = number(std::string_view(text).substr(0, dash));
    const auto last =
        dash == std::string::npos ? first : number(std::string_view(text).substr(dash + 1));
    const std::string key = "variation.slow[" + std::to_string(i) + "].ranks";
    if (!first || !last || *first > *last) {
      report.fail(ranks.line, key, "must be a rank, or \"FIRST-LAST\", not " + json_excerpt(text));
      return variation;
    }
    if (*last >= gpus) {
      report.fail(ranks.line, key,
                  "the last rank of " + std::to_string(gpus) + " is " + std::to_string(gpus - 1));
      return variation;
    }
    variation.slow.push_back({*first, *last, slow->items[i].given("speed")->number});
  }
  return variation;
}

}  // namespace rehearse
