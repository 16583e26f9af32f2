// SPDX-License-Identifier: Apache-2.0
// A torus of one node: which links a message and a collective pass, and how often.
//
// Chips are numbered along the first axis first. Every chip has a link to each neighbour along each
// axis, and each link two directions that do not share. A message goes along the first axis to its
// place there, then along the second, each time the shorter way round (dimension-ordered routes);
// of two equally short ways even coordinates go forward and odd ones back. A chip that is passed
// passes on at no cost. No bandwidths' times here: topology*.cc makes loads of the counts.
//
// A collective of chips that form a block (a product of coordinates) runs along the axes one after
// another, as many rings at once as there are lines, half of each ring's data in either direction.
// The data is dealt to the axes that it begins with by what their rings carry, and each part then
// takes the other axes in turn, so that all links work at the same time. On k^d chips with equal
// links this is the bound (n-1)/n S / (2 d B) of what a chip's links carry, which edge-disjoint
// Hamiltonian cycles reach as well (the two of a 4 x 4 torus are what AWS runs:
// aws-neuron/aws-neuron-sdk neuron-runtime/explore/intranode-collective-comm.rst). Chips that form
// no block run one ring in the order of their ranks, over whatever links lie between.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"

namespace rehearse::sim {

// What an operation puts on one direction of a link.
struct TorusLoad {
  std::int32_t link = 0;
  double ring = 0;      // bytes per byte that one member sends around the ring
  double pairwise = 0;  // per byte of one member's whole buffer in an all-to-all
  double next = 0;      // per byte that each member sends to the next of its group
};

struct TorusGroup {
  std::vector<TorusLoad> loads;  // a link may stand there several times
  std::int32_t turn_hops = 0;    // links that follow one another in a whole turn of the rings
  std::int32_t next_hops = 0;    // from a member to the next of the group
  std::int32_t reach_hops = 0;   // links of the longest way between two members
};

class Torus {
 public:
  // REQUIRES: at least one axis.
  explicit Torus(std::span<const TorusAxis> axes);

  std::int32_t num_chips() const { return chips_; }
  // Links of one direction are numbered 0 ... num_links()-1.
  std::int32_t num_links() const { return 2 * chips_ * num_axes(); }
  std::int32_t axis_of(std::int32_t link) const { return link / 2 % num_axes(); }
  std::int32_t chip_of(std::int32_t link) const { return link / 2 / num_axes(); }
  static bool is_forward(std::int32_t link) { return link % 2 == 0; }
  const TorusAxis& axis(std::int32_t d) const { return axes_[static_cast<std::size_t>(d)]; }

  // The links from one chip to another, in order; none to itself.
  std::vector<std::int32_t> route(std::int32_t from, std::int32_t to) const;
  // Loads of the `members` of a group of `ranks` that are on this torus, by rank.
  TorusGroup group(std::span<const std::int32_t> members, std::int32_t ranks) const;
  // How many coordinates of each axis the members' block has; empty where they form none.
  std::vector<std::int32_t> block_of(std::span<const std::int32_t> members) const;
  // Per link the least one that is its equal: that a shift of the torus brings onto it which leaves
  // `content`, what stands on each chip, as it is.
  std::vector<std::int32_t> equal_links(std::span<const std::int32_t> content) const;

 private:
  std::int32_t num_axes() const { return static_cast<std::int32_t>(axes_.size()); }
  std::int32_t coordinate(std::int32_t chip, std::int32_t d) const {
    return chip / stride_[static_cast<std::size_t>(d)] % axis(d).size;
  }
  std::int32_t with_coordinate(std::int32_t chip, std::int32_t d, std::int32_t to) const {
    return chip + (to - coordinate(chip, d)) * stride_[static_cast<std::size_t>(d)];
  }
  std::int32_t link(std::int32_t chip, std::int32_t d, bool forward) const {
    return 2 * (chip * num_axes() + d) + (forward ? 0 : 1);
  }
  std::int32_t shifted(std::int32_t chip, std::int32_t by) const;
  // Sorted coordinates of the members along an axis.
  std::vector<std::int32_t> coordinates(std::span<const std::int32_t> members,
                                        std::int32_t d) const;
  TorusGroup block(std::span<const std::int32_t> members, std::int32_t ranks) const;
  TorusGroup scattered(std::span<const std::int32_t> members, std::int32_t ranks) const;

  std::vector<TorusAxis> axes_;
  std::vector<std::int32_t> stride_;
  std::int32_t chips_ = 1;
};

}  // namespace rehearse::sim
