// SPDX-License-Identifier: Apache-2.0
// A prediction's step by cause: ops that compute by the prices of their kernels, idle time by the
// simulator's own causes, exposed communication by the group that each op communicates over.
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>

#include "schedules/body/body.h"
#include "schedules/ir/placed_recompute.h"
#include "sim/engine/body_waits.h"
#include "sim/explain/breakdown_of.h"
#include "sim/explain/idle_causes.h"

namespace rehearse::sim {
namespace {

using Weights = std::array<double, kNumCauses>;

double& at(Weights& weights, Cause cause) {
  return weights[static_cast<std::size_t>(cause)];
}

// The first of the four causes of a phase; the other three stand behind it in the same order.
enum class Work : std::uint8_t { Products, Attention, MemoryBound, Rest };
Cause cause_of(Cause phase, Work work) {
  return static_cast<Cause>(static_cast<std::uint8_t>(phase) + static_cast<std::uint8_t>(work));
}

Cause phase_of(OpKind kind) {
  return kind == OpKind::Forward     ? Cause::ForwardProducts
         : kind == OpKind::Recompute ? Cause::RecomputeProducts
                                     : Cause::BackwardProducts;
}

bool is_attention(NodeKind kind) {
  return kind == NodeKind::Attention || kind == NodeKind::AttentionBackward ||
         kind == NodeKind::Softmax;
}

class Computing {
 public:
  Computing(const Prediction& p, const Transformer& model)
      : p_(p), layout_(model, p.plan), placed_(p.schedule) {}

  // Adds what all ranks compute, in units of one nanosecond of one rank.
  void add_to(Weights& weights) {
    const Schedule& s = p_.schedule;
    for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
      const double ranks = s.rows.empty() ? 1 : s.rows[row.index()].multiplicity;
      const auto first = static_cast<std::int32_t>(s.first_op(row));
      for (OpId op{first}; op.index() < s.first_op({row.value + 1}); ++op.value) {
        const OpClass of = traits(s.ops[op.index()].kind).op_class;
        if (s.ops[op.index()].stream != Stream::Compute) continue;
        if (of != OpClass::Compute && of != OpClass::Local) continue;
        const std::int64_t lasted =
            (p_.timeline.end[op.index()] - p_.timeline.start[op.index()]).value;
        const std::int64_t waits = body_waits(p_.pricing.table, p_.timeline, op).sum();
        const double busy = ranks * static_cast<double>(p_.left_out.times_of(row, op)) *
                            static_cast<double>(lasted - waits);
        if (of == OpClass::Local) {
          at(weights, Cause::Update) += busy;
        } else {
          add_op(s.ops[op.index()], static_cast<double>(lasted - waits), busy, weights);
        }
      }
    }
  }

 private:
  using Key = std::tuple<OpKind, std::int32_t, std::int32_t, std::int32_t, std::int32_t, bool>;

  // An op that is busy for `alone` by itself weighs `busy`: its kernels by their prices, and what
  // it takes beyond them. Where they take more than the op does (a pair runs two at once), each
  // takes its part of that.
  void add_op(const Op& op, double alone, double busy, Weights& weights) {
    Weights inside{};
    if (op.kind == OpKind::Overlap && op.child >= 0) {
      for (std::size_t i = 0; i < 2; ++i) {
        const Op& child = p_.schedule.children[static_cast<std::size_t>(op.child) + i];
        const Weights& of = kernels(child);
        for (std::size_t c = 0; c < kNumCauses; ++c) inside[c] += of[c];
      }
    } else {
      inside = kernels(op);
    }
    const double sum = std::accumulate(inside.begin(), inside.end(), 0.0);
    const double whole = std::max(sum, alone);
    if (whole <= 0) return;
    for (std::size_t c = 0; c < kNumCauses; ++c) weights[c] += busy * (inside[c] / whole);
    at(weights, cause_of(phase_of(op.kind), Work::Rest)) += busy * (1 - sum / whole);
  }

  // The time of one op's kernels alone [ns].
  const Weights& kernels(const Op& op) {
    const bool apart = placed_.of(op);
    const auto [known, fresh] = known_.try_emplace(
        Key{op.kind, op.stage.value, op.segment_begin, op.segment_end, op.slice, apart});
    if (!fresh || op.stage.index() >= p_.schedule.segments.size()) return known->second;
    const auto& segments = p_.schedule.segments[op.stage.index()];
    const std::size_t end =
        op.segment_end < 0 ? segments.size() : static_cast<std::size_t>(op.segment_end);
    for (auto g = static_cast<std::size_t>(op.segment_begin); g < end; ++g) {
      const Weights& of =
          body(body_shape(layout_, segments[g], direction_of(op.kind), op.slice, apart),
               phase_of(op.kind));
      for (std::size_t c = 0; c < kNumCauses; ++c) known->second[c] += of[c];
    }
    return known->second;
  }

