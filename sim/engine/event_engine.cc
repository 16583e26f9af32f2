// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/event_engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/engine/event_queue.h"
#include "sim/engine/jitter.h"
#include "sim/engine/max_min.h"
#include "sim/engine/node_costs.h"
#include "sim/engine/sweep.h"

namespace rehearse::sim {
namespace {

// What ends may let something else start at the same time; a late host only lets its own op start.
enum Priority : std::uint32_t { kEnd = 0, kIssued = 1u << 31 };

constexpr auto kStreams = static_cast<std::int32_t>(kNumStreams);

// However much runs beside it, compute goes on: bound of the product of all slowdowns.
constexpr double kLowestBound = 1e-3;

bool any_slowdown(const CostTable& costs) {
  return std::ranges::any_of(costs.costs, [](const Cost& c) { return c.slowdown > 0; });
}

class Engine {
 public:
  Engine(const Program& program, const CostTable& costs, const EngineOptions& options)
      : program_(program),
        table_(costs),
        costs_(program, costs, demands(options)),
        issued_(issue_times(program, costs)),
        jitter_(program, options),
        waits_(options.row_waits),
        shares_(costs_.any_demands()),
        slows_(options.slow && any_slowdown(costs)),
        records_load_(options.record_load),
        queue_(program.most_running),
        resources_(shares_ ? costs.num_resources : 0, program.most_running, options.record_load),
        slots_(at(program.most_running)),
        nodes_(at(program.num_nodes)) {
    for (std::int32_t s = program.most_running; s-- > 0;) free_slots_.push_back(s);
    timeline_.start.resize(at(program.num_ops));
    timeline_.end.resize(at(program.num_ops));
    if (slows_) rows_.resize(at(program.num_rows));
    if (records_load_) loads_.resize(at(costs.num_resources));
  }

  Timeline run() {
    hang_all();
    drain();
    share();
    while (!queue_.empty()) {
      now_ = queue_.top().time;
      do {
        const Event event = queue_.pop();
        ++events_;
        if (event.order & kIssued) {
          free_slots_.push_back(event.slot);
          begin(slots_[at(event.slot)].node);
        } else {
          leave(event.slot);
        }
        drain();
      } while (!queue_.empty() && queue_.top().time == now_);
      share();
    }
    return result();
  }

 private:
  struct Node {
    std::int32_t open = 0;            // predecessors before it in the list may not have ended
    std::int32_t first_waiting = -1;  // list of the nodes that hang on this one; kEnded: it is over
    std::int32_t next_waiting = -1;
  };
  static constexpr std::int32_t kEnded = -2;
  struct Slot {
    NodeId node{};
    RankClass computes_on{};  // none: it is not compute
    bool shares = false;      // its demands are in resources_
    std::int64_t start = 0;
    std::int64_t time = 0;  // [ns] alone
    double remaining = 0;   // [ns] of it
    double rate = 0, bound = 1;
    std::int64_t updated = 0;          // when `remaining` was true
    double slowed = 0, contended = 0;  // [ns] lost until then: by the bound, by a rate below it
    ResourceId limit{};                // what keeps the rate below the bound
    ResourceId limited_by{};           // that which most was lost to at once,
    double longest = 0;                // [ns] so much
  };
  struct RowState {
    std::int32_t computing = -1;                      // slot
    std::array<double, kNumStreams> slow{};           // of the communication on each stream
    std::array<std::int32_t, kNumStreams> running{};  // how many slow it from there
    bool dirty = false;
  };

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  // What binds nobody matters only to who wants to see the load.
  static NodeCosts::Demands demands(const EngineOptions& options) {
    return !options.share        ? NodeCosts::Demands::None
           : options.record_load ? NodeCosts::Demands::All
                                 : NodeCosts::Demands::Shared;
  }

  // At first every node that waits at all hangs on its last predecessor: its stream (program.h).
  void hang_all() {
    for (std::int32_t n = 0; n < program_.num_nodes; ++n) {
      nodes_[at(n)].open = program_.pred_begin[at(n) + 1];
      if (program_.pred_begin[at(n)] == nodes_[at(n)].open) {
        ready_.push_back({n});
      } else {
        hang({n}, program_.preds[at(nodes_[at(n)].open - 1)]);
      }
    }
    std::ranges::reverse(ready_);
  }

  void hang(NodeId node, NodeId on) {
    nodes_[node.index()].next_waiting = nodes_[on.index()].first_waiting;
    nodes_[on.index()].first_waiting = node.value;
  }

  // Puts the node in line if all its predecessors have ended, else hangs it on one that has not.
  // Most nodes are looked at once or twice, when they come to the head of their stream.
  void look(NodeId node) {
    const std::int32_t from = program_.pred_begin[node.index()];
    for (std::int32_t& open = nodes_[node.index()].open; open > from; --open) {
      const NodeId pred = program_.preds[at(open - 1)];
      if (nodes_[pred.index()].first_waiting != kEnded) return hang(node, pred);
    }
    ready_.push_back(node);
  }

