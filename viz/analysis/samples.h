// SPDX-License-Identifier: Apache-2.0
// Samples over time that are asked for ranges: the greatest of a run, those before a time, and the
// greatest in cells of time. A picture reads a few entries per pixel column, however many samples
// there are.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace rehearse::viz {

// Of blocks of 8, 64, ... entries the first with the greatest value: of any run of entries. A block
// that a run cuts is read only where the part inside may have more than whole blocks have.
class GreatestOf {
 public:
  struct Entry {
    std::int64_t value = 0, index = -1;  // index -1: none
  };
  template <class Value>
  GreatestOf(std::int64_t count, const Value& value) {
    for (std::int64_t below = count; below > kBlock; below = levels_.back().count()) {
      const std::size_t size = levels_.size();
      Level level;
      level.values.reserve(static_cast<std::size_t>((below + kBlock - 1) / kBlock));
      level.offsets.reserve(level.values.capacity());
      for (std::int64_t first = 0; first < below; first += kBlock) {
        const Entry best = scan(size, first, std::min(first + kBlock, below), value);
        level.values.push_back(best.value);
        level.offsets.push_back(static_cast<std::uint8_t>(best.index - first));
      }
      levels_.push_back(std::move(level));
    }
  }
  // The first greatest of entries [begin, end).
  template <class Value>
  Entry of(std::int64_t begin, std::int64_t end, const Value& value) const {
    return at_level(0, begin, end, value);
  }

 private:
  static constexpr std::int64_t kBlock = 8;
  struct Level {  // per block of the level below
    std::vector<std::int64_t> values;
    std::vector<std::uint8_t> offsets;  // of the first greatest in its block
    std::int64_t count() const { return static_cast<std::int64_t>(values.size()); }
  };
  // Level 0 are the entries, level n + 1 is levels_[n]; indices are those of the level.
  template <class Value>
  std::int64_t value_at(std::size_t level, std::int64_t i, const Value& value) const {
    return level == 0 ? value(i) : levels_[level - 1].values[static_cast<std::size_t>(i)];
  }
  template <class Value>
  Entry scan(std::size_t level, std::int64_t begin, std::int64_t end, const Value& value) const {
    Entry best{value_at(level, begin, value), begin};
    for (std::int64_t i = begin + 1; i < end; ++i) {
      if (const std::int64_t v = value_at(level, i, value); v > best.value) best = {v, i};
    }
    return best;
  }
  template <class Value>
  Entry at_level(std::size_t level, std::int64_t begin, std::int64_t end,
                 const Value& value) const {
    if (begin >= end) return {};
    if (level == levels_.size()) return scan(level, begin, end, value);
    const Level& blocks = levels_[level];
    const auto greatest_in = [&](std::int64_t block) {
      const auto b = static_cast<std::size_t>(block);
      return Entry{blocks.values[b], block * kBlock + blocks.offsets[b]};
    };
    const std::int64_t first = (begin + kBlock - 1) / kBlock, last = end / kBlock;
    Entry best;
    if (first < last) best = greatest_in(at_level(level + 1, first, last, value).index);
    // Of entries [from, to), which lie in one block: before those of `best`, or behind.
    const auto consider = [&](std::int64_t from, std::int64_t to, bool before) {
      Entry part = greatest_in(from / kBlock);
      const auto better = [&] {
        return best.index < 0 || part.value > best.value || (before && part.value == best.value);
      };
      if (!better()) return;
      if (part.index < from || part.index >= to) part = scan(level, from, to, value);
      if (better()) best = part;
    };
    if (begin < first * kBlock) consider(begin, std::min(end, first * kBlock), true);
    if (last >= first && last * kBlock < end) consider(last * kBlock, end, false);
    return best;
  }
  std::vector<Level> levels_;
};

