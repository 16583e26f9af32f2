// SPDX-License-Identifier: Apache-2.0
// Events: for every op the ops of other streams of its row that must have finished, data first,
// then reuse of memory. An edge that order in a stream or an earlier wait implies is left out
// (vector clocks over the streams of the row). Transfers of one exchange stand together: the first
// waits for what any of them needs, and who needs one of them waits for all.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

using Clock = std::array<std::int32_t, kNumStreams>;  // last op of each stream known to have ended

// By stream: the last op there that must have ended. What comes before it on its stream has ended
// then too.
class Needs {
 public:
  struct Need {
    std::int32_t op = -1;
    std::size_t stream = 0;
    bool reuse = false;
  };

  void add(std::size_t stream, std::int32_t op, bool reuse) {
    for (std::size_t k = 0; k < size_; ++k) {
      Need& need = needs_[k];
      if (need.stream != stream) continue;
      if (op > need.op || (op == need.op && !reuse)) need = {op, stream, reuse};
      return;
    }
    needs_[size_++] = {op, stream, reuse};
  }
  bool empty() const { return size_ == 0; }
  // The latest first. REQUIRES: not empty.
  Need take() {
    std::size_t latest = 0;
    for (std::size_t k = 1; k < size_; ++k) {
      if (needs_[k].op > needs_[latest].op) latest = k;
    }
    const Need need = needs_[latest];
    needs_[latest] = needs_[--size_];
    return need;
  }

 private:
  std::array<Need, kNumStreams> needs_;
  std::size_t size_ = 0;
};

// Who used which bytes of the arena last. Blocks of an arena never overlap while both are alive.
class Owners {
 public:
  // Calls visit(value) for every earlier owner of [begin, end), the lowest first, then makes
  // `value` the owner.
  template <class Visit>
  void take(std::int64_t begin, std::int64_t end, std::int32_t value, Visit visit) {
    auto at = spans_.upper_bound(begin);
    if (at != spans_.begin() && std::prev(at)->second.end > begin) --at;
    std::map<std::int64_t, Span>::node_type node;  // of an owner that is gone
    while (at != spans_.end() && at->first < end) {
      const std::int64_t from = at->first;
      const Span old = at->second;
      visit(old.value);
      if (from < begin) {
        at->second.end = begin;
        ++at;
      } else {
        node = spans_.extract(at++);
      }
      if (old.end > end) at = spans_.insert_or_assign(at, end, old);
    }
    if (!node) {
      spans_.emplace_hint(at, begin, Span{end, value});
      return;
    }
    node.key() = begin;
    node.mapped() = {end, value};
    spans_.insert(at, std::move(node));
  }

 private:
  struct Span {
    std::int64_t end;
    std::int32_t value;
  };
  std::map<std::int64_t, Span> spans_;  // by their beginning
};

// Last use of each value on each stream; -1: none.
using LastUses = std::vector<std::array<std::int32_t, kNumStreams>>;

constexpr Clock kNone{-1, -1, -1, -1, -1};
static_assert(kNumStreams == 5);

// What must have ended before the values that the op defines may lie where others did.
void add_reuse(const Schedule& s, OpId id, LastUses& uses, std::array<Owners, 2>& owners,
               Needs& needs) {
  const auto stream = static_cast<std::size_t>(s.ops[id.index()].stream);
  for (const Operand& operand : s.operands_of(id)) {
    const Value& value = s.values[operand.value.index()];
    if (value.offset.value < 0 || value.define != id) continue;
    owners[static_cast<std::size_t>(value.home)].take(
        value.offset.value, value.offset.value + aligned(value.bytes.value), operand.value.value,
        [&](std::int32_t before) {
          const auto& last = uses[static_cast<std::size_t>(before)];
          for (std::size_t q = 0; q < kNumStreams; ++q) {
            if (q == stream || last[q] < 0) continue;
            needs.add(q, last[q], /*reuse=*/true);
          }
        });
  }
  for (const Operand& operand : s.operands_of(id)) {
    uses[operand.value.index()][stream] = id.value;
  }
}

