// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/program.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "schedules/ir/text.h"

namespace rehearse::sim {
namespace {

std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// The schedule as linked lists over ops. A node is called by its first op, its *leader*.
class Compiler {
 public:
  explicit Compiler(const Schedule& schedule)
      : schedule_(schedule), num_ops_(schedule.num_ops()), ops_(schedule.ops.size()) {}

  Program compile() {
    Program program;
    program.num_ops = num_ops_;
    program.num_rows = schedule_.num_rows();
    program.row_begin = schedule_.row_begin;
    copy_columns(program);
    link_queues(program);
    link_members();
    kinds_ = program.kind.data();
    order(program);
    lay_out(program);
    return program;
  }

 private:
  // The one pass over the ops themselves, which are large; all else reads columns.
  void copy_columns(Program& program) {
    program.row_of.resize(ops_);
    program.kind.resize(ops_);
    program.stream.resize(ops_);
    program.group.resize(ops_);
    place_.resize(ops_);
    bool any_grouped = false;
    for (std::size_t i = 0; i < ops_; ++i) {
      const Op& op = schedule_.ops[i];
      program.kind[i] = op.kind;
      program.stream[i] = op.stream;
      program.group[i] = op.group;
      place_[i] = op.match.value;
      any_grouped |= is_grouped(op);
    }
    for (std::int32_t r = 0; r < program.num_rows; ++r) {
      std::fill(program.row_of.begin() + schedule_.row_begin[at(r)],
                program.row_of.begin() + schedule_.row_begin[at(r) + 1], RankClass{r});
      program.multiplicity.push_back(schedule_.rows.empty() ? 1
                                                            : schedule_.rows[at(r)].multiplicity);
    }
    if (any_grouped) find_units();
  }

  void link_queues(Program& program) {
    previous_.resize(ops_);
    for (std::int32_t r = 0; r < program.num_rows; ++r) {
      std::array<std::int32_t, kNumStreams> last, widest;
      last.fill(-1);
      widest.fill(0);
      for (std::int32_t i = schedule_.row_begin[at(r)]; i < schedule_.row_begin[at(r) + 1]; ++i) {
        const auto stream = static_cast<std::size_t>(program.stream[at(i)]);
        const Unit unit = unit_of(i);
        previous_[at(i)] = i == unit.first ? last[stream] : previous_[at(unit.first)];
        last[stream] = i;
        widest[stream] = std::max(widest[stream], unit.last - unit.first + 1);
      }
      program.most_running = std::accumulate(widest.begin(), widest.end(), program.most_running);
    }
  }

  // What a stream performs at a time: an op, or transfers of one group (ncclGroupStart), which
  // stand together in the program and have equal Op::instance.
  struct Unit {
    std::int32_t first = -1, last = -1;
  };
  Unit unit_of(std::int32_t op) const { return units_.empty() ? Unit{op, op} : units_[at(op)]; }

  static bool is_grouped(const Op& op) {
    return op.instance >= 0 && traits(op.kind).op_class == OpClass::Transfer;
  }

  void find_units() {
    units_.resize(ops_);
    for (std::int32_t r = 0; r < schedule_.num_rows(); ++r) {
      const std::int32_t end = schedule_.row_begin[at(r) + 1];
      for (std::int32_t i = schedule_.row_begin[at(r)]; i < end;) {
        const Op& first = schedule_.ops[at(i)];
        std::int32_t last = i;
        for (; is_grouped(first) && last + 1 < end; ++last) {
          const Op& next = schedule_.ops[at(last + 1)];
          if (!is_grouped(next) || next.instance != first.instance || next.stream != first.stream) {
            break;
          }
        }
        for (std::int32_t k = i; k <= last; ++k) units_[at(k)] = {i, last};
        i = last + 1;
      }
    }
  }

  void link_members() {
    // Match numbers are dense unless somebody's file says otherwise.
    std::int32_t largest = -1;
    for (const std::int32_t p : place_) largest = std::max(largest, p);
    if (largest >= 2 * num_ops_) {
      std::vector<std::int32_t> sorted = place_;
      std::ranges::sort(sorted);
      for (std::int32_t& p : place_) {
        if (p < 0) continue;
        p = static_cast<std::int32_t>(std::ranges::lower_bound(sorted, p) - sorted.begin());
      }
      largest = num_ops_ - 1;
    }
    leader_.resize(ops_);
    next_.assign(ops_, -1);
    struct Meeting {
      std::int32_t first = -1, last = -1;
    };
    std::vector<Meeting> meetings(at(largest + 1));
    for (std::int32_t i = 0; i < num_ops_; ++i) {
      leader_[at(i)] = i;
      if (place_[at(i)] < 0) continue;
      Meeting& meeting = meetings[at(place_[at(i)])];
      if (meeting.first < 0) {
        meeting.first = i;
      } else {
        leader_[at(i)] = meeting.first;
        next_[at(meeting.last)] = i;
      }
      meeting.last = i;
    }
  }

