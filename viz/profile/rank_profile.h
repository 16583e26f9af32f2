// SPDX-License-Identifier: Apache-2.0
// What one rank did, moment by moment, and its steps: what every kind of profile becomes.
//
// A rank computes, or it does not; a stretch in which it does not is explained backwards from its
// end, as idle time of a trace is (viz/analysis/analysis.h): by the exchange that ended last, while
// that was under way, and before it by the one that had ended before. What is left loads data, or
// is the host's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rehearse::viz {

enum class Doing : std::uint8_t { Computes, Communicates, LoadsData, Host };

// A collective, one end of a transfer, or a copy, from when the rank came to it to its end.
struct Exchange {
  std::int64_t begin = 0, end = 0;  // [ns], on the clock that the profiles share
  std::string meeting;  // whom it meets: exchanges of this word are counted in each rank, and the
                        // k-th of all of them meet; empty: nobody, or not said
  bool whole = true;    // all ranks that have the word meet; else those whose exchanges overlap
};

// [begin, end) in which a rank does one thing. Moments in one row, without gaps.
struct Moment {
  std::int64_t begin = 0, end = 0;
  Doing doing = Doing::Host;
  std::int32_t exchange = -1;  // while it communicates: which
};

struct ProfiledStep {
  std::int64_t number = 0, begin = 0, end = 0;
};

struct EventTotal {
  std::int64_t events = 0, time = 0;  // time: the sum of their durations [ns], at most 2^62

  void add(std::int64_t duration) {
    constexpr std::int64_t kMost = std::int64_t{1} << 62;
    ++events;
    time += std::min(duration, kMost - time);
  }
};

struct RankProfile {
  std::int32_t rank = -1;
  std::string path;  // for errors
  bool devices = false;
  std::vector<ProfiledStep> steps;  // in order of time
  std::vector<Moment> moments;
  std::vector<Exchange> exchanges;   // in order of begin
  std::vector<EventTotal> families;  // of what communicates, by Families' index
  EventTotal kernels, operators;     // of the file: device kernels, host operators
};

// The number of a range that marks a step: "ProfilerStep#7" (torch/profiler/profiler.py),
// "iteration 7", "step_7"; -1: it marks none.
std::int64_t step_number(std::string_view range);

// The number that a file's name ends in, before its first dot: "trace_rank3.json.gz"; -1: in none.
std::int32_t rank_in_name(const std::string& path);

// The meeting of a kernel that communicates, where nobody says with whom: its name without
// arguments, to be met by those that run at one time. Empty for a transfer, whose ends are two of
// many.
std::string meeting_by_name(std::string_view kernel);

// Takes what a rank did in any order and makes its moments. An exchange may be over at once: it is
// counted.
class ProfileBuilder {
 public:
  void computes(std::int64_t begin, std::int64_t end) { computing_.emplace_back(begin, end); }
  void loads(std::int64_t begin, std::int64_t end) { loading_.emplace_back(begin, end); }
  void exchanges(Exchange exchange) { profile_.exchanges.push_back(std::move(exchange)); }
  // Of several ranges with one number the first counts, as far as it goes.
  void step(std::int64_t number, std::int64_t begin, std::int64_t end);

  RankProfile& profile() { return profile_; }
  // Where no step was marked, everything is step 0. Times are moved by `base`. The builder is
  // spent.
  RankProfile finish(std::int64_t base);

 private:
  using Span = std::pair<std::int64_t, std::int64_t>;
  void explain(std::int64_t begin, std::int64_t end);
  void host(std::int64_t begin, std::int64_t end);
  void add(std::int64_t begin, std::int64_t end, Doing doing, std::int32_t exchange = -1);

  RankProfile profile_;
  std::vector<Span> computing_, loading_;
  std::vector<std::int32_t> by_end_;  // exchanges
};

}  // namespace rehearse::viz
