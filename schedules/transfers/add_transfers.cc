// SPDX-License-Identifier: Apache-2.0
#include "schedules/transfers/add_transfers.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "schedules/ir/stage_index.h"
#include "schedules/proof/deadlock.h"
#include "schedules/transfers/handover.h"
#include "schedules/transfers/link_transfers.h"

namespace rehearse {
namespace {

std::size_t index_of(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

struct Transfer {
  std::int64_t place = 0;                     // in the global order
  std::int32_t producer = -1, consumer = -1;  // ops of L0
  RankClass from{}, to{};
  Stage stage{};  // the same stage
  Microbatch microbatch{};
  std::int8_t slice = -1;
  Payload payload{};
};

// What a row issues: one of its compute ops, or one end of a transfer.
struct Item {
  std::int32_t id = -1;  // compute: op of L0; else: index of the transfer
  OpKind kind{};         // Send, Recv; all else: compute
};

// Op ids of one row.
struct RowRange {
  std::int32_t begin = 0, end = 0;
  bool has(std::int32_t id) const { return id >= begin && id < end; }
};

// Everything that all policies need to know about L0.
struct Plan {
  const Schedule& l0;
  StageIndex index;
  std::vector<std::int32_t> row_of;  // per op
  std::vector<std::int64_t> place;   // per op: its own place in the global order
  std::vector<Transfer> transfers;

  RowRange range(RankClass row) const {
    return {static_cast<std::int32_t>(l0.first_op(row)),
            static_cast<std::int32_t>(l0.first_op({row.value + 1}))};
  }
};

std::vector<std::int32_t> rows_of_ops(const Schedule& l0) {
  std::vector<std::int32_t> row_of(l0.ops.size());
  for (RankClass row{0}; row.value < l0.num_rows(); ++row.value) {
    std::fill(row_of.begin() + static_cast<std::ptrdiff_t>(l0.first_op(row)),
              row_of.begin() + static_cast<std::ptrdiff_t>(l0.first_op({row.value + 1})),
              row.value);
  }
  return row_of;
}

// Largest finish of what the op follows and of what it takes in.
std::vector<std::int64_t> places_of_ops(const Schedule& l0, const StageIndex& index,
                                        std::span<const Nanoseconds> finish) {
  std::vector<std::int64_t> place(l0.ops.size());
  for (RankClass row{0}; row.value < l0.num_rows(); ++row.value) {
    const std::int32_t data_class = index.class_of(row);
    std::int64_t before = 0;
    for (std::size_t i = l0.first_op(row); i < l0.first_op({row.value + 1}); ++i) {
      place[i] = before;
      for (const Op& work : work_of(l0, l0.ops[i])) {
        if (!is_compute(work.kind)) continue;
        const std::int32_t producer = index.producer(data_class, work);
        if (producer < 0) continue;
        place[i] = std::max(place[i], finish[static_cast<std::size_t>(producer)].value);
      }
      before = finish[i].value;
    }
  }
  std::vector<std::int64_t> met(l0.carried.size(), 0);  // of exchanges, by match
  for (const bool known : {false, true}) {
    for (std::size_t i = 0; i < l0.ops.size(); ++i) {
      if (!l0.is_on(l0.ops[i], GroupKind::Other) || !l0.ops[i].match) continue;
      std::int64_t& latest = met[l0.ops[i].match.index()];
      latest = std::max(latest, place[i]);
      if (known) place[i] = latest;
    }
  }
  return place;
}

// In the order of (payload, stage, micro-batch, slice), which breaks ties of place.
std::vector<Transfer> transfers_of(const Plan& plan, std::span<const Nanoseconds> finish,
                                   TransferPolicy policy) {
  const StageIndex& index = plan.index;
  std::vector<Transfer> transfers;
  transfers.reserve(2 * index.size());
  for (const Payload payload : {Payload::Activation, Payload::Gradient}) {
    const bool activation = payload == Payload::Activation;
    for (std::size_t key = 0; key < index.size(); ++key) {
      const Stage stage = index.stage_of(key);
      const Stage other = other_stage(OpKind::Send, payload, stage);
      if (other.value < 0 || other.value >= index.stages()) continue;
      const StageOps& makes = index.at(key);
      const StageOps& takes =
          index.at(activation ? key + index.stage_stride() : key - index.stage_stride());
      const std::int32_t producer = activation ? makes.forward_last : makes.backward_last;
      const std::int32_t consumer = activation ? takes.forward_first : takes.backward_first;
      if (producer < 0 || consumer < 0) continue;
      const std::size_t p = index_of(producer), c = index_of(consumer);
      if (plan.row_of[p] == plan.row_of[c]) continue;
      transfers.push_back(
          {.place = policy == TransferPolicy::ConsumerOrder ? plan.place[c] : finish[p].value,
           .producer = producer,
           .consumer = consumer,
           .from = {plan.row_of[p]},
           .to = {plan.row_of[c]},
           .stage = stage,
           .microbatch = index.microbatch_of(key),
           .slice = index.slice_of(key),
           .payload = payload});
    }
  }
  return transfers;
}

// Digits of the radix sort.
constexpr std::uint32_t kBits = 11;
constexpr std::uint64_t kMask = (1U << kBits) - 1;
// Transfers in one group: NCCL plans large groups differently on each side (pytorch#174942).
constexpr std::int32_t kLargestGroup = 32;

// A transfer on its way through the sort, with what is needed to hand it to its rows: the transfers
// themselves stay where the rows will look for them.
struct Entry {
  std::uint64_t place = 0;
  std::int32_t index = 0;
  RankClass from{}, to{};
};

// By place, ties in the order given: a stable radix sort, because half a million comparisons would
// cost more than all the rest.
std::vector<Entry> by_place(const std::vector<Transfer>& transfers) {
  std::vector<Entry> from(transfers.size()), to(transfers.size());
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    assert(transfer.place >= 0);
    from[i] = {static_cast<std::uint64_t>(transfer.place), static_cast<std::int32_t>(i),
               transfer.from, transfer.to};
    largest = std::max(largest, from[i].place);
  }
  for (std::uint32_t shift = 0; shift < 64 && (largest >> shift) != 0; shift += kBits) {
    std::vector<std::size_t> begin(kMask + 2, 0);
    for (const Entry& entry : from) ++begin[((entry.place >> shift) & kMask) + 1];
    for (std::size_t b = 1; b < begin.size(); ++b) begin[b] += begin[b - 1];
    for (const Entry& entry : from) to[begin[(entry.place >> shift) & kMask]++] = entry;
    std::swap(from, to);
  }
  return from;
}

using Rows = std::vector<std::vector<Item>>;

// Each row's share of the one global order.
Rows in_global_order(const Plan& plan) {
  const std::vector<Entry> sorted = by_place(plan.transfers);
  const auto num_rows = static_cast<std::size_t>(plan.l0.num_rows());
  std::vector<std::size_t> count(num_rows, 0);
  for (const Entry& entry : sorted) {
    ++count[entry.from.index()];
    ++count[entry.to.index()];
  }
  std::vector<std::vector<Item>> ends(num_rows);
  for (std::size_t row = 0; row < num_rows; ++row) ends[row].reserve(count[row]);
  for (const Entry& entry : sorted) {
    ends[entry.from.index()].push_back({entry.index, OpKind::Send});
    ends[entry.to.index()].push_back({entry.index, OpKind::Recv});
  }
  Rows rows(num_rows);
  for (std::size_t row = 0; row < num_rows; ++row) {
    const RowRange range = plan.range({static_cast<std::int32_t>(row)});
    rows[row].reserve(static_cast<std::size_t>(range.end - range.begin) + ends[row].size());
    auto next = ends[row].begin();
    for (std::int32_t id = range.begin; id < range.end; ++id) {
      const std::int64_t place = plan.place[static_cast<std::size_t>(id)];
      while (next != ends[row].end() &&
             plan.transfers[static_cast<std::size_t>(next->id)].place <= place) {
        rows[row].push_back(*next++);
      }
      rows[row].push_back({id, OpKind::Forward});
    }
    rows[row].insert(rows[row].end(), next, ends[row].end());
  }
  return rows;
}

// Transfers by op: what it takes in, and what it hands on.
struct Ends {
  explicit Ends(const Plan& plan) : taken(plan.l0.ops.size()), made(plan.l0.ops.size()) {
    for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
      const Transfer& transfer = plan.transfers[i];
      taken[index_of(transfer.consumer)].push_back(static_cast<std::int32_t>(i));
      made[index_of(transfer.producer)].push_back(static_cast<std::int32_t>(i));
    }
  }
  std::vector<std::vector<std::int32_t>> taken, made;
};

Rows naive(const Plan& plan) {
  const Ends ends(plan);
  Rows rows(static_cast<std::size_t>(plan.l0.num_rows()));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const RowRange range = plan.range({static_cast<std::int32_t>(row)});
    for (std::int32_t id = range.begin; id < range.end; ++id) {
      const std::size_t op = index_of(id);
      for (const std::int32_t t : ends.taken[op]) rows[row].push_back({t, OpKind::Recv});
      rows[row].push_back({id, OpKind::Forward});
      for (const std::int32_t t : ends.made[op]) rows[row].push_back({t, OpKind::Send});
    }
  }
  return rows;
}

