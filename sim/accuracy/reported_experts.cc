// SPDX-License-Identifier: Apache-2.0
#include "sim/accuracy/reported_experts.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace rehearse::sim {
namespace {

struct Word {
  std::string_view text;
  ExpertDispatch dispatch;
};
constexpr std::array kWords{
    Word{"DeepEP", ExpertDispatch::Deduplicated}, Word{"HybridEP", ExpertDispatch::Deduplicated},
    Word{"allgather", ExpertDispatch::AllGather}, Word{"all_gather", ExpertDispatch::AllGather},
    Word{"alltoall", ExpertDispatch::AllToAll},   Word{"all_to_all", ExpertDispatch::AllToAll},
};

std::string_view text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.given(key);
  return value != nullptr && value->is(JsonKind::String) ? std::string_view(value->text)
                                                         : std::string_view();
}
const JsonValue* object_of(const JsonValue* object, std::string_view key) {
  const JsonValue* value = object == nullptr ? nullptr : object->given(key);
  return value != nullptr && value->is(JsonKind::Object) ? value : nullptr;
}

}  // namespace

void take_reported_experts(const JsonValue& item, Plan& plan) {
  const JsonValue* experts = object_of(object_of(&item, "reported"), "experts");
  const JsonValue* given = object_of(object_of(&item, "scenario"), "plan");
  if (experts == nullptr || given == nullptr) return;
  if (given->given("expert_dispatch") == nullptr) {
    const std::string_view said = text_of(*experts, "dispatcher");
    const auto word = std::ranges::find_if(
        kWords, [&](const Word& each) { return said.find(each.text) != std::string_view::npos; });
    if (word != kWords.end()) plan.expert_dispatch = word->dispatch;
  }
  const bool even =
      text_of(*experts, "routing").find("balanced by construction") != std::string_view::npos;
  if (even && given->given("expert_routing") == nullptr) {
    plan.expert_routing = ExpertRouting::Balanced;
  }
}

}  // namespace rehearse::sim
