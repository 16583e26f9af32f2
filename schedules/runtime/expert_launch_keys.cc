// SPDX-License-Identifier: Apache-2.0
#include "schedules/runtime/expert_launch_keys.h"

#include <array>
#include <string_view>

namespace rehearse {
namespace {

struct Row {
  std::string_view name;
  LaunchCount ExpertLaunches::*field;
  std::string_view about;
};
using L = ExpertLaunches;
constexpr std::array kRows{
    Row{"router", &L::router, "scores, top-k and the loss that balances, op by op"},
    Row{"router_fused", &L::router_fused, "the same by kernels of their own"},
    Row{"counts", &L::counts, "what goes where, brought to the host"},
    Row{"permute", &L::permute, "copies of tokens in the order of experts, op by op"},
    Row{"permute_fused", &L::permute_fused, "the same by kernels of their own"},
    Row{"sort", &L::sort, "by rank or by expert, each way, op by op"},
    Row{"sort_fused", &L::sort_fused, "the same by kernels of their own"},
    Row{"exchange", &L::exchange, "one collective between ranks of experts"},
    Row{"deduplicated", &L::deduplicated, "what sends tokens once, each way, counts included"},
    Row{"activation", &L::activation, "of the experts"},
    Row{"sums", &L::sums, "of a token's copies where they come home"},
    Row{"calls", &L::calls, "calls for each expert of a rank in one grouped product"},
};

constexpr KeySpec count(std::string_view name) {
  return {.name = name,
          .types = kInteger,
          .min = 0,
          .max = 10000,
          .required = true,
          .about = "launches"};
}
constexpr std::array kCountKeys{count("forward"), count("backward"),
                                KeySpec{.name = "source", .types = kString, .about = "for people"}};
constexpr KeyTable kCount{.title = "launches", .keys = kCountKeys};

constexpr auto kKeys = [] {
  std::array<KeySpec, kRows.size()> keys;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = {
        .name = kRows[i].name, .types = kObject, .members = &kCount, .about = kRows[i].about};
  }
  return keys;
}();
}  // namespace

constinit const KeyTable kExpertLaunchesTable{.title = "expert_launches", .keys = kKeys};

void take_expert_launches(const JsonValue& section, ExpertLaunches& launches) {
  for (const Row& row : kRows) {
    const JsonValue* value = section.given(row.name);
    if (value == nullptr) continue;
    launches.*
        row.field = {.forward = static_cast<std::int32_t>(value->given("forward")->integer),
                     .backward = static_cast<std::int32_t>(value->given("backward")->integer)};
  }
}

}  // namespace rehearse
