// SPDX-License-Identifier: Apache-2.0
#include "sim/accuracy/case_words.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "schedules/scenario/keys/plan_rows.h"

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

// What `uncertain` says behind "KEY: "; empty: nothing.
std::string_view uncertain_of(const JsonValue& item, std::string_view key) {
  const JsonValue* list = item.given("uncertain");
  if (list == nullptr) return {};
  for (const JsonValue& line : list->items) {
    const std::string_view text = line.text;
    if (text.starts_with(key) && text.substr(key.size()).starts_with(": ")) {
      return text.substr(key.size() + 2);
    }
  }
  return {};
}

void take_dispatcher(std::string_view said, Plan& plan) {
  const auto word = std::ranges::find_if(
      kWords, [&](const Word& each) { return said.find(each.text) != std::string_view::npos; });
  if (word != kWords.end()) plan.expert_dispatch = word->dispatch;
}

}  // namespace

void take_case_words(const JsonValue& item, Plan& plan) {
  const JsonValue* given = object_of(object_of(&item, "scenario"), "plan");
  if (given == nullptr) return;
  if (given_in(*given, &Plan::attention_kernel) == nullptr &&
      uncertain_of(item, "flash_attention").starts_with("left to the default")) {
    plan.attention_kernel = plan.runtime.attention_kernel;
    plan.flash_attention = is_fused(plan.attention_kernel);
  }
  const JsonValue* experts = object_of(object_of(&item, "reported"), "experts");
  if (given_in(*given, &Plan::expert_dispatch) == nullptr) {
    take_dispatcher(uncertain_of(item, "runtime"), plan);
    if (experts != nullptr) take_dispatcher(text_of(*experts, "dispatcher"), plan);
  }
  if (experts == nullptr) return;
  const JsonValue* grouped = experts->given("grouped_gemm");
  if (given->given("grouped_experts") == nullptr && grouped != nullptr &&
      grouped->is(JsonKind::Bool)) {
    plan.runtime.grouped_experts = grouped->boolean;
  }
  if (given_in(*given, &Plan::expert_routing) != nullptr) return;
  if (text_of(*experts, "routing").find("balanced by construction") != std::string_view::npos) {
    plan.expert_routing = ExpertRouting::Balanced;
  }
}

}  // namespace rehearse::sim