  // Starts what can start now; what takes no time ends at once and lets more start.
  void drain() {
    while (!ready_.empty()) {
      const NodeId node = ready_.back();
      ready_.pop_back();
      if (issued_.empty() || issued_[node.index()].value <= now_) {
        begin(node);
        continue;
      }
      const std::int32_t slot = take_slot();
      slots_[at(slot)].node = node;
      queue_.put({.time = issued_[node.index()].value,
                  .order = kIssued | static_cast<std::uint32_t>(node.value),
                  .slot = slot});
    }
  }

  std::int32_t take_slot() {
    const std::int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void begin(NodeId node) {
    if (begun_ < 0) begun_ = now_;
    const ProgramNodeCost& cost = costs_[node];
    const RankClass computes_on = program_.computes_on[node.index()];
    std::int64_t time = cost.time;
    if (jitter_.any() && computes_on) {
      const OpId op = program_.members_of(node).front();
      time = jitter_.time(op, cost.time, std::min(table_.cost(op).communicating.value, cost.time));
      if (time > cost.time) {
        const double waits = waits_.empty() ? 0 : waits_[computes_on.index()];
        lose(timeline_.late, node, time - cost.time);
        lose(timeline_.held, node,
             static_cast<std::int64_t>(static_cast<double>(time - cost.time) * waits));
      }
    }
    if (time == 0) return end(node, now_);

    const std::int32_t s = take_slot();
    Slot& slot = slots_[at(s)];
    slot = {.node = node,
            .computes_on = computes_on,
            .start = now_,
            .time = time,
            .remaining = static_cast<double>(time),
            .updated = now_};
    if (slows_) {
      if (computes_on) {
        rows_[computes_on.index()].computing = s;
        slot.bound = bound_of(rows_[computes_on.index()]);
      } else if (cost.slowdown > 0) {
        count_slow(node, cost, 1);
      }
    }
    slot.rate = slot.bound;
    put_end(s);
    if (!shares_ || cost.demands.empty()) return;
    slot.shares = true;
    resources_.add(s, cost.demands, slot.bound);  // share() may put its end off
  }

  // Counts communication that slows the rows of its members in (+1) or out (-1).
  void count_slow(NodeId node, const ProgramNodeCost& cost, std::int32_t change) {
    for (std::int32_t m = program_.member_begin[node.index()];
         m < program_.member_begin[node.index() + 1]; ++m) {
      const double slowdown =
          cost.mixed ? table_.cost(program_.members[at(m)]).slowdown : cost.slowdown;
      if (slowdown <= 0) continue;
      const RankClass r{program_.queues[at(m)] / kStreams};
      const std::size_t stream = at(program_.queues[at(m)] % kStreams);
      RowState& row = rows_[r.index()];
      row.running[stream] += change;
      row.slow[stream] = row.running[stream] > 0 ? std::max(row.slow[stream], slowdown) : 0;
      if (row.dirty) continue;
      row.dirty = true;
      dirty_rows_.push_back(r);
    }
  }

  static double bound_of(const RowState& row) {
    double bound = 1;
    for (const double slow : row.slow) bound *= 1 - slow;
    return std::max(bound, kLowestBound);
  }

  // What the slot holds has had its time: books what it lost on the way, frees what it took.
  void leave(std::int32_t s) {
    Slot& slot = slots_[at(s)];
    if (slot.shares) resources_.remove(s);
    if (slows_) {
      const ProgramNodeCost& cost = costs_[slot.node];
      if (slot.computes_on) {
        rows_[slot.computes_on.index()].computing = -1;
      } else if (cost.slowdown > 0) {
        count_slow(slot.node, cost, -1);
      }
    }
    const std::int64_t lost = now_ - slot.start - slot.time;
    if (lost > 0) {
      progress(slot);
      // What rounding added goes to the one reason that there was.
      const auto rounded = std::min(static_cast<std::int64_t>(slot.contended + 0.5), lost);
      const std::int64_t contended = slot.contended <= 0 ? 0 : slot.slowed <= 0 ? lost : rounded;
      if (contended > 0) {
        lose(timeline_.contended, slot.node, contended);
        blame(slot);
      }
      if (lost > contended) lose(timeline_.slowed, slot.node, lost - contended);
    }
    free_slots_.push_back(s);
    end(slot.node, slot.start);
  }

  // A column of what ops lost exists once one has lost something.
  void lose(std::vector<Nanoseconds>& column, NodeId node, std::int64_t time) {
    if (column.empty()) column.resize(at(program_.num_ops));
    for (const OpId op : program_.members_of(node)) column[op.index()] = {time};
  }

  void blame(const Slot& slot) {
    if (timeline_.limited_by.empty()) timeline_.limited_by.resize(at(program_.num_ops));
    for (const OpId op : program_.members_of(slot.node)) {
      timeline_.limited_by[op.index()] = slot.limited_by;
    }
  }

  // Written per op at once: rows go on side by side, so that few lines of the columns are in use.
  void end(NodeId node, std::int64_t start) {
    for (const OpId op : program_.members_of(node)) {
      timeline_.start[op.index()] = {start};
      timeline_.end[op.index()] = {now_};
    }
    std::int32_t n = std::exchange(nodes_[node.index()].first_waiting, kEnded);
    while (n >= 0) {
      const std::int32_t after = nodes_[at(n)].next_waiting;
      look({n});
      n = after;
    }
  }

  void progress(Slot& slot) const {
    const auto passed = static_cast<double>(now_ - slot.updated);
    slot.remaining -= slot.rate * passed;
    slot.slowed += (1 - slot.bound) * passed;
    slot.updated = now_;
    const double lost = (slot.bound - slot.rate) * passed;
    slot.contended += lost;
    if (lost <= slot.longest) return;
    slot.longest = lost;
    slot.limited_by = slot.limit;
  }

  // Ends are rounded up to whole nanoseconds; a thousandth is forgiven to rounding.
  void put_end(std::int32_t s) {
    const Slot& slot = slots_[at(s)];
    const double exact = slot.rate == 1 ? slot.remaining : slot.remaining / slot.rate;
    auto left = static_cast<std::int64_t>(exact);
    left += exact - 1e-3 > static_cast<double>(left);
    queue_.put({.time = now_ + std::max<std::int64_t>(1, left),
                .order = kEnd | static_cast<std::uint32_t>(slot.node.value),
                .slot = s});
  }

  // After everything of this instant has ended and begun: new bounds, then new rates.
  void share() {
    for (const RankClass r : dirty_rows_) {
      RowState& row = rows_[r.index()];
      row.dirty = false;
      if (row.computing < 0) continue;
      Slot& slot = slots_[at(row.computing)];
      const double bound = bound_of(row);
      if (bound == slot.bound) continue;
      progress(slot);
      slot.bound = bound;
      if (slot.shares) {
        resources_.set_bound(row.computing, bound);
      } else {
        slot.rate = bound;
        put_end(row.computing);
      }
    }
    dirty_rows_.clear();
    if (!resources_.unsettled()) return;
    for (const std::int32_t s : resources_.settle()) {
      Slot& slot = slots_[at(s)];
      progress(slot);
      slot.rate = resources_.rate(s);
      slot.limit = resources_.limit(s);
      put_end(s);
    }
    if (records_load_) record_loads();
  }

  void record_loads() {
    for (const ResourceId id : resources_.touched()) {
      std::vector<LinkSample>& samples = loads_[id.index()];
      const auto ppm = static_cast<std::int32_t>(resources_.load(id) * 1e6 + 0.5);
      if ((samples.empty() ? 0 : samples.back().load_ppm) == ppm) continue;
      samples.push_back({.time = now_, .load_ppm = ppm});
    }
  }

  Timeline result() {
    timeline_.finish = {now_};
    timeline_.begin = {begun_ < 0 ? 0 : begun_};
    timeline_.events = events_;
    if (!records_load_) return std::move(timeline_);
    timeline_.load_begin.push_back(0);
    for (const std::vector<LinkSample>& samples : loads_) {
      timeline_.load.insert(timeline_.load.end(), samples.begin(), samples.end());
      timeline_.load_begin.push_back(static_cast<std::int32_t>(timeline_.load.size()));
    }
    return std::move(timeline_);
  }

  const Program& program_;
  const CostTable& table_;
  const NodeCosts costs_;
  const std::vector<Nanoseconds> issued_;  // per node
  const Jitter jitter_;
  const std::vector<double>& waits_;  // per row: EngineOptions::row_waits
  const bool shares_, slows_, records_load_;
  std::int64_t now_ = 0, events_ = 0;
  std::int64_t begun_ = -1;  // when the first node started
  EventQueue queue_;
  SharedResources resources_;
  std::vector<Slot> slots_;  // what runs, or waits for nothing but its host
  std::vector<std::int32_t> free_slots_;
  std::vector<Node> nodes_;
  std::vector<NodeId> ready_;
  std::vector<RowState> rows_;
  std::vector<RankClass> dirty_rows_;
  std::vector<std::vector<LinkSample>> loads_;  // per resource
  Timeline timeline_;
};

}  // namespace

bool needs_events(const CostTable& costs) {
  return !costs.demands.empty() || any_slowdown(costs);
}

Result<Timeline> simulate(const Program& program, const CostTable& costs,
                          const EngineOptions& options) {
  if (!program.deadlock.empty()) return Error{program.deadlock};
  return Engine(program, costs, options).run();
}

}  // namespace rehearse::sim
