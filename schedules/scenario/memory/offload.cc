// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/memory/offload.h"

#include <algorithm>
#include <vector>

namespace rehearse {
namespace {

constexpr std::array<bool Offload::*, kOffloadParts.size()> kFields{
    &Offload::optimizer, &Offload::activations, &Offload::parameters};

std::vector<std::string_view> words_of(const Offload& offload) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (offload.*kFields[i]) words.push_back(kOffloadParts[i]);
  }
  return words;
}

void add(std::string_view word, Offload& to) {
  const auto found = std::ranges::find(kOffloadParts, word);
  if (found != kOffloadParts.end()) {
    to.*kFields[static_cast<std::size_t>(found - kOffloadParts.begin())] = true;
  }
}

}  // namespace

Offload offload_of(const JsonValue& value) {
  Offload offload;
  add(value.text, offload);
  for (const JsonValue& item : value.items) add(item.text, offload);
  return offload;
}

std::string offload_json(const Offload& offload) {
  const std::vector<std::string_view> words = words_of(offload);
  if (words.size() < 2) return json_quoted(words.empty() ? kOffloadWords.front() : words.front());
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "[" : ", ") + json_quoted(word);
  return text + "]";
}

std::string offload_text(const Offload& offload) {
  std::string text;
  for (const std::string_view word : words_of(offload)) {
    text += (text.empty() ? "" : " + ") + std::string(word);
  }
  return text.empty() ? std::string(kOffloadWords.front()) : text;
}

std::string unfit_offload(const Plan& plan) {
  if (plan.offload.parameters && !plan.gathers_units()) {
    return "parameters come from the host around their use where they lie in shards: zero_stage 3";
  }
  const bool masters = plan.runtime.shards_master_parameters && !plan.offload.optimizer;
  if (plan.offload.parameters && masters && plan.runtime.performer().updates_on_host) {
    return "shards that are the master copy are updated where they lie: optimizer goes with "
           "parameters";
  }
  return {};
}

}  // namespace rehearse