  const Weights& body(const BodyShape& shape, Cause phase) {
    const auto [known, fresh] = bodies_.try_emplace({shape, phase});
    if (!fresh) return known->second;
    const Body made = make_body(layout_, shape);
    const std::vector<NodePrice> prices = p_.models->compute->price_nodes(made);
    for (std::size_t n = 0; n < made.nodes.size(); ++n) {
      const Node& node = made.nodes[n];
      if (collective_kind(node.kind()) != OpKind::Forward) continue;
      const Work work = node.kind() == NodeKind::Gemm ? Work::Products
                        : is_attention(node.kind())   ? Work::Attention
                                                      : Work::MemoryBound;
      const Cause when = node.phase == NodePhase::Recompute ? Cause::RecomputeProducts : phase;
      at(known->second, cause_of(when, work)) += static_cast<double>(prices[n].time.value);
    }
    return known->second;
  }

  const Prediction& p_;
  const Layout layout_;
  const PlacedRecompute placed_;
  std::map<Key, Weights> known_;
  std::map<std::pair<BodyShape, Cause>, Weights> bodies_;
};

// Who is waited for by an op whose traffic nobody lists: a copy, a sum of a few numbers.
Cause cause_of(const Schedule& schedule, const Op& op) {
  const OpClass of = traits(op.kind).op_class;
  return of == OpClass::Transfer ? Cause::PipelineGroup
         : of == OpClass::Copy   ? Cause::Copies
         : op.group              ? cause_of_group(schedule.group_of(op).kind)
                                 : Cause::ReplicaGroup;
}

// What every group is waited for, outside of filling and draining: its share of all that is.
Weights waited_for(const Prediction& p) {
  Weights weights{};
  const Schedule& s = p.schedule;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    const auto first = static_cast<std::int32_t>(s.first_op(row));
    for (OpId op{first}; op.index() < s.first_op({row.value + 1}); ++op.value) {
      const std::int64_t exposed =
          p.bubbles.exposed[op.index()] - p.bubbles.exposed_in_fill[op.index()];
      if (exposed == 0) continue;
      const double time =
          static_cast<double>(exposed) * static_cast<double>(p.left_out.times_of(row, op));
      const auto& traffic =
          p.pricing.traffic[static_cast<std::size_t>(p.pricing.table.of_op[op.index()])];
      double whole = 0;
      for (const Traffic& sent : traffic) whole += static_cast<double>(sent.time.value);
      if (whole <= 0) at(weights, cause_of(s, s.ops[op.index()])) += time;
      for (const Traffic& sent : traffic) {
        if (whole <= 0) break;
        at(weights, cause_of_group(sent.group)) +=
            time * (static_cast<double>(sent.time.value) / whole);
      }
    }
  }
  return weights;
}

}  // namespace

Breakdown breakdown_of(const Prediction& p, const Transformer& model) {
  // Busy and idle time, and every cause of the latter, are as the simulator counted them; what they
  // are divided into below is weighed within.
  Weights weights{};
  const auto add = [&weights](const Weights& parts, double whole, Cause otherwise) {
    const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
    if (sum <= 0) at(weights, otherwise) += whole;
    for (std::size_t c = 0; c < kNumCauses && sum > 0; ++c) weights[c] += parts[c] / sum * whole;
  };
  Weights computing{};
  Computing(p, model).add_to(computing);
  add(computing, static_cast<double>(p.bubbles.busy), Cause::Update);
  double communicating = 0;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    const CauseSet causes = causes_of_idle(static_cast<IdleCause>(c), kCommunication);
    const auto time = static_cast<double>(p.bubbles.causes[c]);
    if (causes == kCommunication) {
      communicating += time;
    } else {
      weights[static_cast<std::size_t>(std::countr_zero(causes))] += time;
    }
  }
  add(waited_for(p), communicating, Cause::ReplicaGroup);
  std::vector<Weight> all;
  for (std::size_t c = 0; c < kNumCauses; ++c) {
    all.push_back({CauseSet{1} << c, weights[c]});
  }
  return broken_down(p.timeline.step().value, all);
}

}  // namespace rehearse::sim