// pytorch/pytorch torch/distributed/pipelining/schedules.py, _add_send_recv (2.8.0): the rows take
// turns; a row whose next op lacks an input passes.
Rows taking_turns(const Plan& plan) {
  const Ends ends(plan);
  Rows rows(static_cast<std::size_t>(plan.l0.num_rows()));
  std::vector<std::uint8_t> sent(plan.transfers.size(), 0);
  std::vector<RowRange> rest;
  for (RankClass row{0}; row.value < plan.l0.num_rows(); ++row.value)
    rest.push_back(plan.range(row));
  std::vector<std::vector<std::int32_t>> members(plan.l0.carried.size());  // of exchanges, by match
  const auto exchange = [&](std::int32_t id) {
    const Op& op = plan.l0.ops[index_of(id)];
    return plan.l0.is_on(op, GroupKind::Other) ? op.match : MatchId{};
  };
  for (std::int32_t id = 0; id < plan.l0.num_ops(); ++id) {
    if (const MatchId match = exchange(id)) members[match.index()].push_back(id);
  }
  // Whether a row may pass the op: an exchange waits until all its members stand at it.
  const auto met = [&](std::int32_t id) {
    const MatchId match = exchange(id);
    return !match || std::ranges::all_of(members[match.index()], [&](std::int32_t member) {
      return rest[index_of(plan.row_of[index_of(member)])].begin >= member;
    });
  };
  for (bool progress = true; std::exchange(progress, false);) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rest[row].begin == rest[row].end) continue;
      const std::int32_t id = rest[row].begin;
      const std::size_t op = index_of(id);
      if (!met(id) || !std::ranges::all_of(
                          ends.taken[op], [&](std::int32_t t) { return sent[index_of(t)] != 0; })) {
        continue;
      }
      ++rest[row].begin;
      progress = true;
      rows[row].push_back({id, OpKind::Forward});
      for (const std::int32_t t : ends.made[op]) {
        sent[index_of(t)] = 1;
        rows[row].push_back({t, OpKind::Send});
        rows[plan.transfers[index_of(t)].to.index()].push_back({t, OpKind::Recv});
      }
    }
  }
  return rows;
}

