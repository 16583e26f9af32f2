// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body_proof.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "schedules/ir/placed_recompute.h"

namespace rehearse {
namespace {

using Tensors = std::span<const std::int16_t>;

bool is_collective(const Node& node) {
  return collective_kind(node.kind()) != OpKind::Forward;
}
bool meet(Tensors a, Tensors b) {
  return std::ranges::any_of(a, [&](std::int16_t t) { return std::ranges::find(b, t) != b.end(); });
}
bool other_rows(const Node& a, const Node& b) {
  return a.pieces > 1 && a.pieces == b.pieces && a.piece != b.piece;
}
bool is_piece_of(const Node& node, const Node& like) {
  return node.kernel == like.kernel && node.pieces == like.pieces && node.name == like.name &&
         node.phase == like.phase && node.reads == like.reads && node.writes == like.writes;
}

std::string at(const Body& body, std::size_t node, const std::string& what) {
  return "node " + std::to_string(node) + ", " + std::string(body.nodes[node].name) + ": " + what;
}

std::string lane_fault(const Body& body, std::size_t c) {
  const Node& sent = body.nodes[c];
  const auto until = static_cast<std::size_t>(std::max(sent.until, 0));
  if (sent.until < 0) return {};
  if (until <= c || until > body.nodes.size()) return at(body, c, "is waited for nowhere");
  for (std::size_t n = c + 1; n < until; ++n) {
    const Node& beside = body.nodes[n];
    if (is_collective(beside)) return at(body, n, "begins before the collective ahead has ended");
    const bool touches = meet(sent.writes, beside.reads) || meet(sent.writes, beside.writes) ||
                         meet(sent.reads, beside.writes);
    if (touches && !other_rows(sent, beside)) {
      return at(body, n, "touches what the collective beside it is about");
    }
  }
  return {};
}

std::string piece_fault(const Body& body, std::size_t p) {
  const Node& piece = body.nodes[p];
  if (piece.piece < 0 || piece.piece >= piece.pieces) return at(body, p, "is no such piece");
  const auto alike = [&](const Node& other) { return is_piece_of(other, piece); };
  const auto here = body.nodes.begin() + static_cast<std::ptrdiff_t>(p);
  const auto next = std::find_if(here + 1, body.nodes.end(), alike);
  const std::int32_t then = next == body.nodes.end() ? 0 : next->piece;
  if (then != (piece.piece + 1) % piece.pieces) return at(body, p, "the next piece is another");
  if (piece.piece != 0 && std::none_of(body.nodes.begin(), here, alike)) {
    return at(body, p, "is not the first piece");
  }
  // Whose rows it needs: a piece of one that writes what it reads.
  for (std::size_t n = 0; n < body.nodes.size(); ++n) {
    const Node& source = body.nodes[n];
    if (n == p || source.pieces != piece.pieces || source.piece != piece.piece ||
        is_collective(source) == is_collective(piece) || !meet(source.writes, piece.reads)) {
      continue;
    }
    const bool in_place = meet(piece.writes, source.reads);
    if (n > p && !in_place) return at(body, p, "comes before the rows that it reads");
    if (n < p && is_collective(source) && source.until > static_cast<std::int32_t>(p)) {
      return at(body, p, "does not wait for the rows that it reads");
    }
  }
  return {};
}

}  // namespace

std::string body_fault(const Body& body) {
  for (std::size_t n = 0; n < body.nodes.size(); ++n) {
    std::string fault;
    if (is_collective(body.nodes[n])) fault = lane_fault(body, n);
    if (fault.empty() && body.nodes[n].pieces > 1) fault = piece_fault(body, n);
    if (!fault.empty()) return fault;
  }
  return {};
}

namespace {

class InsideProver {
 public:
  InsideProver(const Schedule& schedule, const Layout& layout)
      : s_(schedule), layout_(layout), placed_(schedule) {}

