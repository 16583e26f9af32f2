// SPDX-License-Identifier: Apache-2.0
// V7, V8, V11: values live from their definition to their last use, the arena gives memory on only
// when it is free, and a row's peak fits.
#include <algorithm>

#include "schedules/ir/listing.h"
#include "schedules/proof/rules/rules.h"

namespace rehearse {
namespace {

// Who touched a value last, on the way through a row.
struct Touch {
  std::int32_t writer = -1;
  std::array<std::int32_t, kNumStreams> reader{-1, -1, -1, -1, -1};  // since the last write
  std::int32_t ended = -1;  // op that said it was the last use
  std::int32_t latest = -1;
  std::int16_t version = 0;
};

// Follows the operands of all rows in program order.
class Lives {
 public:
  Lives(const Facts& facts, Report& report)
      : facts_(facts), s_(facts.schedule), report_(report), touch_(s_.values.size()) {}

  void run() {
    facts_.each_op([&](RankClass row, std::int32_t id, const Op& op) {
      for (const Operand& operand : s_.operands_of({id})) use(row, id, op, operand);
    });
    for (std::size_t v = 0; v < touch_.size(); ++v) end(static_cast<std::int32_t>(v));
  }

 private:
  std::string name(ValueId value) const { return value_name(s_, value); }

  void use(RankClass row, std::int32_t id, const Op& op, const Operand& operand) {
    const Value& value = s_.values[operand.value.index()];
    Touch& touch = touch_[operand.value.index()];
    const bool reads = operand.access == Access::Read || operand.access == Access::Update;
    const bool writes = operand.access != Access::Read;
    if (value.row != row) {
      return report_.add(id, [&] {
        return facts_.where(id) + " uses " + name(operand.value) + ", which lies on " +
               row_name(s_, value.row);
      });
    }
    const bool defines = value.define.value == id;
    if (reads && value.define && touch.writer < 0 && !defines) {
      report_.add(id, [&] {
        return facts_.where(id) + " uses " + name(operand.value) + " before " +
               facts_.where(value.define.value) + " defines it";
      });
    }
    if (operand.access == Access::Write && (touch.writer >= 0 || (value.define && !defines))) {
      report_.add(id, [&] {
        return facts_.where(id) + " defines " + name(operand.value) +
               " again: a value is written once, then updated";
      });
    }
    if (touch.ended >= 0) {
      report_.add(id, [&] {
        return facts_.where(id) + " uses " + name(operand.value) + " after its last use by " +
               facts_.where(touch.ended);
      });
    }
    if (reads && operand.version != touch.version) {
      report_.add(id, [&] {
        return facts_.where(id) + " names version " + std::to_string(operand.version) + " of " +
               name(operand.value) + ": " + std::to_string(touch.version) + " is there";
      });
    }
    follows(id, touch.writer, operand.value, "written");
    if (writes) {
      for (const std::int32_t reader : touch.reader) follows(id, reader, operand.value, "read");
      touch.writer = id;
      touch.reader.fill(-1);
      if (operand.access == Access::Update) ++touch.version;
    }
    touch.reader[static_cast<std::size_t>(op.stream)] = id;
    touch.latest = id;
    if (operand.last) {
      touch.ended = id;
      if (value.persistent) {
        report_.add(id, [&] {
          return facts_.where(id) + " ends " + name(operand.value) + ", which outlives the step";
        });
      }
    }
  }

  // `id` may start only when `other` has ended: by its stream, or by a wait.
  void follows(std::int32_t id, std::int32_t other, ValueId value, const char* what) {
    if (other < 0 || other == id || facts_.before(other, id)) return;
    report_.add(id, [&] {
      return facts_.where(id) + " does not wait for " + facts_.where(other) + ", which has " +
             what + " " + name(value);
    });
  }

  void end(std::int32_t v) {
    const Value& value = s_.values[static_cast<std::size_t>(v)];
    const Touch& touch = touch_[static_cast<std::size_t>(v)];
    if (touch.latest < 0) {
      if (value.persistent) return;
      return report_.add(value.define.value, [&] { return name({v}) + " is used by no op"; });
    }
    if (value.persistent) return;
    if (touch.ended < 0 || value.last_use.value != touch.ended) {
      return report_.add(touch.latest, [&] {
        return name({v}) + " is never freed: its last use, " + facts_.where(touch.latest) +
               ", does not say so";
      });
    }
    if (value.hold_until && value.hold_until < value.last_use) {
      report_.add(touch.ended, [&] {
        return name({v}) + " is held until before its last use, " + facts_.where(touch.ended);
      });
    }
  }

