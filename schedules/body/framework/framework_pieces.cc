// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/framework/framework_pieces.h"

#include <algorithm>
#include <span>
#include <utility>

namespace rehearse {
namespace {

using K = Kernel;

bool is_product(const Node& node) {
  return node.kernel == K::Linear || node.kernel == K::LinearInput;
}
bool waits_for_ranks(const Node& node) {
  return node.axis == Axis::Tensor && !node.overlapped;
}
bool is_gather(const Node& node) {
  return node.kernel == K::AllGather && waits_for_ranks(node);
}
bool is_sum(const Node& node) {
  return (node.kernel == K::ReduceScatter || node.kernel == K::AllReduce) && waits_for_ranks(node);
}

// The `piece`-th of so many parts of a whole, as even as they go.
std::int64_t part_of(std::int64_t whole, std::int32_t piece, std::int32_t pieces) {
  return whole * (piece + 1) / pieces - whole * piece / pieces;
}

class Cutter {
 public:
  Cutter(std::vector<Node> nodes, const Layout& layout)
      : nodes_(std::move(nodes)),
        ring_(layout.plan.runtime.tensor_pieces == TensorPieces::UserBuffers),
        ranks_(layout.plan.tensor_parallel),
        pieces_(layout.plan.tensor_parallel_chunks),
        element_(layout.shape.element),
        gathers_(gathers_in_pieces(layout.plan)) {}

  std::vector<Node> cut() {
    for (std::size_t i = 0; i < nodes_.size();) {
      const std::size_t next = behind_copy(i + 1);
      const std::size_t end = gathers_ && is_gather(nodes_[i]) ? end_of_products(next) : next;
      if (end > next) {
        gather_and_multiply(i, next, end);
        i = end;
      } else if (is_product(nodes_[i]) && next < nodes_.size() && is_sum(nodes_[next]) &&
                 (!ring_ || nodes_[next].kernel == K::ReduceScatter)) {
        multiply_and_sum(nodes_[i], nodes_[next]);
        i = next + 1;
      } else {
        made_.push_back(nodes_[i++]);
      }
    }
    return std::move(made_);
  }

 private:
  // What puts the sequence in order beside a whole collective.
  std::size_t behind_copy(std::size_t i) const {
    return i < nodes_.size() && nodes_[i].orders_sequence ? i + 1 : i;
  }
  // What makes a product's operands 8 bit goes with it.
  bool is_cast(std::size_t i) const {
    return nodes_[i].kernel == K::Elementwise && i + 1 < nodes_.size() &&
           is_product(nodes_[i + 1]) && nodes_[i + 1].fp8;
  }
  std::size_t end_of_products(std::size_t from) const {
    std::size_t end = from;
    while (end < nodes_.size() && (is_product(nodes_[end]) || is_cast(end))) ++end;
    return end;
  }

  // The loop over pieces is compiled code: it costs the host what the first one does.
  Node& add(const Node& whole, std::int32_t piece, std::int32_t pieces) {
    Node& made = made_.emplace_back(whole);
    made.piece = static_cast<std::int16_t>(piece);
    made.pieces = static_cast<std::int16_t>(pieces);
    if (piece > 0) made.launches = 0;
    return made;
  }
  void add_product(const Node& whole, std::int32_t piece, std::int32_t pieces, bool of_rows) {
    Node& made = add(whole, piece, pieces);
    (of_rows ? made.m : made.n) = part_of(of_rows ? whole.m : whole.n, piece, pieces);
    made.flops =
        whole.flops * static_cast<double>(made.m * made.n) / static_cast<double>(whole.m * whole.n);
    made.bytes = made.batch * element_ * (made.m * made.k + made.k * made.n + made.m * made.n);
  }
  // Returns where it stands: beside it run the nodes that follow, up to `until`.
  std::size_t add_collective(const Node& whole, std::int32_t piece, std::int32_t pieces) {
    add(whole, piece, pieces).bytes = part_of(whole.bytes, piece, pieces);
    return made_.size() - 1;
  }
  void runs_beside(std::size_t collective) {
    made_[collective].until = static_cast<std::int32_t>(made_.size());
  }

  // Of the products and casts [first, end).
  void gather_and_multiply(std::size_t gather, std::size_t first, std::size_t end) {
    const std::int32_t pieces = ring_ ? ranks_ : pieces_;
    Node travels = nodes_[gather];
    if (ring_) {
      travels.kernel = K::RingKeys;
      travels.name = "ring exchange tp";
    }
    for (std::size_t i = first; i < end; ++i) {
      if (!is_product(nodes_[i])) made_.push_back(nodes_[i]);
    }
    if (!ring_) add_collective(travels, 0, pieces);
    for (std::int32_t piece = 0; piece < pieces; ++piece) {
      const bool more = piece + 1 < pieces;
      const std::size_t next = more ? add_collective(travels, piece + (ring_ ? 0 : 1), pieces) : 0;
      for (std::size_t i = first; i < end; ++i) {
        if (is_product(nodes_[i])) add_product(nodes_[i], piece, pieces, /*of_rows=*/true);
      }
      if (more) runs_beside(next);
    }
  }

  void multiply_and_sum(const Node& product, const Node& sum) {
    for (std::int32_t piece = 0; piece < pieces_; ++piece) {
      add_product(product, piece, pieces_, /*of_rows=*/!ring_);
      if (piece > 0) runs_beside(made_.size() - 2);
      add_collective(sum, piece, pieces_);
    }
  }

  std::vector<Node> nodes_, made_;
  bool ring_;
  std::int32_t ranks_, pieces_;
  std::int64_t element_;
  bool gathers_;
};

}  // namespace

std::vector<Node> in_pieces(std::vector<Node> nodes, const Layout& layout) {
  const Plan& plan = layout.plan;
  if (!sums_in_pieces(plan) || layout.shape.tensor == 1) return nodes;
  return Cutter(std::move(nodes), layout).cut();
}

}  // namespace rehearse
