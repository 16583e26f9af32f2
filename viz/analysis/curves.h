// SPDX-License-Identifier: Apache-2.0
// What holds between the samples of a trace: a row's memory, a link's load. The greatest value and
// the exact integral over any range of time, in O(log n) of its samples: a picture reads a few
// samples per pixel column, however many there are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

// Of blocks of 16, 256, ... entries the first with the greatest value: of any run of entries.
class GreatestOf {
 public:
  struct Entry {
    std::int64_t value = 0, index = -1;  // index -1: none
  };
  template <class Value>
  GreatestOf(std::int64_t count, const Value& value) {
    if (count <= kBlock) return;
    std::vector<Entry>* level = &levels_.emplace_back();
    for (std::int64_t first = 0; first < count; first += kBlock)
      level->push_back(scan(first, std::min(first + kBlock, count), value));
    while (level->size() > kBlock) {
      std::vector<Entry> above;
      for (std::size_t i = 0; i < level->size(); ++i) {
        if (i % kBlock == 0) above.push_back((*level)[i]);
        if ((*level)[i].value > above.back().value) above.back() = (*level)[i];
      }
      level = &levels_.emplace_back(std::move(above));
    }
  }
  // The first greatest of entries [begin, end).
  template <class Value>
  Entry of(std::int64_t begin, std::int64_t end, const Value& value) const {
    Entry best;
    const auto consider = [&](const Entry& entry) {
      if (best.index < 0 || entry.value > best.value) best = entry;
    };
    while (begin < end) {
      std::int64_t size = 1;
      std::size_t level = 0;  // above the entries themselves
      while (level < levels_.size() && begin % (size * kBlock) == 0 &&
             begin + size * kBlock <= end) {
        size *= kBlock;
        ++level;
      }
      consider(level == 0 ? Entry{value(begin), begin}
                          : levels_[level - 1][static_cast<std::size_t>(begin / size)]);
      begin += size;
    }
    return best;
  }

 private:
  static constexpr std::int64_t kBlock = 16;
  template <class Value>
  static Entry scan(std::int64_t begin, std::int64_t end, const Value& value) {
    Entry best{value(begin), begin};
    for (std::int64_t i = begin + 1; i < end; ++i) {
      if (const std::int64_t v = value(i); v > best.value) best = {v, i};
    }
    return best;
  }
  std::vector<std::vector<Entry>> levels_;
};

// How many samples lie before a time, from a grid of time with some sixteen of them per cell.
class SampleTimes {
 public:
  template <class Time>
  SampleTimes(std::int64_t count, const Time& time) : count_(count) {
    if (count == 0) return;
    origin_ = time(0);
    const std::int64_t span = time(count - 1) - origin_ + 1;
    while ((span >> shift_) > count / 16 + 1) ++shift_;
    first_.reserve(static_cast<std::size_t>((span >> shift_) + 2));
    for (std::int64_t i = 0; i < count; ++i) {
      while (origin_ + (static_cast<std::int64_t>(first_.size()) << shift_) <= time(i))
        first_.push_back(i);
    }
    first_.push_back(count);
  }
  // Samples with a time below `at`.
  template <class Time>
  std::int64_t before(std::int64_t at, const Time& time) const {
    if (count_ == 0 || at <= origin_) return 0;
    const auto cell = static_cast<std::size_t>((at - origin_) >> shift_);
    if (cell + 1 >= first_.size()) return count_;
    std::int64_t low = first_[cell], high = first_[cell + 1];
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

// Memory of one row: peak, when, and its parts then.
struct MemoryPeak {
  std::int64_t bytes = 0, time = 0;
  std::vector<std::int64_t> parts;  // in the order of Trace::memory_parts
};

class MemoryCurve {
 public:
  // REQUIRES: `trace` outlives the curve.
  MemoryCurve(const Trace& trace, RankClass row);

  // Samples are indices into Trace::memory_time; -1: none, before the first of the row.
  // The one that holds at a time: of several at one time the last.
  std::int64_t at(std::int64_t time) const;
  // The one with the greatest sum of those that hold at some time of [begin, end), those that
  // another at the same time replaces among them.
  std::int64_t greatest(std::int64_t begin, std::int64_t end) const;
  std::int64_t sum(std::int64_t sample) const;  // [B]
  bool empty() const { return count_ == 0; }
  const MemoryPeak& peak() const { return peak_; }

 private:
  std::int64_t time(std::int64_t i) const {
    return trace_->memory_time[static_cast<std::size_t>(first_ + i)];
  }
  const Trace* trace_;
  std::int64_t first_ = 0, count_ = 0;
  GreatestOf greatest_;
  SampleTimes times_;
  MemoryPeak peak_;
};

// Mean and greatest load of a link over some time, as fractions.
struct LinkUse {
  double mean = 0, peak = 0;
};

class LinkCurve {
 public:
  // REQUIRES: `trace` outlives the curve.
  LinkCurve(const Trace& trace, std::size_t link);

  double at(std::int64_t time) const;
  LinkUse over(std::int64_t begin, std::int64_t end) const;
  // Over each of the ranges between neighbouring edges: what the columns of a lane show. Outside
  // of the step nothing is loaded.
  std::vector<LinkUse> over(std::span<const std::int64_t> edges) const;
  // Load times time over [begin, end) [ppm ns], modulo 2^64: exact below five hours of full load.
  std::uint64_t integral(std::int64_t begin, std::int64_t end) const {
    return before(end) - before(begin);
  }
  bool loaded() const { return loaded_; }  // at any time

 private:
  static constexpr std::int64_t kBlock = 16;
  std::int64_t time(std::int64_t i) const { return samples_[static_cast<std::size_t>(i)].time; }
  std::int64_t until(std::int64_t i) const {
    return i + 1 < count_ ? time(i + 1) : std::max(end_, time(i));
  }
  std::int64_t load(std::int64_t i) const;          // [ppm], 0 to 10^6
  std::int64_t held(std::int64_t i) const;          // the same; 0 where it holds for no time
  std::uint64_t before(std::int64_t time) const;    // integral from the step's begin on
  std::int64_t greatest(std::int64_t begin, std::int64_t end) const;  // [ppm]

  std::span<const LinkSample> samples_;
  std::int64_t count_ = 0, begin_ = 0, end_ = 0;  // of samples; of the step [ns]
  GreatestOf greatest_;
  SampleTimes times_;
  std::vector<std::uint64_t> sums_;  // integral before each block of samples
  bool loaded_ = false;
};

}  // namespace rehearse::viz