Op end_of(const Plan& plan, const Item& item) {
  const Transfer& transfer = plan.transfers[static_cast<std::size_t>(item.id)];
  const bool recv = item.kind == OpKind::Recv;
  const Stage issuing =
      recv ? other_stage(OpKind::Send, transfer.payload, transfer.stage) : transfer.stage;
  Op op = transfer_op(item.kind, transfer.payload, issuing, transfer.microbatch, transfer.slice);
  op.peer = plan.l0.position_of(recv ? transfer.from : transfer.to);
  op.key = transfer.place;
  return op;
}

// The ops of all rows with matches and waits: what link_transfers finds out, while it is known.
class Emitter {
 public:
  Emitter(const Plan& plan, const Rows& rows)
      : plan_(plan),
        rows_(rows),
        number_(plan.transfers.size()),
        place_of_(plan.l0.ops.size(), -1),
        feed_of_(plan.l0.ops.size(), -1) {}

  Schedule run() {
    const Schedule& l0 = plan_.l0;
    out_ = {.level = Level::Full,
            .name = l0.name,
            .microbatches = l0.microbatches,
            .slices = l0.slices,
            .placement = l0.placement,
            .children = l0.children,
            .rows = l0.rows,
            .groups = l0.groups,
            .segments = l0.segments};
    std::size_t count = 0;
    MatchId next{0};
    for (const std::vector<Item>& row : rows_) {
      count += row.size();
      for (const Item& item : row) {
        if (item.kind != OpKind::Send) continue;
        number_[static_cast<std::size_t>(item.id)] = next;
        ++next.value;
      }
    }
    first_exchange_ = next.value;
    if (!l0.carried.empty()) {
      out_.carried.resize(next.index());
      out_.carried.insert(out_.carried.end(), l0.carried.begin(), l0.carried.end());
    }
    out_.ops.reserve(count);
    out_.wait_begin.reserve(count + 1);
    out_.waits.reserve(count);
    for (const std::vector<Item>& row : rows_) {
      sent_after_ = fed_by_ = -1;
      for (const Item& item : row) emit(item);
      out_.end_row();
    }
    out_.wait_is_reuse.assign(out_.waits.size(), 0);
    return std::move(out_);
  }

