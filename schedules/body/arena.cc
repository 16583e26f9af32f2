// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/arena.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "schedules/body/sizes.h"

namespace rehearse {
namespace {

std::int64_t peak_of(std::span<const ArenaBlock> blocks) {
  std::vector<std::pair<std::int32_t, std::int64_t>> changes;  // (time, bytes)
  changes.reserve(2 * blocks.size());
  for (const ArenaBlock& block : blocks) {
    changes.emplace_back(block.begin, aligned(block.bytes));
    changes.emplace_back(block.end + 1, -aligned(block.bytes));
  }
  std::sort(changes.begin(), changes.end());  // at one time, frees (negative) come first
  std::int64_t live = 0, peak = 0;
  for (const auto& [time, bytes] : changes) peak = std::max(peak, live += bytes);
  return peak;
}

struct Span {  // bytes [begin, end) of the arena
  std::int64_t begin = 0, end = 0;
};

// Takes what is taken from the lowest on: the smallest gap that is large enough, the lowest of
// equal ones. Only the union of what is taken counts: how it is divided into spans does not.
class BestFit {
 public:
  explicit BestFit(std::int64_t bytes) : bytes_(bytes) {}
  void take(Span span) {
    const std::int64_t gap = span.begin - end_;
    if (gap >= bytes_ && (offset_ < 0 || gap < smallest_)) {
      offset_ = end_;
      smallest_ = gap;
    }
    end_ = std::max(end_, span.end);
  }
  std::int64_t offset() const { return offset_ < 0 ? end_ : offset_; }

 private:
  std::int64_t bytes_, end_ = 0, offset_ = -1, smallest_ = 0;  // end of what is taken; the best gap
};

// Few placed blocks: by offset, so that one scan over those alive together finds the gaps.
class ByOffset {
 public:
  explicit ByOffset(std::span<const ArenaBlock> blocks) { placed_.reserve(blocks.size()); }

  std::int64_t offset_for(const ArenaBlock& block) const {
    BestFit fit(aligned(block.bytes));
    for (const Placed& other : placed_) {
      if (other.last < block.begin || other.first > block.end) continue;
      fit.take(other.span);
    }
    return fit.offset();
  }
  void put(const ArenaBlock& block, Span span) {
    const auto after = std::upper_bound(
        placed_.begin(), placed_.end(), span.begin,
        [](std::int64_t value, const Placed& other) { return value < other.span.begin; });
    placed_.insert(after, {span, block.begin, block.end});
  }

 private:
  struct Placed {
    Span span;
    std::int32_t first, last;
  };
  std::vector<Placed> placed_;
};

// Many: a tree over time. A node stands for a stretch of times, and knows what is taken during all
// of it by blocks that it is the largest whole stretch of (`whole`), and what is taken at any time
// of it (`any`), as disjoint spans. Blocks lie close together, so these are few, however many the
// blocks.
//
// Times are numbered by the blocks' beginnings: of two blocks that are alive together, the later
// one's beginning is a time at which both are.
class ByTime {
 public:
  explicit ByTime(std::span<const ArenaBlock> blocks) {
    begins_.reserve(blocks.size());
    for (const ArenaBlock& block : blocks) begins_.push_back(block.begin);
    std::sort(begins_.begin(), begins_.end());
    begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
    leaves_ = std::bit_ceil(begins_.size());
    nodes_.resize(2 * leaves_);
  }

  std::int64_t offset_for(const ArenaBlock& block) {
    taken_.clear();
    const auto see = [&](const Spans& spans) {
      taken_.insert(taken_.end(), spans.begin(), spans.end());
    };
    for_each_node(
        block, [&](Node& node) { see(node.any); }, [&](Node& node) { see(node.whole); });
    std::sort(taken_.begin(), taken_.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    BestFit fit(aligned(block.bytes));
    for (const Span& span : taken_) fit.take(span);
    return fit.offset();
  }
  void put(const ArenaBlock& block, Span span) {
    for_each_node(
        block,
        [&](Node& node) {
          add(node.whole, span);
          add(node.any, span);
        },
        [&](Node& node) { add(node.any, span); });
  }

 private:
  using Spans = std::vector<Span>;  // disjoint, not even touching, the lowest first
  struct Node {
    Spans whole, any;
  };

  // Joins the span with those that it meets.
  static void add(Spans& spans, Span span) {
    const auto first =
        std::lower_bound(spans.begin(), spans.end(), span.begin,
                         [](const Span& one, std::int64_t begin) { return one.end < begin; });
    auto last = first;
    for (; last != spans.end() && last->begin <= span.end; ++last) {
      span = {std::min(span.begin, last->begin), std::max(span.end, last->end)};
    }
    if (first == last) {
      spans.insert(first, span);
    } else {
      *first = span;
      spans.erase(first + 1, last);
    }
  }

  // The largest nodes that make up the block's times, and all those above these.
  template <class Within, class Above>
  void for_each_node(const ArenaBlock& block, Within within, Above above) {
    const auto from = std::lower_bound(begins_.begin(), begins_.end(), block.begin);
    const auto to = std::upper_bound(from, begins_.end(), block.end);
    descend(1, 0, leaves_, static_cast<std::size_t>(from - begins_.begin()),
            static_cast<std::size_t>(to - begins_.begin()), within, above);
  }
  // Visits the times of [low, end) below the node, which stands for `size` times from `first` on.
  template <class Within, class Above>
  void descend(std::size_t node, std::size_t first, std::size_t size, std::size_t low,
               std::size_t end, Within& within, Above& above) {
    if (low <= first && first + size <= end) return within(nodes_[node]);
    above(nodes_[node]);
    const std::size_t half = size / 2, middle = first + half;
    if (low < middle) descend(2 * node, first, half, low, end, within, above);
    if (end > middle) descend(2 * node + 1, middle, half, low, end, within, above);
  }

  std::vector<std::int32_t> begins_;
  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;  // children of i: 2i, 2i + 1; the root is 1
  Spans taken_;
};

template <class Placed>
void place(std::span<const ArenaBlock> blocks, std::span<const std::int32_t> order,
           ArenaPlan& plan) {
  Placed placed(blocks);
  for (const std::int32_t index : order) {
    const ArenaBlock& block = blocks[static_cast<std::size_t>(index)];
    const std::int64_t offset = placed.offset_for(block);
    const Span span{offset, offset + aligned(block.bytes)};
    placed.put(block, span);
    plan.offset[static_cast<std::size_t>(index)] = offset;
    plan.bytes = std::max(plan.bytes, span.end);
  }
}

}  // namespace

ArenaPlan plan_arena(std::span<const ArenaBlock> blocks) {
  constexpr std::size_t kFew = 4096;  // up to here the scan is the faster of the two
  ArenaPlan plan;
  plan.offset.assign(blocks.size(), 0);
  std::vector<std::int32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int32_t i) -> const ArenaBlock& {
    return blocks[static_cast<std::size_t>(i)];
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if (at(a).bytes != at(b).bytes) return at(a).bytes > at(b).bytes;
    return at(a).begin < at(b).begin;
  });
  if (blocks.size() <= kFew) {
    place<ByOffset>(blocks, order, plan);
  } else {
    place<ByTime>(blocks, order, plan);
  }
  plan.live_peak = peak_of(blocks);
  return plan;
}

}  // namespace rehearse