  const Facts& facts_;
  const Schedule& s_;
  Report& report_;
  std::vector<Touch> touch_;
};

// Without values: an op may start only when the transfer that brings its input has ended, a SEND
// when what it carries is made. Waits must say so, an engine knows nothing of stages.
void check_waits(const Facts& facts, Report& report) {
  // Per stream of the row, the latest op of every other one that it has waited for so far. What a
  // third stream implies is looked up only where that is not enough.
  std::array<std::array<std::int32_t, kNumStreams>, kNumStreams> waited{};
  HappensBefore before;
  bool looked_up = false;
  RankClass now{};
  facts.each_op([&](RankClass row, std::int32_t id, const Op& op) {
    if (row != now) {
      for (auto& stream : waited) stream.fill(-1);
      now = row;
    }
    auto& known = waited[static_cast<std::size_t>(op.stream)];
    for (const OpId wait : facts.schedule.waits_of({id})) {
      auto& latest = known[static_cast<std::size_t>(facts.op(wait.value).stream)];
      if (wait.value < id) latest = std::max(latest, wait.value);
    }
    const std::int32_t data_class = facts.index.class_of(row);
    const auto begin = static_cast<std::int32_t>(facts.schedule.first_op(row));
    const auto follows = [&](std::int32_t other) {
      if (other < begin || other >= id) return;  // later ones: V3
      const Stream stream = facts.op(other).stream;
      if (stream == op.stream || other <= known[static_cast<std::size_t>(stream)]) return;
      if (!looked_up) before = HappensBefore(facts.schedule);
      looked_up = true;
      if (before(other, id)) return;
      report.add(id, [&] {
        return facts.where(id) + " does not wait for " + to_text(facts.schedule, {other}) +
               ", whose result it uses";
      });
    };
    if (op.kind == OpKind::Send) {
      follows(facts.index.source(data_class, op));
    } else if (is_compute(op.kind)) {
      for (const Op& work : work_of(facts.schedule, op)) {
        follows(facts.index.arrival(data_class, work));
      }
    }
  });
}

// The latest owner of every byte of an arena, as spans in ascending order.
class Owners {
 public:
  // Calls visit(value) for every owner of a byte of [begin, end), then makes `value` the owner.
  template <class Visit>
  void take(std::int64_t begin, std::int64_t end, std::int32_t value, Visit visit) {
    const auto first = std::ranges::lower_bound(spans_, begin + 1, {}, &Span::end);
    auto last = first;
    kept_.clear();
    if (first != spans_.end() && first->begin < begin)
      kept_.push_back({first->begin, begin, first->value});
    kept_.push_back({begin, end, value});
    for (; last != spans_.end() && last->begin < end; ++last) {
      visit(last->value);
      if (last->end > end) kept_.push_back({end, last->end, last->value});
    }
    const auto at = spans_.erase(first, last);
    spans_.insert(at, kept_.begin(), kept_.end());
  }

 private:
  struct Span {
    std::int64_t begin, end;
    std::int32_t value;
  };
  std::vector<Span> spans_, kept_;
};

bool in_arena(const Value& value) {
  return value.offset.value >= 0 && value.bytes.value > 0;
}

// Values of each row that begin with each op, as offsets into one list; before the first op: first.
std::vector<std::int32_t> in_order_of_birth(const Schedule& s) {
  std::vector<std::int32_t> order(s.values.size());
  for (std::size_t v = 0; v < order.size(); ++v) order[v] = static_cast<std::int32_t>(v);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    const Value& x = s.values[static_cast<std::size_t>(a)];
    const Value& y = s.values[static_cast<std::size_t>(b)];
    return std::pair{x.row, x.define} < std::pair{y.row, y.define};
  });
  return order;
}

}  // namespace

