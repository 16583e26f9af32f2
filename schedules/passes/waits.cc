// Events: for every op the ops of other streams of its row that must have finished, data first,
// then reuse of memory. An edge that order in a stream or an earlier wait implies is left out
// (vector clocks over the streams of the row).
#include <algorithm>
#include <array>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

using Clock = std::array<std::int32_t, kNumStreams>;  // last op of each stream known to have ended

struct Need {
  std::int32_t op;
  bool reuse;
};

// Who used which bytes of the arena last. Blocks of an arena never overlap while both are alive.
class Owners {
 public:
  // Calls visit(value) for every earlier owner of [begin, end), then makes `value` the owner.
  template <class Visit>
  void take(std::int64_t begin, std::int64_t end, std::int32_t value, Visit visit) {
    std::size_t first = 0;
    while (first < spans_.size() && spans_[first].end <= begin) ++first;
    std::vector<Span> kept;
    std::size_t last = first;
    for (; last < spans_.size() && spans_[last].begin < end; ++last) {
      const Span& old = spans_[last];
      visit(old.value);
      if (old.begin < begin) kept.push_back({old.begin, begin, old.value});
    }
    kept.push_back({begin, end, value});
    if (last > first && spans_[last - 1].end > end) {
      kept.push_back({end, spans_[last - 1].end, spans_[last - 1].value});
    }
    const auto at = spans_.erase(spans_.begin() + static_cast<std::ptrdiff_t>(first),
                                 spans_.begin() + static_cast<std::ptrdiff_t>(last));
    spans_.insert(at, kept.begin(), kept.end());
  }

 private:
  struct Span {
    std::int64_t begin, end;
    std::int32_t value;
  };
  std::vector<Span> spans_;
};

// Last use of each value on each stream; -1: none.
using LastUses = std::vector<std::array<std::int32_t, kNumStreams>>;

}  // namespace

void add_waits(Schedule& s) {
  const std::size_t num_ops = s.ops.size();
  s.waits.clear();
  s.wait_is_reuse.clear();
  s.wait_begin.assign(1, 0);
  s.wait_begin.reserve(num_ops + 1);
  std::vector<Clock> after(num_ops);  // what is known to have ended once the op has
  std::vector<std::int32_t> writer(s.values.size(), -1);
  std::array<std::int32_t, kNumStreams> none;
  none.fill(-1);
  LastUses uses(s.values.size(), none);
  std::vector<Need> needs, kept;
  const bool arena = !s.arena_bytes.empty();
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    Clock last_of_stream;
    last_of_stream.fill(-1);
    Owners owners;
    for (std::int32_t i = s.row_begin[static_cast<std::size_t>(r)];
         i < s.row_begin[static_cast<std::size_t>(r) + 1]; ++i) {
      const Op& op = s.ops[static_cast<std::size_t>(i)];
      const auto stream = static_cast<std::size_t>(op.stream);
      Clock clock;
      clock.fill(-1);
      if (last_of_stream[stream] >= 0)
        clock = after[static_cast<std::size_t>(last_of_stream[stream])];
      needs.clear();
      // Of the own stream, or known to have ended: nothing to wait for.
      const auto wait_for = [&](std::int32_t other, bool reuse) {
        if (other < 0 || other == i) return;
        const auto from = static_cast<std::size_t>(s.ops[static_cast<std::size_t>(other)].stream);
        if (from != stream && other > clock[from]) needs.push_back({other, reuse});
      };
      for (const Operand& operand : s.operands_of({i})) {
        const std::size_t v = operand.value.index();
        const bool read = operand.access == Access::Read;
        wait_for(writer[v], false);
        if (!read) {
          for (const std::int32_t use : uses[v]) wait_for(use, false);
        }
        if (arena && s.values[v].offset.value >= 0 && s.values[v].define.value == i) {
          const std::int64_t begin = s.values[v].offset.value;
          owners.take(begin, begin + aligned(s.values[v].bytes.value), operand.value.value,
                      [&](std::int32_t before) {
                        for (const std::int32_t use : uses[static_cast<std::size_t>(before)]) {
                          wait_for(use, true);
                        }
                      });
        }
        if (!read) writer[v] = i;
      }
      for (const Operand& operand : s.operands_of({i})) uses[operand.value.index()][stream] = i;
      // The latest first: what it implies needs no event of its own.
      std::sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
        return a.op != b.op ? a.op > b.op : a.reuse < b.reuse;
      });
      kept.clear();
      for (const Need& need : needs) {
        const Op& producer = s.ops[static_cast<std::size_t>(need.op)];
        const auto from = static_cast<std::size_t>(producer.stream);
        if (need.op <= clock[from]) continue;  // implied by a later one
        const Clock& known = after[static_cast<std::size_t>(need.op)];
        for (std::size_t q = 0; q < kNumStreams; ++q) clock[q] = std::max(clock[q], known[q]);
        kept.push_back(need);
      }
      std::sort(kept.begin(), kept.end(), [](const Need& a, const Need& b) {  // data first
        return a.reuse != b.reuse ? a.reuse < b.reuse : a.op < b.op;
      });
      for (const Need& need : kept) {
        s.waits.push_back({need.op});
        s.wait_is_reuse.push_back(need.reuse ? 1 : 0);
      }
      s.wait_begin.push_back(static_cast<std::int32_t>(s.waits.size()));
      clock[stream] = i;
      after[static_cast<std::size_t>(i)] = clock;
      last_of_stream[stream] = i;
    }
  }
}

}  // namespace rehearse
