// SPDX-License-Identifier: Apache-2.0
#include "sim/band/step_features.h"

#include <fmt/format.h>

#include <bit>

#include "schedules/base/json_reader.h"

namespace rehearse::sim {

std::string kinds_text(std::uint32_t kinds) {
  std::string text;
  for (std::size_t k = 0; k < kStepKindNames.size(); ++k) {
    if ((kinds >> k & 1U) == 0) continue;
    text += (text.empty() ? "" : " ") + std::string(kStepKindNames[k]);
  }
  return text;
}

std::uint32_t kinds_of(std::string_view text) {
  std::uint32_t kinds = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    for (std::size_t k = 0; k < kStepKindNames.size(); ++k) {
      if (text.substr(0, end) == kStepKindNames[k]) kinds |= 1U << k;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return kinds;
}

std::string features_json(const StepFeatures& f) {
  return fmt::format(
      R"({{"gpu": {}, "precision": {}, "runtime": {}, "attention": {}, "kinds": {}, "nic": {}, )"
      R"("gpus": {}, "network_share": {:.4f}, "memory_fill": {:.4f}}})",
      json_quoted(f.gpu), json_quoted(f.precision), json_quoted(f.runtime),
      json_quoted(f.attention), json_quoted(kinds_text(f.kinds)), json_quoted(f.nic), f.gpus,
      f.network_share, f.memory_fill);
}

std::vector<std::string_view> differences(const StepFeatures& a, const StepFeatures& b) {
  std::vector<std::string_view> found;
  if (a.gpu != b.gpu) found.emplace_back("gpu");
  if (a.precision != b.precision) found.emplace_back("precision");
  if (a.runtime != b.runtime || a.runtime.empty()) found.emplace_back("runtime");
  if (a.attention != b.attention) found.emplace_back("attention");
  for (std::size_t k = 0; k < kStepKindNames.size(); ++k) {
    if (((a.kinds ^ b.kinds) >> k & 1U) != 0) found.push_back(kStepKindNames[k]);
  }
  return found;
}

std::int32_t num_differences(const StepFeatures& a, const StepFeatures& b) {
  constexpr std::uint32_t kAll = (1U << kStepKindNames.size()) - 1;
  return (a.gpu != b.gpu ? 1 : 0) + (a.precision != b.precision ? 1 : 0) +
         (a.runtime != b.runtime || a.runtime.empty() ? 1 : 0) +
         (a.attention != b.attention ? 1 : 0) + std::popcount((a.kinds ^ b.kinds) & kAll);
}

}  // namespace rehearse::sim
