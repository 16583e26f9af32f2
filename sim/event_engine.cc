#include "sim/event_engine.h"

#include <algorithm>
#include <array>

#include "sim/event_queue.h"
#include "sim/max_min.h"
#include "sim/node_costs.h"
#include "sim/sweep.h"

namespace rehearse::sim {
namespace {

// What ends may let something else start at the same time; a late host only lets its own op start.
enum Priority : std::uint64_t { kEnd = 0, kIssued = 1 };

// However much runs beside it, compute goes on: bound of the product of all slowdowns.
constexpr double kLowestBound = 1e-3;

class Engine {
 public:
  Engine(const Program& program, const CostTable& costs, const EngineOptions& options)
      : program_(program),
        costs_(costs),
        nodes_(node_costs(program, costs, options)),
        record_load_(options.record_load),
        shares_(!nodes_.demand_begin.empty()),
        slows_(options.slow && any_slowdown(costs)),
        num_slots_(program.most_running),
        queue_(num_slots_),
        resources_(shares_ ? costs.num_resources : 0, num_slots_),
        slots_(at(num_slots_)) {
    for (std::int32_t s = num_slots_; s-- > 0;) free_slots_.push_back(s);
    const auto num_nodes = at(program.num_nodes);
    start_.resize(num_nodes);
    end_.assign(num_nodes, {-1});
    cursor_.assign(num_nodes, 0);
    first_waiting_.assign(num_nodes, -1);
    next_waiting_.assign(num_nodes, -1);
    if (shares_ || slows_) {
      contended_.resize(num_nodes);
      slowed_.resize(num_nodes);
    }
    if (slows_) rows_.resize(at(program.num_rows));
    if (record_load_) loads_.resize(at(costs.num_resources));
  }

  Timeline run() {
    for (std::int32_t n = 0; n < program_.num_nodes; ++n) look({n});
    drain();
    share();
    while (!queue_.empty()) {
      now_ = queue_.top().time;
      do {
        const std::int32_t slot = queue_.top().slot;
        const bool issued = queue_.top().order >> 32 == kIssued;
        queue_.pop();
        ++events_;
        const NodeId node = slots_[at(slot)].node;
        if (issued) {
          free_slots_.push_back(slot);
          begin(node);
        } else {
          leave(slot);
          finish(node);
        }
        drain();
      } while (!queue_.empty() && queue_.top().time == now_);
      share();
    }
    return result();
  }

 private:
  struct Slot {
    NodeId node{};
    Row computes_on{};     // none: it is not compute
    double remaining = 0;  // [ns] of time alone
    double rate = 0, bound = 1;
    std::int64_t updated = 0;
    double slowed = 0,
           contended = 0;  // [ns] lost so far because of `bound`, and of `rate` below it
    bool demands = false;
  };
  struct RowState {
    std::int32_t computing = -1;                      // slot
    std::array<double, kNumStreams> slow{};           // of the communication on each stream
    std::array<std::int32_t, kNumStreams> running{};  // how many slow it from there
    bool dirty = false;
  };

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  static bool any_slowdown(const CostTable& costs) {
    return std::ranges::any_of(costs.costs, [](const Cost& c) { return c.slowdown > 0; });
  }

  // Puts the node in line if all its predecessors have ended; else hangs it on one that has not, to
  // be looked at again when that ends. The stream is asked before the data: so most nodes are
  // looked at twice only, first when they come to the head of their stream.
  void look(NodeId node) {
    const std::int32_t from = program_.pred_begin[node.index()];
    std::int32_t& to = cursor_[node.index()];
    if (to == 0) to = program_.pred_begin[node.index() + 1];
    NodeId on{};
    for (; to > from; --to) {
      const NodeId pred = program_.preds[at(to - 1)];
      if (end_[pred.index()].value < 0) {
        on = pred;
        break;
      }
    }
    if (!on) {
      ready_.push_back(node);
      return;
    }
    next_waiting_[node.index()] = first_waiting_[on.index()];
    first_waiting_[on.index()] = node.value;
  }