  // A transfer has both ends; all other kinds are complete as they are.
  bool is_complete(std::int32_t leader) const {
    if (traits(kinds_[leader]).op_class != OpClass::Transfer) return true;
    std::int32_t sends = 0, recvs = 0;
    for (std::int32_t i = leader; i >= 0; i = next_[at(i)]) {
      sends += kinds_[i] == OpKind::Send;
      recvs += kinds_[i] == OpKind::Recv;
    }
    return sends == recvs;
  }

  bool is_open(std::int32_t op, std::int32_t leader) const {
    return !done_[at(op)] && leader_[at(op)] != leader;
  }

  // The first op that the node still waits for, or -1. Resumes at the member where it last stopped,
  // so that a collective of many members is looked through once.
  std::int32_t blocker(std::int32_t leader) {
    for (std::int32_t& i = resume_[at(leader)]; i >= 0; i = next_[at(i)]) {
      const std::int32_t before = open_before(i, leader);
      if (before >= 0) return before;
      for (const OpId wait : waits_of(unit_of(i))) {
        if (!done_[wait.index()]) return wait.value;
      }
    }
    return -1;
  }

  std::span<const OpId> waits_of(Unit unit) const {
    if (schedule_.wait_begin.size() < 2) return {};
    const OpId* const waits = schedule_.waits.data();
    return {waits + schedule_.wait_begin[at(unit.first)],
            waits + schedule_.wait_begin[at(unit.last) + 1]};
  }

  // An op of the unit before on its stream that is not done, or -1.
  std::int32_t open_before(std::int32_t op, std::int32_t leader) const {
    const std::int32_t previous = previous_[at(op)];
    if (previous < 0) return -1;
    if (units_.empty()) return is_open(previous, leader) ? previous : -1;
    const Unit before = unit_of(previous_[at(op)]);
    for (std::int32_t k = before.last; k >= before.first; --k) {
      if (is_open(k, leader)) return k;
    }
    return -1;
  }

  // First come, first served, which orders nodes by depth. A node that cannot run yet hangs itself
  // on one thing that it waits for and is looked at again when that is done.
  void order(Program& program) {
    done_.assign(ops_, 0);
    resume_.resize(ops_);
    std::iota(resume_.begin(), resume_.end(), 0);
    blocked_on_.assign(ops_, -1);
    std::vector<std::int32_t> first_waiting(ops_, -1), next_waiting(ops_, -1);
    order_.reserve(ops_);
    const auto look = [&](std::int32_t leader) {
      const std::int32_t on = blocker(leader);
      blocked_on_[at(leader)] = on;
      if (on < 0) {
        order_.push_back(leader);
        return;
      }
      std::int32_t& first = first_waiting[at(leader_[at(on)])];
      next_waiting[at(leader)] = first;
      first = leader;
    };
    for (std::int32_t i = 0; i < num_ops_; ++i) {
      if (leader_[at(i)] != i) continue;
      ++program.num_nodes;
      if (is_complete(i)) {
        look(i);
      } else {
        blocked_on_[at(i)] = i;
      }
    }
    for (std::size_t next = 0; next < order_.size(); ++next) {
      const std::int32_t leader = order_[next];
      for (std::int32_t i = leader; i >= 0; i = next_[at(i)]) done_[at(i)] = 1;
      for (std::int32_t i = first_waiting[at(leader)]; i >= 0;) {
        const std::int32_t after = next_waiting[at(i)];
        look(i);
        i = after;
      }
    }
    program.num_runnable = static_cast<std::int32_t>(order_.size());
    if (program.num_runnable == program.num_nodes) return;
    program.deadlock = describe_deadlock();
    for (std::int32_t i = 0; i < num_ops_; ++i) {
      if (leader_[at(i)] == i && !done_[at(i)]) order_.push_back(i);
    }
  }

  void lay_out(Program& program) {
    program.node_of.resize(ops_);
    program.member_begin.resize(order_.size() + 1);
    program.members.resize(ops_);
    program.queues.resize(ops_);
    program.computes_on.resize(order_.size());
    std::int32_t member = 0;
    for (std::size_t n = 0; n < order_.size(); ++n) {
      program.member_begin[n] = member;
      for (std::int32_t i = order_[n]; i >= 0; i = next_[at(i)], ++member) {
        program.members[at(member)] = {i};
        program.queues[at(member)] =
            program.row_of[at(i)].value * static_cast<std::int32_t>(kNumStreams) +
            static_cast<std::int32_t>(program.stream[at(i)]);
        program.node_of[at(i)] = {static_cast<std::int32_t>(n)};
      }
      const OpId first{order_[n]};
      if (program.computes(first)) program.computes_on[n] = program.row_of[first.index()];
    }
    program.member_begin.back() = member;

    const bool any_reuse =
        std::ranges::find(schedule_.wait_is_reuse, 1) != schedule_.wait_is_reuse.end();
    program.pred_begin.reserve(order_.size() + 1);
    program.preds.reserve(ops_ + schedule_.waits.size());
    program.pred_edge.reserve(ops_ + schedule_.waits.size());
    for (std::int32_t n = 0; n < program.num_nodes; ++n) {
      program.pred_begin.push_back(static_cast<std::int32_t>(program.preds.size()));
      add_waits(program, {n}, Edge::Data);
      for (const OpId op : program.members_of({n})) {
        if (previous_[op.index()] < 0) continue;
        const Unit before = unit_of(previous_[op.index()]);
        for (std::int32_t k = before.first; k <= before.last; ++k) {
          if (program.node_of[at(k)].value == n) continue;
          add(program, program.node_of[at(k)], Edge::Queue);
        }
      }
      if (any_reuse) add_waits(program, {n}, Edge::Reuse);
    }
    program.pred_begin.push_back(static_cast<std::int32_t>(program.preds.size()));
  }

