// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/layout.h"

#include <algorithm>
#include <bit>

namespace rehearse::viz {
namespace {

// Up to this many items per column are read one by one; more: two prefix sums per column.
constexpr std::int64_t kSweepPerSnappedColumn = 3, kSweepPerExactColumn = 8;

struct Columns {
  std::span<const std::int64_t> edges;
  std::int64_t column_ns;  // snapped: exact, 2^j; else the quotient, rounded down
  bool snapped;
  std::int64_t origin;  // snapped: of the grid
  std::int64_t view_begin, view_end;

  std::size_t count() const { return edges.size() - 1; }
  // The column that holds `time`; REQUIRES view_begin <= time < view_end.
  std::size_t at(std::int64_t time) const {
    if (snapped) {
      const auto shift = std::countr_zero(static_cast<std::uint64_t>(column_ns));
      return static_cast<std::size_t>(((time - origin) >> shift) -
                                      ((view_begin - origin) >> shift));
    }
    const std::int64_t span = view_end - view_begin;
    auto c = static_cast<std::size_t>(static_cast<double>(time - view_begin) /
                                      static_cast<double>(span) * static_cast<double>(count()));
    c = std::min(c, count() - 1);
    while (edges[c] > time) --c;  // the quotient of doubles may be one off
    while (edges[c + 1] <= time) ++c;
    return c;
  }
};

void set_edges(const TraceIndex& index, const View& view, Frame& frame, Columns& columns) {
  const std::int64_t begin = view.begin.value, end = view.end.value, span = end - begin;
  columns.view_begin = begin;
  columns.view_end = end;
  columns.snapped = view.snap && span >= view.width_px;
  frame.edges.clear();
  if (columns.snapped) {
    columns.origin = index.trace().begin.value;
    columns.column_ns = 1;  // nearest power of two to a pixel
    while (static_cast<double>(columns.column_ns) * 1.4142 * view.width_px <
           static_cast<double>(span)) {
      columns.column_ns *= 2;
    }
    const std::int64_t step = columns.column_ns;
    const std::int64_t first = columns.origin + ((begin - columns.origin) & ~(step - 1));
    frame.edges.push_back(begin);
    for (std::int64_t edge = first + step; edge < end; edge += step) frame.edges.push_back(edge);
    frame.edges.push_back(end);
  } else {
    const std::int64_t count = std::min<std::int64_t>(view.width_px, span);
    columns.column_ns = span / count;
    const std::int64_t rest = span % count;  // span * c / count without overflow
    for (std::int64_t c = 0; c <= count; ++c) {
      frame.edges.push_back(begin + columns.column_ns * c + rest * c / count);
    }
  }
  columns.edges = frame.edges;
}

class LaneLayout {
 public:
  LaneLayout(const LaneIndex& lane, const View& view, const Columns& columns, Frame& frame,
             bool idle, std::int32_t idle_first)
      : lane_(lane),
        columns_(columns),
        frame_(frame),
        idle_(idle),
        idle_first_(idle_first),
        kinds_(static_cast<std::size_t>(lane.num_kinds)) {
    const std::int64_t span = view.end.value - view.begin.value;
    // end - begin >= kMinBoxPx * span / width, in integers, rounded up.
    min_box_ns_ = std::max<std::int64_t>(1, (kMinBoxPx * span + view.width_px - 1) / view.width_px);
  }

  ColumnTable run() {
    ColumnTable table{.kinds = std::span{lane_.kinds}.first(kinds_), .offset = frame_.used};
    if (lane_.items.count == 0) return table;
    const std::int32_t first = lane_.first_item_after(columns_.view_begin);
    const std::int32_t last = lane_.first_item_after(columns_.view_end - 1);
    const std::int64_t visible = last - first + 1;
    const auto count = static_cast<std::int64_t>(columns_.count());
    const bool on_cells = columns_.snapped && columns_.column_ns >= lane_.cell_ns();
    const bool sweeps =
        visible <= count * (on_cells ? kSweepPerSnappedColumn : kSweepPerExactColumn) ||
        (columns_.snapped && !on_cells);
    table.any = sweeps ? sweep(first) : dense(on_cells, first, last);
    return table;
  }

 private:
  void add_box(std::int32_t i, std::int64_t from, std::int64_t to) {
    frame_.boxes.push_back({.item = idle_ ? idle_first_ + i : lane_.items.op(i),
                            .kind = lane_.items.kind(i),
                            .idle = idle_,
                            .begin = from,
                            .end = to});
  }
  std::int64_t* rows() { return frame_.time.data() + offset_; }
  // A table's entries, which hold anything.
  void reserve() {
    offset_ = frame_.used;
    frame_.used += columns_.count() * kinds_;
    if (frame_.used > frame_.time.size()) frame_.time.resize(2 * frame_.used);
  }

  // Spreads [from, to) over the columns that it touches; `sign` -1 takes it out again.
  void spread(std::size_t slot, std::int64_t from, std::int64_t to, std::int64_t sign) {
    std::size_t c = columns_.at(from);
    std::int64_t* at = rows() + c * kinds_ + slot;
    while (to > columns_.edges[c + 1]) {
      *at += sign * (columns_.edges[c + 1] - from);
      from = columns_.edges[++c];
      at += kinds_;
    }
    *at += sign * (to - from);
  }