  // Starts what can start now; what takes no time ends at once and lets more start.
  void drain() {
    while (!ready_.empty()) {
      const NodeId node = ready_.back();
      ready_.pop_back();
      if (!nodes_.issued.empty() && nodes_.issued[node.index()].value > now_) {
        const std::int32_t slot = take_slot();
        slots_[at(slot)].node = node;
        queue_.put({.time = nodes_.issued[node.index()].value,
                    .order = kIssued << 32 | static_cast<std::uint64_t>(node.value),
                    .slot = slot});
      } else {
        begin(node);
      }
    }
  }

  std::int32_t take_slot() {
    const std::int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void begin(NodeId node) {
    start_[node.index()] = {now_};
    const std::int64_t time = nodes_.time[node.index()].value;
    if (time == 0) {
      finish(node);
      return;
    }
    const std::int32_t s = take_slot();
    Slot& slot = slots_[at(s)];
    slot = {.node = node, .remaining = static_cast<double>(time), .rate = 1, .updated = now_};
    if (slows_) enter_rows(s);
    const std::span<const Demand> demands = nodes_.demands_of(node);
    if (!demands.empty()) {
      slot.demands = true;
      slot.rate = 0;
      resources_.add(s, demands, slot.bound);
      resources_dirty_ = true;
    } else {
      put_end(s);
    }
  }

  void enter_rows(std::int32_t s) {
    Slot& slot = slots_[at(s)];
    const std::span<const OpId> members = program_.members_of(slot.node);
    if (program_.computes(members.front())) {
      slot.computes_on = program_.row_of[members.front().index()];
      RowState& row = rows_[slot.computes_on.index()];
      row.computing = s;
      slot.bound = bound_of(row);
      slot.rate = slot.bound;
      return;
    }
    for (const OpId op : members) count_slow(op, 1);
  }

  // Counts communication that slows its row in (+1) or out (-1).
  void count_slow(OpId op, std::int32_t change) {
    const double slowdown = costs_.cost(op).slowdown;
    if (slowdown <= 0) return;
    const Row r = program_.row_of[op.index()];
    const auto stream = static_cast<std::size_t>(program_.stream[op.index()]);
    RowState& row = rows_[r.index()];
    row.running[stream] += change;
    row.slow[stream] = row.running[stream] > 0 ? std::max(row.slow[stream], slowdown) : 0;
    if (row.dirty) return;
    row.dirty = true;
    dirty_rows_.push_back(r);
  }

  static double bound_of(const RowState& row) {
    double bound = 1;
    for (const double slow : row.slow) bound *= 1 - slow;
    return std::max(bound, kLowestBound);
  }

  // The node's slot is given back; what it took is free.
  void leave(std::int32_t s) {
    Slot& slot = slots_[at(s)];
    if (slot.demands) {
      resources_.remove(s);
      resources_dirty_ = true;
    }
    if (shares_ || slows_) {
      progress(slot);
      const std::size_t n = slot.node.index();
      const std::int64_t lost = now_ - start_[n].value - nodes_.time[n].value;
      // What rounding added goes to the one reason that there was.
      const auto contended = static_cast<std::int64_t>(slot.contended + 0.5);
      contended_[n].value = slot.contended <= 0 ? 0
                            : slot.slowed <= 0  ? lost
                                                : std::min(contended, lost);
      slowed_[n].value = lost - contended_[n].value;
    }
    if (slows_) {
      if (slot.computes_on) {
        rows_[slot.computes_on.index()].computing = -1;
      } else {
        for (const OpId op : program_.members_of(slot.node)) count_slow(op, -1);
      }
    }
    free_slots_.push_back(s);
  }

  void finish(NodeId node) {
    end_[node.index()] = {now_};
    for (std::int32_t n = first_waiting_[node.index()]; n >= 0;) {
      const std::int32_t after = next_waiting_[at(n)];
      look({n});
      n = after;
    }
  }

  void progress(Slot& slot) const {
    const auto passed = static_cast<double>(now_ - slot.updated);
    slot.remaining -= slot.rate * passed;
    slot.slowed += (1 - slot.bound) * passed;
    slot.contended += (slot.bound - slot.rate) * passed;
    slot.updated = now_;
  }

  // Ends are rounded up to whole nanoseconds; a thousandth is forgiven to rounding.
  void put_end(std::int32_t s) {
    const Slot& slot = slots_[at(s)];
    const double exact = slot.rate == 1 ? slot.remaining : slot.remaining / slot.rate;
    auto left = static_cast<std::int64_t>(exact);
    left += exact - 1e-3 > static_cast<double>(left);
    queue_.put({.time = now_ + std::max<std::int64_t>(1, left),
                .order = kEnd << 32 | static_cast<std::uint64_t>(slot.node.value),
                .slot = s});
  }

  // After everything of this instant has ended and begun: new bounds, then new rates.
  void share() {
    for (const Row r : dirty_rows_) {
      RowState& row = rows_[r.index()];
      row.dirty = false;
      if (row.computing < 0) continue;
      Slot& slot = slots_[at(row.computing)];
      const double bound = bound_of(row);
      if (bound == slot.bound) continue;
      progress(slot);
      slot.bound = bound;
      if (slot.demands) {
        resources_.set_bound(row.computing, bound);
        resources_dirty_ = true;
      } else {
        slot.rate = bound;
        put_end(row.computing);
      }
    }
    dirty_rows_.clear();
    if (!resources_dirty_) return;
    resources_dirty_ = false;
    for (const std::int32_t s : resources_.settle()) {
      Slot& slot = slots_[at(s)];
      progress(slot);
      slot.rate = resources_.rate(s);
      put_end(s);
    }
    if (record_load_) record();
  }

  void record() {
    for (const ResourceId id : resources_.touched()) {
      std::vector<LinkSample>& samples = loads_[id.index()];
      const auto ppm = static_cast<std::int32_t>(resources_.load(id) * 1e6 + 0.5);
      if ((samples.empty() ? 0 : samples.back().load_ppm) == ppm) continue;
      samples.push_back({.time = now_, .load_ppm = ppm});
    }
  }

  Timeline result() {
    Timeline timeline = by_op(program_, start_, end_);
    timeline.events = events_;
    const auto spread = [&](const std::vector<Nanoseconds>& of_node, std::vector<Nanoseconds>& to) {
      const auto is_positive = [](Nanoseconds t) { return t.value > 0; };
      if (std::ranges::none_of(of_node, is_positive)) return;
      to.resize(at(program_.num_ops));
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = of_node[program_.node_of[i].index()];
    };
    spread(contended_, timeline.contended);
    spread(slowed_, timeline.slowed);
    spread(nodes_.late, timeline.late);
    if (record_load_) {
      timeline.load_begin.push_back(0);
      for (const std::vector<LinkSample>& samples : loads_) {
        timeline.load.insert(timeline.load.end(), samples.begin(), samples.end());
        timeline.load_begin.push_back(static_cast<std::int32_t>(timeline.load.size()));
      }
    }
    return timeline;
  }

  const Program& program_;
  const CostTable& costs_;
  const NodeCosts nodes_;
  const bool record_load_, shares_, slows_;
  const std::int32_t num_slots_;  // for all that runs or waits for its host only
  std::int64_t now_ = 0, events_ = 0;
  EventQueue queue_;
  SharedResources resources_;
  bool resources_dirty_ = false;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_slots_;
  std::vector<RowState> rows_;
  std::vector<Row> dirty_rows_;
  std::vector<NodeId> ready_;
  std::vector<Nanoseconds> start_, end_;         // per node; end -1: not yet
  std::vector<Nanoseconds> contended_, slowed_;  // per node
  std::vector<std::int32_t> cursor_;             // per node: predecessors before it may be open
  std::vector<std::int32_t> first_waiting_, next_waiting_;  // lists of nodes hung on a node
  std::vector<std::vector<LinkSample>> loads_;              // per resource
};

}  // namespace

bool needs_events(const CostTable& costs) {
  return !costs.demands.empty() ||
         std::ranges::any_of(costs.costs, [](const Cost& c) { return c.slowdown > 0; });
}

Result<Timeline> simulate(const Program& program, const CostTable& costs,
                          const EngineOptions& options) {
  if (!program.deadlock.empty()) return Error{program.deadlock};
  return Engine(program, costs, options).run();
}

}  // namespace rehearse::sim