  InsideProof prove() {
    std::map<std::int32_t, std::vector<const Op*>> like;  // by position, of its first row
    for (std::int32_t r = 0; r < s_.num_rows() && proof_.fault.empty(); ++r) {
      std::vector<const Op*> ops;
      for (const Op& op : s_.program({r})) {
        if (is_compute(op.kind)) ops.push_back(&op);
      }
      const auto [first, fresh] =
          like.try_emplace(s_.rows[static_cast<std::size_t>(r)].position.value, ops);
      if (fresh) {
        add_row(ops);
      } else {
        compare(ops, first->second);
      }
    }
    for (const auto& [key, sum] : most_) proof_.sums.push_back(sum);
    return std::move(proof_);
  }

 private:
  using Key = std::pair<Axis, OpKind>;
  using Sums = std::map<Key, InsideSum>;

  void fail(const Op& op, std::string what) {
    if (!proof_.fault.empty()) return;
    proof_.fault = std::move(what);
    proof_.op = {static_cast<std::int32_t>(&op - s_.ops.data())};
  }

  // What an op runs: itself, or both ops of a pair.
  template <class Visit>
  void each_half(const Op& op, Visit visit) const {
    if (op.kind != OpKind::Overlap) return visit(op);
    if (op.child < 0) return;
    visit(s_.children[static_cast<std::size_t>(op.child)]);
    visit(s_.children[static_cast<std::size_t>(op.child) + 1]);
  }
  // As far as its collectives go.
  auto content(const Op& op) const {
    std::vector<std::tuple<OpKind, Stage, Microbatch, std::int32_t, std::int32_t, std::int32_t>>
        all;
    each_half(op, [&](const Op& half) {
      all.emplace_back(half.kind, half.stage, half.microbatch, half.slice, half.segment_begin,
                       half.segment_end);
    });
    return all;
  }
  void compare(const std::vector<const Op*>& ops, const std::vector<const Op*>& like) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (i < like.size() && content(*ops[i]) == content(*like[i])) continue;
      return fail(*ops[i],
                  "other rows of its position run other bodies here: their collectives "
                  "do not meet");
    }
    if (ops.size() < like.size()) fail(*like[ops.size()], "a row of its position does not run it");
  }

  void add_row(const std::vector<const Op*>& ops) {
    Sums sums;
    for (const Op* op : ops) {
      each_half(*op, [&](const Op& half) {
        if (half.stage.index() >= s_.segments.size()) return;
        const auto& segments = s_.segments[half.stage.index()];
        const std::size_t end =
            half.segment_end < 0 ? segments.size() : static_cast<std::size_t>(half.segment_end);
        for (auto g = static_cast<std::size_t>(half.segment_begin); g < end; ++g) {
          const Known& body = body_of(*op, half, segments[g]);
          for (const auto& [key, sum] : body) {
            InsideSum& of = sums.try_emplace(key, InsideSum{key.first, key.second}).first->second;
            of.count += sum.count;
            of.bytes += sum.bytes;
          }
        }
      });
    }
    for (const auto& [key, sum] : sums) {
      InsideSum& most = most_.try_emplace(key, sum).first->second;
      if (sum.bytes > most.bytes) most = sum;
    }
  }

  using Known = Sums;
  const Known& body_of(const Op& op, const Op& half, const SegmentInfo& segment) {
    const BodyShape shape =
        body_shape(layout_, segment, direction_of(half.kind), half.slice, placed_.of(half));
    const auto [known, fresh] = known_.try_emplace(shape);
    if (!fresh) return known->second;
    const Body body = make_body(layout_, shape);
    if (std::string fault = body_fault(body); !fault.empty()) fail(op, std::move(fault));
    for (const Node& node : body.nodes) {
      if (!is_collective(node)) continue;
      InsideSum& sum = known->second[{node.axis, collective_kind(node.kind())}];
      ++sum.count;
      sum.bytes += node.bytes;
    }
    return known->second;
  }

  const Schedule& s_;
  const Layout& layout_;
  const PlacedRecompute placed_;
  InsideProof proof_;
  std::map<BodyShape, Known> known_;
  Sums most_;
};

}  // namespace

InsideProof prove_inside(const Schedule& schedule, const Layout& layout) {
  return InsideProver(schedule, layout).prove();
}

}  // namespace rehearse