// How many samples lie before a time, from a grid of time with some sixteen of them per cell. Its
// cells begin at `anchor` plus multiples of a power of two: the snapped columns of a picture, which
// do too, end where cells do, and no sample is read for them.
class SampleTimes {
 public:
  template <class Time>
  SampleTimes(std::int64_t count, std::int64_t anchor, const Time& time) : count_(count) {
    if (count == 0) return;
    const std::int64_t span = time(count - 1) - time(0) + 1;
    while ((span >> shift_) > count / 16 + 1) ++shift_;
    origin_ = anchor + ((time(0) - anchor) >> shift_ << shift_);
    first_.reserve(static_cast<std::size_t>((span >> shift_) + 3));
    for (std::int64_t i = 0; i < count; ++i) {
      while (origin_ + (static_cast<std::int64_t>(first_.size()) << shift_) <= time(i))
        first_.push_back(i);
    }
    first_.push_back(count);
  }
  // Cells are of 2^shift() ns; those that hold samples, and one behind, are [0, cells()).
  std::int32_t shift() const { return shift_; }
  std::int64_t origin() const { return origin_; }  // where cell 0 begins
  std::int64_t cells() const { return static_cast<std::int64_t>(first_.size()); }
  // Samples with a time below `at`.
  template <class Time>
  std::int64_t before(std::int64_t at, const Time& time) const {
    if (count_ == 0 || at <= origin_) return 0;
    const auto cell = static_cast<std::size_t>((at - origin_) >> shift_);
    if (cell + 1 >= first_.size()) return count_;
    std::int64_t low = first_[cell];
    if (origin_ + (static_cast<std::int64_t>(cell) << shift_) == at) return low;
    std::int64_t high = first_[cell + 1];
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (time(middle) < at) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  std::int64_t count_ = 0, origin_ = 0;
  std::int32_t shift_ = 0;
  std::vector<std::int64_t> first_;  // per cell: the first sample not before it; then their count
};

// Of cells of time that become twice as long from level to level, the first greatest of the samples
// that hold in each: a snapped column of a picture is such a cell, so that it reads one entry.
class GreatestInCells {
 public:
  GreatestInCells() = default;
  // Cells as those of `times`, which count from `anchor`, and some that are shorter, down to some
  // two samples each. `time` and `value` of a sample; there are fewer than 2^31.
  template <class Time, class Value>
  GreatestInCells(const SampleTimes& times, std::int64_t count, std::int64_t anchor,
                  const Time& time, const Value& value)
      : anchor_(anchor), shift_(std::max(times.shift() - kFiner, 0)) {
    if (count == 0) return;
    const std::int64_t length = std::int64_t{1} << shift_;
    Level base{.first = (times.origin() - anchor) >> shift_};
    base.samples.reserve(static_cast<std::size_t>(times.cells() << (times.shift() - shift_)));
    std::int64_t begin = times.origin();
    for (std::int64_t next = 0; next < count; begin += length) {
      // What began earlier holds until the first that begins here.
      std::int64_t best = next > 0 && time(next) > begin ? next - 1 : -1;
      for (; next < count && time(next) < begin + length; ++next) {
        if (best < 0 || value(next) > value(best)) best = next;
      }
      base.samples.push_back(static_cast<std::int32_t>(best));
    }
    last_ = static_cast<std::int32_t>(count - 1);
    levels_.push_back(std::move(base));
    while (levels_.back().count() > 2) {
      const Level& below = levels_.back();
      Level level{.first = below.first >> 1};
      for (std::int64_t cell = level.first; 2 * cell < below.first + below.count(); ++cell) {
        const std::int32_t early = sample_of(below, 2 * cell),
                           late = sample_of(below, 2 * cell + 1);
        const bool more = late >= 0 && (early < 0 || value(late) > value(early));
        level.samples.push_back(more ? late : early);
      }
      levels_.push_back(std::move(level));
    }
  }
  // Whether [begin, end) is a cell of some level; then `sample` is its entry.
  bool find(std::int64_t begin, std::int64_t end, std::int64_t& sample) const {
    const auto length = static_cast<std::uint64_t>(end - begin);
    if (!std::has_single_bit(length)) return false;
    const std::int32_t shift = std::countr_zero(length);
    const auto level = static_cast<std::size_t>(shift - shift_);
    if (shift < shift_ || level >= levels_.size()) return false;
    const std::int64_t since = begin - anchor_;
    if ((since & (end - begin - 1)) != 0) return false;
    sample = sample_of(levels_[level], since >> shift);
    return true;
  }

 private:
  static constexpr std::int32_t kFiner = 3;
  struct Level {
    std::int64_t first = 0;             // its first cell, as counted from the anchor
    std::vector<std::int32_t> samples;  // per cell
    std::int64_t count() const { return static_cast<std::int64_t>(samples.size()); }
  };
  std::int32_t sample_of(const Level& level, std::int64_t cell) const {
    if (cell < level.first) return -1;
    if (cell >= level.first + level.count()) return last_;
    return level.samples[static_cast<std::size_t>(cell - level.first)];
  }
  std::int64_t anchor_ = 0;
  std::int32_t shift_ = 0, last_ = -1;  // last_: what goes on to hold behind all cells
  std::vector<Level> levels_;
};

}  // namespace rehearse::viz