  // Every visible item in turn: a box, or its share of a column or two.
  bool sweep(std::int32_t first) {
    bool any = false;
    for (std::int32_t i = first; i < lane_.items.count; ++i) {
      const std::int64_t start = lane_.items.start(i), end = lane_.items.end(i);
      const std::int64_t from = std::max(start, columns_.view_begin);
      const std::int64_t to = std::min(end, columns_.view_end);
      if (from >= columns_.view_end) break;
      if (from >= to) continue;
      if (end - start >= min_box_ns_) {
        add_box(i, from, to);
        continue;
      }
      if (!any) {
        reserve();
        std::fill_n(rows(), columns_.count() * kinds_, 0);
      }
      any = true;
      spread(static_cast<std::size_t>(lane_.slot_of_kind[lane_.items.kind(i)]), from, to, 1);
    }
    return any;
  }

  // Prefix sums at each edge; then the few long items become boxes and leave their columns.
  bool dense(bool on_cells, std::int32_t first, std::int32_t last) {
    reserve();
    if (on_cells && columns_.column_ns < (std::int64_t{1} << 32)) {
      cells();
    } else {
      for (std::size_t c = 0; c < columns_.count(); ++c) {
        lane_.busy(columns_.edges[c], columns_.edges[c + 1], rows() + c * kinds_);
      }
    }
    const auto& long_items = lane_.long_items;
    for (auto at = std::lower_bound(long_items.begin(), long_items.end(), first);
         at != long_items.end() && *at <= last; ++at) {
      const std::int64_t start = lane_.items.start(*at), end = lane_.items.end(*at);
      const std::int64_t from = std::max(start, columns_.view_begin);
      const std::int64_t to = std::min(end, columns_.view_end);
      if (end - start < min_box_ns_ || from >= to) continue;
      add_box(*at, from, to);
      spread(static_cast<std::size_t>(lane_.slot_of_kind[lane_.items.kind(*at)]), from, to, -1);
    }
    return true;
  }

  // Inner edges lie on cell edges: no item is touched. The view's own edges need not.
  void cells() {
    const std::size_t count = columns_.count();
    std::array<std::uint32_t, kNumKinds> low, high;
    lane_.busy_before(columns_.edges[0], low.data());
    std::int64_t* out = rows();
    const std::uint32_t* previous = low.data();
    for (std::size_t c = 0; c + 1 < count; ++c) {
      const std::int64_t cell = (columns_.edges[c + 1] - lane_.origin) >> lane_.shift;
      const std::uint32_t* at =
          lane_.before.data() +
          static_cast<std::size_t>(std::clamp<std::int64_t>(cell, 0, lane_.num_cells)) * kinds_;
      for (std::size_t k = 0; k < kinds_; ++k) *out++ = at[k] - previous[k];
      previous = at;
    }
    lane_.busy_before(columns_.edges[count], high.data());
    for (std::size_t k = 0; k < kinds_; ++k) *out++ = high[k] - previous[k];
  }

  const LaneIndex& lane_;
  const Columns& columns_;
  Frame& frame_;
  bool idle_;
  std::int32_t idle_first_;
  std::size_t kinds_, offset_ = 0;
  std::int64_t min_box_ns_ = 1;
};

}  // namespace

void layout(const TraceIndex& index, const View& view, std::span<const std::int32_t> lanes,
            Frame& frame) {
  const Trace& trace = index.trace();
  frame.view = view;
  frame.lanes.clear();
  frame.boxes.clear();
  frame.used = 0;
  Columns columns{};
  set_edges(index, view, frame, columns);
  for (const std::int32_t lane : lanes) {
    LaneFrame out{.lane = lane, .box_begin = static_cast<std::int32_t>(frame.boxes.size())};
    if (lane % trace.slots == 0) {
      const std::int32_t row = lane / trace.slots;
      const auto idle_first = static_cast<std::int32_t>(
          trace.idle_begin.empty() ? 0 : trace.idle_begin[static_cast<std::size_t>(row)]);
      out.idle = LaneLayout(index.idle(row), view, columns, frame, true, idle_first).run();
    }
    out.ops = LaneLayout(index.lane(lane), view, columns, frame, false, 0).run();
    out.box_end = static_cast<std::int32_t>(frame.boxes.size());
    frame.lanes.push_back(out);
  }
}

OpId op_at(const TraceIndex& index, std::int32_t lane, std::int64_t time) {
  const LaneIndex& at = index.lane(lane);
  const std::int32_t i = at.first_item_after(time);
  if (i >= at.items.count || at.items.start(i) > time) return {};
  return {at.items.op(i)};
}

std::int32_t idle_at(const TraceIndex& index, std::int32_t row, std::int64_t time) {
  const Trace& trace = index.trace();
  const LaneIndex& at = index.idle(row);
  const std::int32_t i = at.first_item_after(time);
  if (i >= at.items.count || at.items.start(i) > time) return -1;
  return static_cast<std::int32_t>(trace.idle_begin[static_cast<std::size_t>(row)]) + i;
}

std::vector<std::int32_t> shown_lanes(const TraceIndex& index, std::int32_t first_row,
                                      std::int32_t last_row, bool all_streams) {
  const Trace& trace = index.trace();
  std::vector<std::int32_t> lanes;
  for (std::int32_t row = std::max(0, first_row); row < std::min(last_row, trace.num_rows());
       ++row) {
    for (std::int32_t slot = 0; slot < (all_streams ? trace.slots : 1); ++slot) {
      const std::int32_t lane = row * trace.slots + slot;
      if (slot == 0 || index.lane(lane).items.count > 0) lanes.push_back(lane);
    }
  }
  return lanes;
}

}  // namespace rehearse::viz