 private:
  void emit(const Item& item) {
    const auto here = static_cast<std::int32_t>(out_.ops.size());
    const auto id = static_cast<std::size_t>(item.id);
    if (!is_transfer(item.kind)) {
      Op op = plan_.l0.ops[id];
      if (plan_.l0.is_on(op, GroupKind::Other)) {
        if (op.match) op.match.value += first_exchange_;
      } else {
        op.stream = traits(op.kind).stream;
      }
      op.key = plan_.place[id];
      out_.ops.push_back(op);
      wait_for(feed_of_[id], fed_by_);
      place_of_[id] = here;
    } else {
      const Transfer& transfer = plan_.transfers[id];
      out_.ops.push_back(end_of(plan_, item));
      out_.ops.back().match = number_[id];
      if (item.kind == OpKind::Send) {
        wait_for(place_of_[static_cast<std::size_t>(transfer.producer)], sent_after_);
      } else {
        feed_of_[static_cast<std::size_t>(transfer.consumer)] = here;
      }
    }
    out_.wait_begin.push_back(static_cast<std::int32_t>(out_.waits.size()));
  }
  void wait_for(std::int32_t op, std::int32_t& known) {
    if (op <= known) return;
    known = op;
    out_.waits.push_back({op});
  }

  const Plan& plan_;
  const Rows& rows_;
  Schedule out_;
  std::vector<MatchId> number_;         // per transfer: SENDs as they stand
  std::int32_t first_exchange_ = 0;     // the match behind them all
  std::vector<std::int32_t> place_of_;  // per op of L0: where it stands now
  std::vector<std::int32_t> feed_of_;   // per op of L0: the last RECV that feeds it
  std::int32_t sent_after_ = -1;        // latest compute op that a SEND of the row has waited for
  std::int32_t fed_by_ = -1;            // latest RECV that a compute op of the row has waited for
};

// The other end of each transfer, -1 for all else.
std::vector<std::int32_t> partners_of(const Schedule& schedule) {
  std::vector<std::int32_t> partner(schedule.ops.size(), -1), first(schedule.ops.size(), -1);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (!is_transfer(schedule.ops[i].kind) || !schedule.ops[i].match) continue;
    std::int32_t& other = first[schedule.ops[i].match.index()];
    if (other >= 0) {
      partner[i] = other;
      partner[static_cast<std::size_t>(other)] = static_cast<std::int32_t>(i);
    }
    other = static_cast<std::int32_t>(i);
  }
  return partner;
}

// Makes a group (equal Op::instance) of transfers that stand together on both of their rows, all
// between these two. Either side of the group starts when what its SENDs carry is there.
void group_exchanges(Schedule& schedule) {
  const std::vector<std::int32_t> partner = partners_of(schedule);
  const auto at = [&](std::int32_t id) -> Op& {
    return schedule.ops[static_cast<std::size_t>(id)];
  };
  const auto other = [&](std::int32_t id) { return partner[static_cast<std::size_t>(id)]; };
  std::int32_t groups = 0;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const auto end = static_cast<std::int32_t>(schedule.first_op({row.value + 1}));
    std::int32_t last = 0;
    for (auto id = static_cast<std::int32_t>(schedule.first_op(row)); id < end; id = last + 1) {
      last = id;  // [id, last] stands together on both rows
      if (other(id) < 0 || at(id).instance >= 0) continue;
      while (last + 1 < end && last - id + 1 < kLargestGroup &&
             other(last + 1) == other(last) + 1 && at(last + 1).peer == at(id).peer) {
        ++last;
      }
      if (last == id) continue;
      for (std::int32_t k = id; k <= last; ++k) at(k).instance = at(other(k)).instance = groups;
      ++groups;
    }
  }
}

}  // namespace

std::optional<TransferPolicy> find_transfer_policy(std::string_view name) {
  for (const TransferPolicyInfo& row : kTransferPolicies) {
    if (row.name == name) return row.policy;
  }
  return std::nullopt;
}

Schedule add_transfers(const Schedule& l0, std::span<const Nanoseconds> finish,
                       TransferPolicy policy) {
  assert(finish.size() == l0.ops.size());
  Plan plan{l0, StageIndex(l0), rows_of_ops(l0), {}, {}};
  plan.place = places_of_ops(l0, plan.index, finish);
  plan.transfers = transfers_of(plan, finish, policy);
  const Rows rows = policy == TransferPolicy::Naive           ? naive(plan)
                    : policy == TransferPolicy::ProducerOrder ? taking_turns(plan)
                                                              : in_global_order(plan);
  Schedule lowered = Emitter(plan, rows).run();
  if (policy == TransferPolicy::Grouped) group_exchanges(lowered);
  // Parameter gathers in text, and members of groups, have waits of their own.
  const bool relink = policy == TransferPolicy::Grouped || plan.index.has(OpKind::Unshard);
  if (relink) return link_transfers(std::move(lowered));
  return lowered;
}

std::vector<Nanoseconds> unit_finish(const Schedule& l0) {
  Schedule one_by_one = l0;
  for (Op& op : one_by_one.ops) op.stream = Stream::Compute;
  return prove_no_deadlock(one_by_one, StreamModel::One, {.other = {1}}).finish;
}

}  // namespace rehearse
