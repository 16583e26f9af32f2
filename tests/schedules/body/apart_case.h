// SPDX-License-Identifier: Apache-2.0
// A backward and the R in front of it are, together, the backward that computes again by itself.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "schedules/body/body.h"
#include "schedules/body/body_proof.h"

namespace rehearse {

// Tensors that a node reads in memory of the op alone before any node has written them.
inline std::vector<std::string> read_unwritten(const Body& body) {
  std::vector<std::string> found;
  std::vector<bool> written(body.tensors.size(), false);
  for (const Node& node : body.nodes) {
    for (const std::int16_t t : node.reads) {
      const BodyTensor& tensor = body.tensors[static_cast<std::size_t>(t)];
      const bool in_place = std::ranges::find(node.writes, t) != node.writes.end();
      if (tensor.home == TensorHome::Workspace && !written[static_cast<std::size_t>(t)] &&
          !in_place) {
        found.push_back(std::string(tensor.name) + " in " + std::string(node.name));
      }
    }
    for (const std::int16_t t : node.writes) written[static_cast<std::size_t>(t)] = true;
  }
  return found;
}

// Slabs that an R makes: name, place and size of what lies in them.
inline std::vector<std::string> remade(const Body& body) {
  std::vector<std::string> found;
  for (const BodyTensor& t : body.tensors) {
    if (t.home != TensorHome::RemadeForDgrad && t.home != TensorHome::RemadeForWgrad) continue;
    found.push_back(std::string(t.home == TensorHome::RemadeForDgrad ? "I " : "W ") +
                    std::string(t.name) + " at " + std::to_string(t.offset) + ", " +
                    std::to_string(t.bytes));
  }
  return found;
}

inline void expect_apart_is_fused(const Layout& layout, const SegmentInfo& segment,
                                  std::int32_t slice = -1) {
  const auto made = [&](Direction direction, bool apart) {
    return make_body(layout, body_shape(layout, segment, direction, slice, apart));
  };
  const Body again = made(Direction::Recompute, false);
  const auto count = [](const Body& body) {
    return static_cast<std::ptrdiff_t>(body.nodes.size());
  };
  EXPECT_EQ(body_fault(again), "");
  EXPECT_EQ(read_unwritten(again), std::vector<std::string>{});
  EXPECT_EQ(again.left_for_wgrad, 0);
  for (const Direction direction :
       {Direction::Backward, Direction::InputGradient, Direction::WeightGradient}) {
    const Body fused = made(direction, false), apart = made(direction, true);
    const bool weight = direction == Direction::WeightGradient;
    EXPECT_EQ(count(fused), count(apart) + (weight ? 0 : count(again)));
    EXPECT_EQ(fused.flops(), apart.flops() + (weight ? 0 : again.flops()));
    EXPECT_EQ(read_unwritten(fused), std::vector<std::string>{});
    EXPECT_EQ(read_unwritten(apart), std::vector<std::string>{});
    EXPECT_EQ(body_fault(apart), "");
    EXPECT_EQ(remade(apart), remade(again));
    EXPECT_EQ(apart.remade_for_dgrad, again.remade_for_dgrad);
    EXPECT_EQ(apart.remade_for_wgrad, again.remade_for_wgrad);
    EXPECT_EQ(apart.saved_for_dgrad, fused.saved_for_dgrad);
    EXPECT_EQ(apart.saved_for_wgrad, fused.saved_for_wgrad);
    EXPECT_LE(apart.workspace, fused.workspace);
    // What I would have left for W of it, the R makes for W.
    EXPECT_LE(apart.left_for_wgrad, fused.left_for_wgrad);
  }
}

}  // namespace rehearse
