// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/bubbles.h"

#include <algorithm>

#include "sim/engine/body_waits.h"
#include "sim/engine/sweep.h"

namespace rehearse::sim {
namespace {

std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

void add_row(Bubbles& bubbles, const RowBubbles& row, std::int64_t ranks) {
  bubbles.busy += ranks * row.busy;
  bubbles.idle += ranks * row.idle;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) bubbles.causes[c] += ranks * row.causes[c];
}

enum class Phase : std::uint8_t { Fill, Steady, Drain };

class Attribution {
 public:
  Attribution(const Program& program, const CostTable& costs, const Timeline& timeline,
              const Repetition* repetition)
      : program_(program),
        costs_(costs),
        timeline_(timeline),
        repetition_(repetition),
        issued_(issue_times(program, costs)),
        start_(at(program.num_nodes)),
        end_(at(program.num_nodes)) {
    for (std::size_t n = 0; n < start_.size(); ++n) {
      const OpId first = program.members[at(program.member_begin[n])];
      start_[n] = timeline.start[first.index()].value;
      end_[n] = timeline.end[first.index()].value;
    }
    if (!timeline.late.empty()) carry_lateness();
    result_.rows.resize(at(program.num_rows));
    if (repetition != nullptr) result_.of_period.resize(at(program.num_rows));
    result_.exposed.resize(at(program.num_ops));
    result_.exposed_in_fill.resize(at(program.num_ops));
  }

  Bubbles run() {
    result_.span_begin.push_back(0);
    for (std::int32_t r = 0; r < program_.num_rows; ++r) {
      explain_row(r);
      result_.span_begin.push_back(static_cast<std::int64_t>(result_.spans.size()));
      result_.ranks += program_.multiplicity[at(r)];
      add_row(result_, result_.rows[at(r)], program_.multiplicity[at(r)]);
    }
    return std::move(result_);
  }

 private:
  struct Piece {
    std::int64_t begin = 0, end = 0;
    IdleCause cause{};
    bool elsewhere = false;  // others compute meanwhile
  };

  void explain_row(std::int32_t r) {
    row_ = &result_.rows[at(r)];
    ranks_ = program_.multiplicity[at(r)];
    OpId first_pipeline{}, last_pipeline{}, last{};
    for (std::int32_t i = program_.row_begin[at(r)]; i < program_.row_begin[at(r) + 1]; ++i) {
      if (is_compute(program_.kind[at(i)])) {
        if (!first_pipeline) first_pipeline = {i};
        last_pipeline = {i};
      }
      if (!last || timeline_.end[at(i)] >= timeline_.end[last.index()]) last = {i};
    }
    std::int64_t now = timeline_.begin.value;
    aside_.clear();
    previous_ = {};
    for (std::int32_t i = program_.row_begin[at(r)]; i < program_.row_begin[at(r) + 1]; ++i) {
      if (repetition_ != nullptr) mark(r, i);
      if (program_.stream[at(i)] != Stream::Compute) continue;
      if (!program_.computes({i})) {
        aside_.push_back({i});
        continue;
      }
      phase_ = first_pipeline && i <= first_pipeline.value ? Phase::Fill
               : last_pipeline && i > last_pipeline.value  ? Phase::Drain
                                                           : Phase::Steady;
      explain(now, timeline_.start[at(i)].value, {i}, program_.node_of[at(i)], false);
      book_body({i});
      now = timeline_.end[at(i)].value;
      previous_ = program_.node_of[at(i)];
    }
    phase_ = last_pipeline ? Phase::Drain : Phase::Steady;
    if (last && timeline_.end[last.index()].value > now) {
      const std::int64_t until = timeline_.end[last.index()].value;
      explain(now, until, {}, program_.node_of[last.index()], true);
      now = until;
      previous_ = program_.node_of[last.index()];
    }
    pieces_.clear();
    book(now, timeline_.finish.value, IdleCause::Cooldown, true);
    if (!lateness_.empty()) blame_stragglers(last_lateness_);
    write_spans({});
  }

  // What is booked between the first op of a period and the first behind it.
  void mark(std::int32_t r, std::int32_t op) {
    const std::int32_t begin = repetition_->begin[at(r)], length = repetition_->length[at(r)];
    if (op == begin) result_.of_period[at(r)].add(*row_, -1);
    if (op == begin + length) result_.of_period[at(r)].add(*row_, 1);
  }

