// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/two/align.h"

namespace rehearse::viz {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// `from`, whose rows are classes, with the rows of `like`.
class Repeat {
 public:
  Repeat(Trace& from, const Trace& like) : from_(from), like_(like) {}

  void run() {
    out_.label = from_.label;
    out_.schedule_hash = from_.schedule_hash;
    out_.schedule_name = from_.schedule_name;
    out_.title = from_.title;
    out_.caption = from_.caption;
    out_.microbatches = from_.microbatches;
    out_.begin = from_.begin;
    out_.end = from_.end;
    out_.slots = from_.slots;
    out_.strings = from_.strings;
    out_.memory_parts = from_.memory_parts;
    tables();
    const auto& ops = from_.row_begin;
    out_.start_ns = repeated(from_.start_ns, ops);
    out_.end_ns = repeated(from_.end_ns, ops);
    out_.op_class = repeated(from_.op_class, ops);
    out_.microbatch = repeated(from_.microbatch, ops);
    out_.partner = copy(like_.partner);  // who meets whom
    out_.cost_level = repeated(from_.cost_level, ops);
    out_.expected_start_ns = repeated(from_.expected_start_ns, ops);
    out_.communicating_ns = repeated(from_.communicating_ns, ops);
    samples();
    waits();
    operands();
    // What does not speak of ops or rows.
    out_.classes = std::move(from_.classes);
    out_.links = std::move(from_.links);
    out_.link_begin = std::move(from_.link_begin);
    out_.link_samples = std::move(from_.link_samples);
    out_.run_begin = std::move(from_.run_begin);
    out_.runs = std::move(from_.runs);
    out_.bodies = std::move(from_.bodies);
    out_.nodes = std::move(from_.nodes);
    out_.meetings = std::move(from_.meetings);
    out_.resident_bytes = std::move(from_.resident_bytes);
    out_.expert_shape = std::move(from_.expert_shape);
    out_.expert_layers = std::move(from_.expert_layers);
    out_.expert_steps = std::move(from_.expert_steps);
    out_.expert_rows = std::move(from_.expert_rows);
    out_.mapping = std::move(from_.mapping);
    from_ = std::move(out_);
  }

 private:
  template <class T>
  static Column<T> copy(const Column<T>& column) {
    return std::vector<T>(column.begin(), column.end());
  }
  std::size_t class_of(std::size_t row) const { return at(like_.row_class[row]); }
  // By what an op of the class moves on its way to the row.
  std::int32_t moved_by(std::size_t row) const {
    return static_cast<std::int32_t>(like_.row_begin[row] - from_.row_begin[class_of(row)]);
  }
  template <class Visit>  // visit(row, its class)
  void each_row(Visit visit) const {
    for (std::size_t row = 0; row < like_.rows.size(); ++row) visit(row, class_of(row));
  }

  // What `begin` cuts by row, for every row; empty stays empty.
  template <class T>
  std::vector<T> repeated(const Column<T>& column, const Column<std::int64_t>& begin) const {
    std::vector<T> out;
    if (column.empty()) return out;
    each_row([&](std::size_t, std::size_t c) {
      out.insert(out.end(), column.begin() + begin[c], column.begin() + begin[c + 1]);
    });
    return out;
  }
  std::vector<std::int64_t> offsets(const Column<std::int64_t>& begin) const {
    std::vector<std::int64_t> out;
    if (begin.empty()) return out;
    out.push_back(0);
    each_row(
        [&](std::size_t, std::size_t c) { out.push_back(out.back() + begin[c + 1] - begin[c]); });
    return out;
  }

  void tables() {
    std::vector<TraceRow> rows;
    std::vector<TraceLane> lanes;
    each_row([&](std::size_t row, std::size_t c) {
      rows.push_back({.position = from_.rows[c].position,
                      .first_rank = like_.rows[row].first_rank,
                      .capacity_bytes = from_.rows[c].capacity_bytes});
      for (std::int32_t slot = 0; slot < from_.slots; ++slot)
        lanes.push_back(from_.lanes[c * at(from_.slots) + at(slot)]);
    });
    out_.rows = std::move(rows);
    out_.lanes = std::move(lanes);
    out_.row_begin = copy(like_.row_begin);
    out_.row_class = copy(like_.row_class);
  }

