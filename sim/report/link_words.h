// SPDX-License-Identifier: Apache-2.0
// The classes of links that a row of the report's `communication` loads.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/predict/pricing/pricing.h"

namespace rehearse::sim {

// A GPU without links of its own reaches its neighbours over "pcie".
inline std::string link_word(LinkKind kind, const Cluster& cluster) {
  const bool tree = cluster.scale_up.kind == ScaleUpKind::PcieTree;
  return std::string(name_of(kind == LinkKind::Port && tree ? LinkKind::Pcie : kind));
}

// The slowest first, then the others from the GPU outwards: "nic", "scale_up".
inline std::vector<std::string> link_words(const Traffic& traffic, const Cluster& cluster) {
  std::vector<std::string> words;
  const auto add = [&](LinkKind kind) {
    const std::string word = link_word(kind, cluster);
    if (words.empty() || (words.front() != word && words.back() != word)) words.push_back(word);
  };
  add(traffic.link);
  for (std::size_t k = 0; k < kNumLinkKinds; ++k) {
    if (traffic.links[k]) add(static_cast<LinkKind>(k));
  }
  return words;
}

}  // namespace rehearse::sim
