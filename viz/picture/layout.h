// SPDX-License-Identifier: Apache-2.0
// Trace + view -> what each lane shows. Pure: no window, no colours, no file.
//
// An item (an op, or an idle span) at least kMinBoxPx wide is a box. Narrower ones share pixel
// columns, which hold the exact time of each kind in them. So nothing is ever hidden: boxes and
// columns of a lane together cover exactly what its items cover inside the view, in integer ns.
#pragma once

#include <span>
#include <vector>

#include "viz/analysis/index.h"

namespace rehearse::viz {

inline constexpr std::int64_t kMinBoxPx = 3;  // narrower than this, an item has no readable edge

struct View {
  Nanoseconds begin{}, end{};  // visible time; REQUIRES begin < end
  std::int32_t width_px = 1;   // REQUIRES width_px >= 1
  // Columns on a grid of 2^j ns from the trace's begin, 0.7 to 1.4 px wide, so that a pan does not
  // shimmer and no item is touched when zoomed out. False: exactly one column per pixel.
  bool snap = false;

  double x_of(std::int64_t time) const {
    return static_cast<double>(time - begin.value) * width_px /
           static_cast<double>(end.value - begin.value);
  }
  std::int64_t time_at(double x) const {
    return begin.value +
           static_cast<std::int64_t>(x / width_px * static_cast<double>(end.value - begin.value));
  }
};

struct Box {
  std::int32_t item = 0;  // op id; idle boxes: index into Trace::idle
  Kind kind{};
  bool idle = false;
  std::int64_t begin = 0, end = 0;  // clipped to the view [ns]
};

// Narrow items of one lane: time_of(column)[k] is the time of kinds[k] in that column.
struct ColumnTable {
  std::span<const Kind> kinds;
  std::size_t offset = 0;  // into Frame::time
  bool any = false;        // false: all zero, and not stored
};

struct LaneFrame {
  std::int32_t lane = 0;                    // row * slots + slot
  std::int32_t box_begin = 0, box_end = 0;  // into Frame::boxes, in order of time per source
  ColumnTable ops, idle;                    // idle: the row's first lane only
};

struct Frame {
  View view;
  std::vector<std::int64_t> edges;  // column c is [edges[c], edges[c+1]) [ns], within the view
  std::vector<LaneFrame> lanes;
  std::vector<Box> boxes;
  std::vector<std::int64_t> time;  // of the tables one after another; what is behind is of no frame
  std::size_t used = 0;            // entries of `time` that are

  std::size_t num_columns() const { return edges.empty() ? 0 : edges.size() - 1; }
  std::span<const std::int64_t> column(const ColumnTable& table, std::size_t c) const {
    const std::size_t n = table.kinds.size();
    return table.any ? std::span{time}.subspan(table.offset + c * n, n)
                     : std::span<const std::int64_t>{};
  }
  std::span<const Box> boxes_of(const LaneFrame& lane) const {
    return std::span{boxes}.subspan(static_cast<std::size_t>(lane.box_begin),
                                    static_cast<std::size_t>(lane.box_end - lane.box_begin));
  }
};

// Lays out `lanes` in their order. `frame` is filled anew; giving back the last one saves its
// memory. Allocates nothing then.
void layout(const TraceIndex& index, const View& view, std::span<const std::int32_t> lanes,
            Frame& frame);

// The op under a time on a lane; none: idle there.
OpId op_at(const TraceIndex& index, std::int32_t lane, std::int64_t time);
// Index into Trace::idle of the span under a time; -1: none.
std::int32_t idle_at(const TraceIndex& index, std::int32_t row, std::int64_t time);

// Lanes worth showing: those with ops, of rows [first, last); `all_streams` false: first lanes
// only.
std::vector<std::int32_t> shown_lanes(const TraceIndex& index, std::int32_t first_row,
                                      std::int32_t last_row, bool all_streams);

}  // namespace rehearse::viz
