// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/order_check.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/cuda_double/device.h"

namespace rehearse::cuda_double {
namespace {

// One piece of work on a stream.
struct Moment {
  std::size_t stream = 0;
  std::uint64_t count = 0;
  std::string_view by;
};

// What touched a stretch of memory last: the last write, and the reads since.
struct Last {
  const char* end = nullptr;
  Moment written;
  std::vector<Moment> read;
};
// Stretches that all was done to alike, by where they begin; none meets another.
using Memory = std::map<const char*, Last>;

std::mutex mutex;
std::size_t timelines = 0;
Memory memory;
std::string first_found;
thread_local Clock host;

bool before(const Moment& moment, const Clock& clock) {
  return moment.count == 0 ||
         (moment.stream < clock.size() && moment.count <= clock[moment.stream]);
}

void found(const Moment& one, const char* did, const Moment& other, const char* does) {
  if (!first_found.empty()) return;
  first_found = std::string(other.by) + " on stream " + std::to_string(other.stream) + ' ' + does +
                " what " + std::string(one.by) + " on stream " + std::to_string(one.stream) + ' ' +
                did + ", and nothing orders them";
}

void check(const Last& array, const Access& access, const Moment& now, const Clock& clock) {
  const char* does = access.writes ? "writes" : "reads";
  if (!before(array.written, clock)) found(array.written, "wrote", now, does);
  if (!access.writes) return;
  for (const Moment& read : array.read) {
    if (!before(read, clock)) found(read, "read", now, does);
  }
}

// A stretch begins, or ends, at `at`.
void cut(const char* at) {
  auto next = memory.upper_bound(at);
  if (next == memory.begin()) return;
  const auto own = std::prev(next);
  if (own->first == at || own->second.end <= at) return;
  Last rest = own->second;
  own->second.end = at;
  memory.emplace_hint(next, at, std::move(rest));
}

void note(Last& last, const Access& access, const Moment& now) {
  if (access.writes) {
    last.written = now;
    last.read.clear();
    return;
  }
  std::erase_if(last.read, [&](const Moment& read) { return read.stream == now.stream; });
  last.read.push_back(now);
}

// Calls f with every stretch of what is touched; what nothing has touched becomes one.
template <class F>
void over(const Access& access, F f) {
  const char *begin = access.at, *end = begin + access.bytes;
  cut(begin);
  cut(end);
  for (auto next = memory.lower_bound(begin); begin < end; ++next) {
    if (next == memory.end() || next->first > begin) {
      const char* until = next == memory.end() ? end : std::min(end, next->first);
      next = memory.emplace_hint(next, begin, Last{.end = until, .written = {}, .read = {}});
    }
    f(next->second);
    begin = next->second.end;
  }
}

}  // namespace

void join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size(), 0);
  for (std::size_t k = 0; k < other.size(); ++k) into[k] = std::max(into[k], other[k]);
}

Timeline::Timeline() {
  const std::scoped_lock lock(mutex);
  number_ = timelines++;
}

void Timeline::advance() {
  join(clock_, host);
  if (clock_.size() <= number_) clock_.resize(number_ + 1, 0);
  ++clock_[number_];
}

void Timeline::issue(const Touched& touched) {
  const std::scoped_lock lock(mutex);
  advance();
  const Moment now{number_, clock_[number_], touched.by};
  // A piece of work does not wait for itself: all is held against what was before.
  for (const Access& access : touched.all) {
    over(access, [&](const Last& last) { check(last, access, now, clock_); });
  }
  for (const Access& access : touched.all) {
    over(access, [&](Last& last) { note(last, access, now); });
  }
}

Clock Timeline::record() {
  const std::scoped_lock lock(mutex);
  advance();
  return clock_;
}

void Timeline::wait(const Clock& event) {
  const std::scoped_lock lock(mutex);
  join(clock_, event);
}

void host_waited(const Clock& event) {
  join(host, event);
}

void forget(const void* block, std::size_t bytes) {
  const std::scoped_lock lock(mutex);
  const char* begin = static_cast<const char*>(block);
  cut(begin);
  cut(begin + bytes);
  memory.erase(memory.lower_bound(begin), memory.lower_bound(begin + bytes));
}

std::string unordered() {
  const std::scoped_lock lock(mutex);
  return std::exchange(first_found, {});
}

}  // namespace rehearse::cuda_double