  // What the op's body waits for its own collectives, and what these wait for their links.
  void book_body(OpId op) {
    const std::int64_t lasted = (timeline_.end[op.index()] - timeline_.start[op.index()]).value;
    const BodyWaits waits = body_waits(costs_, timeline_, op);
    row_->busy += lasted - waits.sum();
    row_->idle += waits.sum();
    row_->in_body += waits.sum();
    cause(IdleCause::Straggler) += waits.held;
    cause(IdleCause::Communication) += waits.alone;
    cause(IdleCause::Imbalance) += waits.uneven;
    cause(IdleCause::Contention) += waits.shared;
    result_.exposed[op.index()] += ranks_ * (waits.alone + waits.shared);
  }

  // Books [begin, end), which `node` ends: by starting, or by ending if `within`.
  void explain(std::int64_t begin, std::int64_t end, OpId ended_by, NodeId node, bool within) {
    pieces_.clear();
    begin_ = begin;
    std::int64_t now = end;
    const NodeId by = lateness_.empty() || within ? node : last_to_arrive(node);
    if (within && now > begin) now = book_run(node, now);
    while (now > begin) {
      const NodeId before = book_wait(node, now);
      if (now <= begin) break;
      if (!before) {  // it waited for nothing: cannot be, but every nanosecond gets its cause
        book(begin, now, IdleCause::Dependency);
        break;
      }
      now = book_run(before, now);
      node = before;
    }
    if (!lateness_.empty() && by) blame_stragglers(lateness_[by.index()]);
    write_spans(ended_by);
  }

  // How much later every node ended for what jitter and stragglers added to it and, one before the
  // other, to those that arrived last.
  void carry_lateness() {
    lateness_.resize(end_.size());
    for (NodeId n{0}; n.value < program_.num_runnable; ++n.value) {
      const NodeId before = last_to_arrive(n);
      lateness_[n.index()] = timeline_.late[program_.members_of(n).front().index()].value +
                             (before ? lateness_[before.index()] : 0);
      if (end_[n.index()] == timeline_.finish.value) {
        last_lateness_ = std::max(last_lateness_, lateness_[n.index()]);
      }
    }
  }

  NodeId last_to_arrive(NodeId node) const {
    NodeId last{};
    for (const NodeId pred : program_.preds_of(node)) {
      if (!last || end_[pred.index()] > end_[last.index()]) last = pred;
    }
    return last;
  }

  // The last of the gap's pieces in which others compute: the row waits because these are
  // later than itself. Where these do not last so long, of those in which the pipeline drains.
  void blame_stragglers(std::int64_t lateness) {
    std::int64_t more = lateness - (previous_ ? lateness_[previous_.index()] : 0);
    blame(more, [](const Piece& piece) { return piece.elsewhere; });
    blame(more, [](const Piece& piece) {
      return piece.cause == IdleCause::Warmup || piece.cause == IdleCause::Cooldown;
    });
  }
  template <class Takes>
  void blame(std::int64_t& more, const Takes& takes) {
    for (std::size_t i = 0; i < pieces_.size() && more > 0; ++i) {
      if (!takes(pieces_[i])) continue;
      const Piece piece = pieces_[i];
      const std::int64_t late = std::min(more, piece.end - piece.begin);
      cause(piece.cause) -= late;
      cause(IdleCause::Straggler) += late;
      more -= late;
      pieces_[i].begin = piece.end - late;
      pieces_[i].cause = IdleCause::Straggler;
      if (pieces_[i].begin == piece.begin) continue;
      pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(i) + 1, piece);
      pieces_[++i].end -= late;
    }
  }

