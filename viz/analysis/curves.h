// SPDX-License-Identifier: Apache-2.0
// What holds between the samples of a trace: a row's memory, a link's load. The greatest value and
// the exact integral over any range of time, in O(log n) of its samples: a picture reads a few
// entries per pixel column, however many samples there are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/trace/trace.h"
#include "viz/analysis/samples.h"

namespace rehearse::viz {

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
  // The same of each range between neighbouring edges, which ascend.
  std::vector<std::int64_t> greatest(std::span<const std::int64_t> edges) const;
  std::int64_t sum(std::int64_t sample) const;  // [B]
  bool empty() const { return count_ == 0; }
  const MemoryPeak& peak() const { return peak_; }

 private:
  std::int64_t time(std::int64_t i) const {
    return trace_->memory_time[static_cast<std::size_t>(first_ + i)];
  }
  std::int64_t before(std::int64_t at) const {
    return times_.before(at, [this](std::int64_t i) { return time(i); });
  }
  // The one of [begin, end), `from` and `to` samples being before either.
  std::int64_t held(std::int64_t begin, std::int64_t from, std::int64_t to) const;

  const Trace* trace_;
  std::int64_t first_ = 0, count_ = 0;
  GreatestOf greatest_;
  SampleTimes times_;
  GreatestInCells cells_;
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
  std::int64_t load(std::int64_t i) const;  // [ppm], 0 to 10^6
  std::int64_t held(std::int64_t i) const;  // the same; 0 where it holds for no time
  // The integral from the step's begin on, `last` being the last sample before `time`.
  std::uint64_t before(std::int64_t time, std::int64_t last) const;
  std::uint64_t before(std::int64_t time) const {
    time = std::clamp(time, begin_, end_);
    return before(time, samples_before(time) - 1);
  }
  std::int64_t samples_before(std::int64_t at) const {
    return times_.before(at, [this](std::int64_t i) { return time(i); });
  }

  std::span<const LinkSample> samples_;
  std::int64_t count_ = 0, begin_ = 0, end_ = 0;  // of samples; of the step [ns]
  GreatestOf greatest_;
  SampleTimes times_;
  std::vector<std::uint64_t> sums_;  // integral before each block of samples
  bool loaded_ = false;
};

}  // namespace rehearse::viz