  void samples() {
    out_.idle_begin = offsets(from_.idle_begin);
    std::vector<IdleSpan> idle;
    if (!from_.idle_begin.empty()) {
      each_row([&](std::size_t row, std::size_t c) {
        for (std::int64_t i = from_.idle_begin[c]; i < from_.idle_begin[c + 1]; ++i) {
          IdleSpan span = from_.idle[at(i)];
          if (span.op) span.op.value += moved_by(row);
          idle.push_back(span);
        }
      });
    }
    out_.idle = std::move(idle);
    out_.memory_begin = offsets(from_.memory_begin);
    std::vector<std::int64_t> time, bytes;
    const std::size_t parts = from_.memory_parts.size();
    if (!from_.memory_begin.empty()) {
      each_row([&](std::size_t, std::size_t c) {
        for (std::int64_t i = from_.memory_begin[c]; i < from_.memory_begin[c + 1]; ++i) {
          time.push_back(from_.memory_time[at(i)]);
          for (std::size_t p = 0; p < parts; ++p)
            bytes.push_back(from_.memory_bytes[at(i) * parts + p]);
        }
      });
    }
    out_.memory_time = std::move(time);
    out_.memory_bytes = std::move(bytes);
  }

  void waits() {
    if (from_.wait_begin.empty()) return;
    std::vector<std::int32_t> begin{0}, all;
    each_row([&](std::size_t row, std::size_t c) {
      for (std::int64_t op = from_.row_begin[c]; op < from_.row_begin[c + 1]; ++op) {
        for (std::int32_t w = from_.wait_begin[at(op)]; w < from_.wait_begin[at(op) + 1]; ++w)
          all.push_back(from_.waits[at(w)] + moved_by(row));
        begin.push_back(static_cast<std::int32_t>(all.size()));
      }
    });
    out_.wait_begin = std::move(begin);
    out_.waits = std::move(all);
  }

  // Left out where the other has none: they take some 100 B per op.
  void operands() {
    if (from_.operand_begin.empty() || like_.operand_begin.empty()) return;
    std::vector<std::vector<std::size_t>> of_class(from_.rows.size());
    std::vector<std::int32_t> place(from_.values.size());
    for (std::size_t v = 0; v < from_.values.size(); ++v) {
      auto& mine = of_class[from_.values[v].row.index()];
      place[v] = static_cast<std::int32_t>(mine.size());
      mine.push_back(v);
    }
    std::vector<std::int32_t> begin{0};
    std::vector<TraceOperand> all;
    std::vector<TraceValue> values;
    each_row([&](std::size_t row, std::size_t c) {
      const auto base = static_cast<std::int32_t>(values.size());
      for (std::int64_t op = from_.row_begin[c]; op < from_.row_begin[c + 1]; ++op) {
        for (std::int32_t k = from_.operand_begin[at(op)]; k < from_.operand_begin[at(op) + 1];
             ++k) {
          TraceOperand operand = from_.operands[at(k)];
          operand.value = base + place[at(operand.value)];
          all.push_back(operand);
        }
        begin.push_back(static_cast<std::int32_t>(all.size()));
      }
      for (const std::size_t v : of_class[c]) {
        TraceValue value = from_.values[v];
        value.row = {static_cast<std::int32_t>(row)};
        for (OpId* op : {&value.define, &value.last_use, &value.hold_until}) {
          if (*op) op->value += moved_by(row);
        }
        values.push_back(value);
      }
    });
    out_.operand_begin = std::move(begin);
    out_.operands = std::move(all);
    out_.values = std::move(values);
  }

  Trace& from_;
  const Trace& like_;
  Trace out_;
};

// Every row of `like` is of a class that `from` has as a row, of as many ops.
bool repeats(const Trace& from, const Trace& like) {
  if (!from.row_class.empty() || like.row_class.empty()) return false;
  if (from.schedule_hash.empty() || from.schedule_hash != like.schedule_hash) return false;
  for (std::size_t row = 0; row < like.rows.size(); ++row) {
    const std::size_t c = at(like.row_class[row]);
    if (c >= from.rows.size() || like.row_begin[row + 1] - like.row_begin[row] !=
                                     from.row_begin[c + 1] - from.row_begin[c]) {
      return false;
    }
  }
  return true;
}

}  // namespace

void align_rows(Trace& a, Trace& b) {
  if (repeats(a, b)) {
    Repeat(a, b).run();
  } else if (repeats(b, a)) {
    Repeat(b, a).run();
  }
}

}  // namespace rehearse::viz