  void add_waits(Program& program, NodeId node, Edge edge) const {
    for (const OpId op : program.members_of(node)) {
      for (const OpId& wait : waits_of(unit_of(op.value))) {
        const auto w = static_cast<std::size_t>(&wait - schedule_.waits.data());
        const bool reuse = w < schedule_.wait_is_reuse.size() && schedule_.wait_is_reuse[w] != 0;
        if (reuse == (edge == Edge::Reuse)) add(program, program.node_of[wait.index()], edge);
      }
    }
  }

  // Both ends of a transfer often follow one earlier transfer: one edge will do.
  static void add(Program& program, NodeId pred, Edge edge) {
    const bool is_first =
        program.pred_begin.back() == static_cast<std::int32_t>(program.preds.size());
    if (!is_first && program.preds.back() == pred && program.pred_edge.back() == edge) return;
    program.preds.push_back(pred);
    program.pred_edge.push_back(edge);
  }

  std::string name(std::int32_t op) const {
    return "row " + std::to_string(schedule_.row_of({op}).value) + " " + to_text(schedule_, {op});
  }

  // The head of every stuck queue and what it waits for; then one cycle, which there is unless the
  // waiting ends at a transfer without its other end. In a cycle `=` joins two ops that must meet.
  std::string describe_deadlock() const {
    constexpr std::int32_t kMostNamed = 16;
    std::string text = "deadlock:";
    std::int32_t num_heads = 0, stuck = -1;
    for (std::int32_t i = 0; i < num_ops_; ++i) {
      const std::int32_t leader = leader_[at(i)];
      if (done_[at(leader)] || open_before(i, -1) >= 0) continue;
      stuck = leader;
      if (++num_heads > kMostNamed) continue;
      text += (num_heads == 1 ? " " : "; ") + name(i) + why(i);
    }
    if (num_heads > kMostNamed) {
      text += "; and " + std::to_string(num_heads - kMostNamed) + " more";
    }
    std::vector<std::uint8_t> seen(ops_, 0);
    while (!seen[at(stuck)]) {
      seen[at(stuck)] = 1;
      stuck = leader_[at(blocked_on_[at(stuck)])];
    }
    if (is_complete(stuck)) text += "; cycle: " + cycle(stuck, kMostNamed);
    return text;
  }

  std::string why(std::int32_t head) const {
    const std::int32_t leader = leader_[at(head)];
    if (!is_complete(leader)) return " has no other end";
    const std::int32_t member = resume_[at(leader)], on = blocked_on_[at(leader)];
    if (member == head) return " waits for " + name(on);
    return " waits for " + name(member) + ", which waits for " + name(on);
  }

  std::string cycle(std::int32_t start, std::int32_t most) const {
    std::string text = name(resume_[at(start)]);
    std::int32_t named = 0;
    for (std::int32_t leader = start; named == 0 || leader != start;) {
      const std::int32_t on = blocked_on_[at(leader)];
      leader = leader_[at(on)];
      const std::int32_t met = resume_[at(leader)];
      if (++named == most) text += " ...";
      if (named >= most) continue;
      text += " waits for " + name(on);
      if (met != on) text += " = " + name(met);
    }
    return text;
  }

  const Schedule& schedule_;
  const std::int32_t num_ops_;
  const std::size_t ops_;
  const OpKind* kinds_ = nullptr;
  std::vector<std::int32_t> place_;       // per op: its match, numbered densely; -1: none
  std::vector<Unit> units_;               // per op; empty: every op is one
  std::vector<std::int32_t> previous_;    // per op: last op of the unit before on its stream, or -1
  std::vector<std::int32_t> leader_;      // per op
  std::vector<std::int32_t> next_;        // per op: next member of its node, or -1
  std::vector<std::int32_t> resume_;      // per leader: its member that waits
  std::vector<std::int32_t> blocked_on_;  // per leader that is not done: the op that it waits for
  std::vector<std::uint8_t> done_;        // per leader
  std::vector<std::int32_t> order_;       // leaders
};

}  // namespace

Program compile(const Schedule& schedule) {
  return Compiler(schedule).compile();
}

}  // namespace rehearse::sim