  // Books what kept the node from starting though no predecessor ran, from `now` back to when the
  // one that arrived last had ended, and returns that one. Moves `now` there.
  NodeId book_wait(NodeId node, std::int64_t& now) {
    std::array<NodeId, 3> last{};  // by Edge
    std::array<std::int64_t, 3> arrived;
    arrived.fill(timeline_.begin.value);
    for (std::int32_t k = program_.pred_begin[node.index()];
         k < program_.pred_begin[node.index() + 1]; ++k) {
      const NodeId pred = program_.preds[at(k)];
      const auto edge = static_cast<std::size_t>(program_.pred_edge[at(k)]);
      if (last[edge] && end_[pred.index()] <= arrived[edge]) continue;
      last[edge] = pred;
      arrived[edge] = end_[pred.index()];
    }
    constexpr auto kData = static_cast<std::size_t>(Edge::Data);
    constexpr auto kQueue = static_cast<std::size_t>(Edge::Queue);
    const std::int64_t issued =
        std::max(issued_.empty() ? 0 : issued_[node.index()].value, timeline_.begin.value);
    const std::int64_t fed = std::max(arrived[kData], arrived[kQueue]);
    // An event for memory counts only as far as it came after everything else.
    if (now > std::max(fed, issued)) {
      book_back(now, std::max(fed, issued), IdleCause::Resource);
    }
    if (now > fed && issued > fed) book_back(now, fed, IdleCause::Host);
    // A blocking transfer stands behind what its other end computes: that is no contention.
    const bool behind_transfer = !last[kQueue] || !computes(last[kQueue]);
    if (now > arrived[kData] && is_transfer(node) && behind_transfer) {
      const std::int64_t from = std::max(begin_, std::max(arrived[kData], issued));
      expose(node, now - from, phase_ != Phase::Steady);
      book_back(now, from, in_phase(IdleCause::Contention));
      if (now > arrived[kData] && issued > arrived[kData]) {
        book_back(now, arrived[kData], IdleCause::Host);
      }
    }
    return arrived[kData] >= arrived[kQueue] || now <= arrived[kData] ? last[kData] : last[kQueue];
  }

  // Books the time in which the node ran, from `now` (its end) back to its start; returns that.
  std::int64_t book_run(NodeId node, std::int64_t now) {
    const OpId first = program_.members[at(program_.member_begin[node.index()])];
    const std::int64_t start = start_[node.index()];
    const std::int64_t ran = now - std::max(begin_, start);
    if (ran <= 0) return start;
    switch (traits(program_.kind[first.index()]).op_class) {
      case OpClass::Transfer:
      case OpClass::Collective:
      case OpClass::Copy: {
        const bool fills = is_transfer(node) && phase_ != Phase::Steady;
        expose(node, ran, fills);
        const std::int64_t lasted = end_[node.index()] - start;
        const std::int64_t shared =
            timeline_.contended.empty()
                ? 0
                : share_of(ran, timeline_.contended[first.index()].value, lasted);
        const IdleCause alone = fills ? in_phase({}) : IdleCause::Communication;
        book_back(now, now - shared, fills ? alone : IdleCause::Contention);
        book_back(now, start, alone);
        break;
      }
      case OpClass::Compute:
      case OpClass::Local:
      case OpClass::Text: {
        if (is_host_update(first)) {
          book_back(now, start, IdleCause::Host, true);
          break;
        }
        // An ADD on a communication stream neither fills nor drains the pipeline.
        book_back(
            now, start,
            program_.computes(first) ? in_phase(IdleCause::Dependency) : IdleCause::Dependency,
            true);
        break;
      }
    }
    return start;
  }

  // The share of `ran` that `part` has of `whole`. In doubles: the product would overflow.
  static std::int64_t share_of(std::int64_t ran, std::int64_t part, std::int64_t whole) {
    if (part <= 0 || ran == whole) return part;
    const double share = static_cast<double>(part) / static_cast<double>(whole);
    return std::min(ran, static_cast<std::int64_t>(static_cast<double>(ran) * share));
  }

  bool computes(NodeId node) const {
    return program_.computes(program_.members[at(program_.member_begin[node.index()])]);
  }
  bool is_transfer(NodeId node) const {
    const OpId first = program_.members[at(program_.member_begin[node.index()])];
    return traits(program_.kind[first.index()]).op_class == OpClass::Transfer;
  }
  // An update of parameters beside the compute stream is the host's (passes/end_step.cc).
  bool is_host_update(OpId op) const {
    return program_.kind[op.index()] == OpKind::OptimizerStep &&
           program_.stream[op.index()] != Stream::Compute;
  }
  IdleCause in_phase(IdleCause steady) const {
    return phase_ == Phase::Fill    ? IdleCause::Warmup
           : phase_ == Phase::Drain ? IdleCause::Cooldown
                                    : steady;
  }
  std::int64_t& cause(IdleCause c) { return row_->causes[static_cast<std::size_t>(c)]; }

