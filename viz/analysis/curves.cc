// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/curves.h"

#include <algorithm>
#include <array>

namespace rehearse::viz {
namespace {

std::int64_t first_sample(const Trace& trace, RankClass row) {
  return trace.memory_begin.empty() ? 0 : trace.memory_begin[row.index()];
}
std::int64_t num_samples(const Trace& trace, RankClass row) {
  return trace.memory_begin.empty()
             ? 0
             : trace.memory_begin[row.index() + 1] - first_sample(trace, row);
}
// Of values over time, each from its time to the next one's, the first greatest of those that hold
// in a range: entries [from, to) begin in it, `from` of them at its begin if `begins`.
template <class Value, class Begins>
GreatestOf::Entry greatest_held(const GreatestOf& greatest, std::int64_t from, std::int64_t to,
                                const Value& value, const Begins& begins) {
  if (from == 0) return greatest.of(from, to, value);
  // What began earlier holds until the first of these.
  const GreatestOf::Entry most = greatest.of(from - 1, to, value);
  return most.index == from - 1 && begins() ? greatest.of(from, to, value) : most;
}
std::int64_t sum_of(const Trace& trace, std::int64_t sample) {
  const std::size_t parts = trace.memory_parts.size();
  std::int64_t sum = 0;
  for (std::size_t part = 0; part < parts; ++part)
    sum += trace.memory_bytes[static_cast<std::size_t>(sample) * parts + part];
  return sum;
}

std::span<const LinkSample> samples_of(const Trace& trace, std::size_t link) {
  const auto first = static_cast<std::size_t>(trace.link_begin[link]);
  return trace.link_samples.view().subspan(
      first, static_cast<std::size_t>(trace.link_begin[link + 1]) - first);
}
std::int64_t ppm_of(const LinkSample& sample) {
  return std::clamp<std::int64_t>(sample.load_ppm, 0, 1'000'000);
}
// The load of a sample, 0 where the next one replaces it at once.
std::int64_t held_ppm(std::span<const LinkSample> samples, std::size_t i) {
  const bool replaced = i + 1 < samples.size() && samples[i + 1].time == samples[i].time;
  return replaced ? 0 : ppm_of(samples[i]);
}

}  // namespace

MemoryCurve::MemoryCurve(const Trace& trace, RankClass row)
    : trace_(&trace),
      first_(first_sample(trace, row)),
      count_(num_samples(trace, row)),
      greatest_(count_, [&](std::int64_t i) { return sum_of(trace, first_ + i); }),
      times_(count_, trace.begin.value, [this](std::int64_t i) { return time(i); }),
      cells_(
          times_, count_, trace.begin.value, [this](std::int64_t i) { return time(i); },
          [this](std::int64_t i) { return sum(first_ + i); }) {
  if (count_ == 0) return;
  const std::size_t parts = trace.memory_parts.size();
  const auto most = greatest_.of(0, count_, [this](std::int64_t i) { return sum(first_ + i); });
  peak_ = {.bytes = most.value, .time = time(most.index)};
  for (std::size_t part = 0; part < parts; ++part) {
    peak_.parts.push_back(
        trace.memory_bytes[static_cast<std::size_t>(first_ + most.index) * parts + part]);
  }
}

std::int64_t MemoryCurve::sum(std::int64_t sample) const {
  return sum_of(*trace_, sample);
}

std::int64_t MemoryCurve::at(std::int64_t when) const {
  const std::int64_t i = before(when + 1) - 1;
  return i < 0 ? -1 : first_ + i;
}

std::int64_t MemoryCurve::greatest(std::int64_t begin, std::int64_t end) const {
  return greatest(std::array{begin, end})[0];
}

std::int64_t MemoryCurve::held(std::int64_t begin, std::int64_t from, std::int64_t to) const {
  if (from == to) return from == 0 ? -1 : first_ + from - 1;  // none begins in it
  const std::int64_t most =
      greatest_held(
          greatest_, from, to, [this](std::int64_t sample) { return sum(first_ + sample); },
          [&] { return from < count_ && time(from) == begin; })
          .index;
  return most < 0 ? -1 : first_ + most;
}

std::vector<std::int64_t> MemoryCurve::greatest(std::span<const std::int64_t> edges) const {
  std::vector<std::int64_t> samples;
  if (edges.size() < 2) return samples;
  samples.reserve(edges.size() - 1);
  std::int64_t from = -1;  // samples before the column; -1: not known
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    std::int64_t sample = -1;
    if (cells_.find(edges[i], edges[i + 1], sample)) {
      from = -1;
      if (sample >= 0) sample += first_;
    } else {
      if (from < 0) from = before(edges[i]);
      const std::int64_t to = before(edges[i + 1]);
      sample = held(edges[i], from, to);
      from = to;
    }
    samples.push_back(sample);
  }
  return samples;
}