// The op and those of its exchange that stand with it: [first, last].
struct Exchanged {
  std::int32_t first, last;
};
Exchanged exchanged(const Schedule& s, std::int32_t id, std::int32_t begin, std::int32_t end) {
  const auto in_exchange = [&](std::int32_t other) {
    const Op &a = s.ops[static_cast<std::size_t>(id)], &b = s.ops[static_cast<std::size_t>(other)];
    return b.stream == Stream::P2p && a.instance >= 0 && b.instance == a.instance;
  };
  Exchanged found{id, id};
  if (s.ops[static_cast<std::size_t>(id)].stream != Stream::P2p) return found;
  while (found.first > begin && in_exchange(found.first - 1)) --found.first;
  while (found.last + 1 < end && in_exchange(found.last + 1)) ++found.last;
  return found;
}

// An op's waits, which are those from `first` on: data, then reuse, each in the order of the row.
void data_first(Schedule& s, std::size_t first) {
  for (std::size_t k = first + 1; k < s.waits.size(); ++k) {
    const auto before = [&](std::size_t a, std::size_t b) {
      return s.wait_is_reuse[a] != s.wait_is_reuse[b] ? s.wait_is_reuse[a] < s.wait_is_reuse[b]
                                                      : s.waits[a] < s.waits[b];
    };
    for (std::size_t j = k; j > first && before(j, j - 1); --j) {
      std::swap(s.waits[j], s.waits[j - 1]);
      std::swap(s.wait_is_reuse[j], s.wait_is_reuse[j - 1]);
    }
  }
}

}  // namespace

void add_waits(Ordered& ordered) {
  Schedule& s = ordered.schedule;
  const std::size_t num_ops = s.ops.size();
  std::vector<std::int32_t> place(num_ops);  // per op of the draft
  for (std::size_t i = 0; i < num_ops; ++i) {
    place[ordered.made[i].index()] = static_cast<std::int32_t>(i);
  }
  s.waits.clear();
  s.wait_is_reuse.clear();
  s.wait_begin.assign(1, 0);
  s.wait_begin.reserve(num_ops + 1);
  s.waits.reserve(num_ops);
  s.wait_is_reuse.reserve(num_ops);
  const bool arena = !s.arena_bytes.empty();
  std::vector<Clock> after(num_ops);  // what is known to have ended once the op has
  LastUses uses;
  if (arena) uses.assign(s.values.size(), kNone);
  Needs needs;
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    std::array<std::int32_t, kNumStreams> last_of_stream = kNone;
    std::array<Owners, 2> owners;  // by home
    const std::int32_t begin = s.row_begin[static_cast<std::size_t>(r)];
    const std::int32_t end = s.row_begin[static_cast<std::size_t>(r) + 1];
    for (std::int32_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto stream = static_cast<std::size_t>(s.ops[at].stream);
      const Exchanged together = exchanged(s, i, begin, end);
      for (std::int32_t k = i; i == together.first && k <= together.last; ++k) {
        for (const OpId before :
             ordered.dependencies.of(ordered.made[static_cast<std::size_t>(k)])) {
          const std::int32_t from = place[before.index()];
          const auto other = static_cast<std::size_t>(s.ops[static_cast<std::size_t>(from)].stream);
          if (other != stream) needs.add(other, from, /*reuse=*/false);
        }
        if (arena) add_reuse(s, {k}, uses, owners, needs);
      }
      Clock& clock = after[at];
      clock = last_of_stream[stream] < 0 ? kNone
                                         : after[static_cast<std::size_t>(last_of_stream[stream])];
      // The latest first: what it implies needs no event of its own.
      const std::size_t first = s.waits.size();
      while (!needs.empty()) {
        const Needs::Need need = needs.take();
        if (need.op <= clock[need.stream]) continue;  // known to have ended
        const Exchanged all = exchanged(s, need.op, begin, end);
        const Clock& known = after[static_cast<std::size_t>(all.last)];
        for (std::size_t q = 0; q < kNumStreams; ++q) clock[q] = std::max(clock[q], known[q]);
        for (std::int32_t k = all.first; k <= all.last; ++k) {
          s.waits.push_back({k});
          s.wait_is_reuse.push_back(need.reuse ? 1 : 0);
        }
      }
      data_first(s, first);
      s.wait_begin.push_back(static_cast<std::int32_t>(s.waits.size()));
      clock[stream] = i;
      last_of_stream[stream] = i;
    }
  }
}

}  // namespace rehearse