bool check_lives(const Facts& facts, Report& report) {
  if (!facts.full()) return false;
  if (facts.has_values()) {
    Lives(facts, report).run();
  } else {
    check_waits(facts, report);
  }
  return true;
}

bool check_arena(const Facts& facts, Report& report) {
  const Schedule& s = facts.schedule;
  if (s.arena_bytes.empty()) return false;
  // Last use of every value on every stream.
  std::vector<std::array<std::int32_t, kNumStreams>> uses(s.values.size(), {-1, -1, -1, -1, -1});
  facts.each_op([&](RankClass, std::int32_t id, const Op& op) {
    for (const Operand& operand : s.operands_of({id})) {
      uses[operand.value.index()][static_cast<std::size_t>(op.stream)] = id;
    }
  });
  RankClass row{};
  std::array<Owners, kNumHomes> owners;
  for (const std::int32_t v : in_order_of_birth(s)) {
    const Value& value = s.values[static_cast<std::size_t>(v)];
    if (!in_arena(value)) continue;
    if (value.row != row) owners = {};
    row = value.row;
    const auto home = static_cast<std::size_t>(value.home);
    constexpr std::array kArenas{&Schedule::arena_bytes, &Schedule::host_bytes,
                                 &Schedule::nvme_bytes};
    constexpr std::array<std::string_view, kNumHomes> kWhose{"", "host's ", "drives' "};
    const std::vector<Bytes>& arena = s.*kArenas[home];
    if (arena.empty() || value.offset.value + value.bytes.value > arena[row.index()].value) {
      report.add(value.define.value, [&] {
        return value_name(s, {v}) + " on " + row_name(s, row) + " ends beyond the " +
               std::string(kWhose[home]) + "arena";
      });
    }
    const auto given_on = [&](std::int32_t before) {
      const Value& old = s.values[static_cast<std::size_t>(before)];
      const auto say = [&](const std::string& why) {
        report.add(value.define.value, [&] {
          return value_name(s, {v}) + " on " + row_name(s, row) + " takes memory of " +
                 value_name(s, {before}) + why;
        });
      };
      if (old.persistent || !old.last_use || !value.define)
        return say(", which is alive all along");
      for (const std::int32_t use : uses[static_cast<std::size_t>(before)]) {
        if (use < 0 || facts.before(use, value.define.value)) continue;
        say(", and " + facts.where(value.define.value) + " does not wait for its use by " +
            facts.where(use));
      }
    };
    owners[home].take(value.offset.value, value.offset.value + value.bytes.value, v, given_on);
  }
  return true;
}

bool check_memory(const Facts& facts, Report& report) {
  const Schedule& s = facts.schedule;
  if (facts.options.capacity.empty() || !facts.has_values()) return false;
  // Bytes that come and go with each op: alive from definition to hold_until.
  std::vector<std::int64_t> change(s.ops.size() + 1, 0);
  for (const Value& value : s.values) {
    if (value.home != Home::Device) continue;
    const auto born = value.define ? value.define.index() : s.first_op(value.row);
    change[born] += value.bytes.value;
    const OpId end = value.hold_until ? value.hold_until : value.last_use;
    if (end && end.index() + 1 < s.first_op({value.row.value + 1})) {
      change[end.index() + 1] -= value.bytes.value;
    } else {
      change[s.first_op({value.row.value + 1})] -= value.bytes.value;
    }
  }
  std::int64_t alive = 0;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    std::int64_t peak = 0;
    std::int32_t witness = -1;
    for (std::size_t i = s.first_op(row); i < s.first_op({row.value + 1}); ++i) {
      alive += change[i];
      if (alive > peak) witness = static_cast<std::int32_t>(i);
      peak = std::max(peak, alive);
    }
    // An arena may be larger than what is alive at any time.
    if (!s.arena_bytes.empty()) peak = std::max(peak, s.arena_bytes[row.index()].value);
    const std::int64_t capacity =
        facts.options.capacity[std::min(row.index(), facts.options.capacity.size() - 1)].value;
    if (peak <= capacity) continue;
    report.add(witness, [&] {
      const auto [needs, has] = size_texts(peak, capacity);
      return row_name(s, row) + " needs " + needs + ", at " + facts.where(witness) + ": it has " +
             has;
    });
  }
  return true;
}

}  // namespace rehearse