LinkCurve::LinkCurve(const Trace& trace, std::size_t link)
    : samples_(samples_of(trace, link)),
      count_(static_cast<std::int64_t>(samples_.size())),
      begin_(trace.begin.value),
      end_(trace.end.value),
      greatest_(count_,
                [this](std::int64_t i) { return held_ppm(samples_, static_cast<std::size_t>(i)); }),
      times_(count_, trace.begin.value, [this](std::int64_t i) { return time(i); }) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count_; ++i) {
    if (i % kBlock == 0) sums_.push_back(sum);
    sum += static_cast<std::uint64_t>(load(i)) * static_cast<std::uint64_t>(until(i) - time(i));
  }
  loaded_ = integral(begin_, end_) > 0;
}

std::int64_t LinkCurve::load(std::int64_t i) const {
  return ppm_of(samples_[static_cast<std::size_t>(i)]);
}
std::int64_t LinkCurve::held(std::int64_t i) const {
  return held_ppm(samples_, static_cast<std::size_t>(i));
}

double LinkCurve::at(std::int64_t when) const {
  if (when < begin_ || when >= end_) return 0;
  const std::int64_t i = samples_before(when + 1) - 1;
  return i < 0 ? 0 : static_cast<double>(load(i)) / 1e6;
}

std::uint64_t LinkCurve::before(std::int64_t when, std::int64_t last) const {
  if (last < 0) return 0;
  std::uint64_t sum = sums_[static_cast<std::size_t>(last / kBlock)];
  for (std::int64_t i = last / kBlock * kBlock; i <= last; ++i) {
    sum += static_cast<std::uint64_t>(load(i)) *
           static_cast<std::uint64_t>(std::min(until(i), when) - time(i));
  }
  return sum;
}

LinkUse LinkCurve::over(std::int64_t begin, std::int64_t end) const {
  return over(std::array{begin, end})[0];
}

std::vector<LinkUse> LinkCurve::over(std::span<const std::int64_t> edges) const {
  std::vector<LinkUse> uses;
  if (edges.size() < 2) return uses;
  uses.reserve(edges.size() - 1);
  const auto within = [this](std::int64_t edge) { return std::clamp(edge, begin_, end_); };
  std::int64_t from = samples_before(within(edges[0]));
  std::uint64_t low = before(within(edges[0]), from - 1);
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    const std::int64_t begin = within(edges[i]), end = within(edges[i + 1]);
    const std::int64_t to = samples_before(end);
    const std::uint64_t high = before(end, to - 1);
    const auto width = static_cast<double>(edges[i + 1] - edges[i]);
    const double mean =
        high == low || width <= 0 ? 0 : static_cast<double>(high - low) / 1e6 / width;
    const std::int64_t peak =
        begin == end ? 0
                     : greatest_held(
                           greatest_, from, to, [this](std::int64_t s) { return held(s); },
                           [&] { return from < count_ && time(from) == begin; })
                           .value;
    uses.push_back({mean, static_cast<double>(std::max<std::int64_t>(0, peak)) / 1e6});
    from = to;
    low = high;
  }
  return uses;
}

}  // namespace rehearse::viz