  void expose(NodeId node, std::int64_t time, bool fills) {
    if (time <= 0) return;
    const std::span<const OpId> members = program_.members_of(node);
    const auto sends = [&](OpId op) { return program_.kind[op.index()] == OpKind::Send; };
    const auto send = std::ranges::find_if(members, sends);
    const OpId on = send == members.end() ? members.front() : *send;
    result_.exposed[on.index()] += ranks_ * time;
    if (fills) result_.exposed_in_fill[on.index()] += ranks_ * time;
  }

  // Books from `now` back to `to`, but no further than the gap's beginning; moves `now`.
  void book_back(std::int64_t& now, std::int64_t to, IdleCause c, bool elsewhere = false) {
    book(std::max(begin_, to), now, c, elsewhere);
    now = std::min(now, std::max(begin_, to));
  }

  void book(std::int64_t begin, std::int64_t end, IdleCause c, bool elsewhere = false) {
    if (begin >= end) return;
    row_->idle += end - begin;
    cause(c) += end - begin;
    pieces_.push_back({begin, end, c, elsewhere});
  }

  // Pieces came last first. What lies under collectives on the compute stream is no gap there: the
  // rank waits for communication of its own, whatever the gap around it waits for.
  void write_spans(OpId ended_by) {
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
      std::int64_t from = piece->begin;
      for (const OpId op : aside_) {
        const std::int64_t start = timeline_.start[op.index()].value;
        const std::int64_t end = timeline_.end[op.index()].value;
        if (end <= from || start >= piece->end || start == end) continue;
        write_span(from, std::min(start, piece->end), op, piece->cause);
        const std::int64_t under = std::min(end, piece->end) - std::max(start, from);
        const bool exposed = piece->cause == IdleCause::Communication ||
                             piece->cause == IdleCause::Contention;  // booked as such already
        if (!exposed) result_.exposed[op.index()] += ranks_ * under;
        cause(piece->cause) -= under;
        cause(IdleCause::Communication) += under;
        from = end;
      }
      write_span(from, piece->end, ended_by, piece->cause);
    }
    if (ended_by || !pieces_.empty()) aside_.clear();
    pieces_.clear();
  }

  void write_span(std::int64_t begin, std::int64_t end, OpId op, IdleCause c) {
    if (begin >= end) return;
    const bool is_first =
        static_cast<std::int64_t>(result_.spans.size()) == result_.span_begin.back();
    if (!is_first) {
      IdleSpan& last = result_.spans.back();
      if (last.end == begin && last.cause == c && last.op == op) {
        last.end = end;
        return;
      }
    }
    result_.spans.push_back({.begin = begin, .end = end, .op = op, .cause = c});
  }

  const Program& program_;
  const CostTable& costs_;
  const Timeline& timeline_;
  const Repetition* repetition_;
  const std::vector<Nanoseconds> issued_;  // per node
  std::vector<std::int64_t> start_, end_;  // per node
  std::vector<std::int64_t> lateness_;     // per node; empty: nothing was late
  std::int64_t last_lateness_ = 0;         // of what ended last of all
  Bubbles result_;
  // The row and the gap in it that is being explained.
  RowBubbles* row_ = nullptr;
  std::int64_t ranks_ = 1, begin_ = 0;
  Phase phase_{};
  NodeId previous_{};          // that computed on the row before the gap
  std::vector<OpId> aside_;    // collectives on its compute stream since the last op
  std::vector<Piece> pieces_;  // of the gap, last first
};

}  // namespace

Bubbles attribute(const Program& program, const CostTable& costs, const Timeline& timeline,
                  const Repetition* repetition) {
  return Attribution(program, costs, timeline, repetition).run();
}

void RowBubbles::add(const RowBubbles& other, std::int64_t times) {
  busy += times * other.busy;
  idle += times * other.idle;
  in_body += times * other.in_body;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) causes[c] += times * other.causes[c];
}

void add_periods(Bubbles& bubbles, const std::vector<std::int32_t>& multiplicity,
                 std::int64_t times) {
  for (std::size_t r = 0; r < bubbles.rows.size(); ++r) {
    const RowBubbles& period = bubbles.of_period[r];
    bubbles.rows[r].add(period, times);
    add_row(bubbles, period, multiplicity[r] * times);
  }
}

}  // namespace rehearse::sim
