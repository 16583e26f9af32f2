// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/order_check.h"

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

// What touched an array last: the last write, and the reads since.
struct Last {
  Moment written;
  std::vector<Moment> read;
};
// By where they begin and how long they are: arrays of one place and two lengths are two.
using Arrays = std::map<std::pair<const char*, std::size_t>, Last>;

std::mutex mutex;
std::size_t timelines = 0;
Arrays points, blocks;    // of one byte, or whose length is not known; and the others
std::size_t longest = 1;  // of the blocks
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

void check_all(const Arrays& arrays, std::size_t most, const Access& access, const Moment& now,
               const Clock& clock) {
  auto at = arrays.lower_bound({access.at - most + 1, 0});
  for (; at != arrays.end() && at->first.first < access.at + access.bytes; ++at) {
    if (at->first.first + at->first.second > access.at) check(at->second, access, now, clock);
  }
}

void note(const Access& access, const Moment& now) {
  Last& array = (access.bytes > 1 ? blocks : points)[{access.at, access.bytes}];
  longest = std::max(longest, access.bytes);
  if (access.writes) {
    array.written = now;
    array.read.clear();
    return;
  }
  std::erase_if(array.read, [&](const Moment& read) { return read.stream == now.stream; });
  array.read.push_back(now);
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
  for (const Access& access : touched.all) {
    check_all(points, 1, access, now, clock_);
    check_all(blocks, longest, access, now, clock_);
  }
  for (const Access& access : touched.all) note(access, now);
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

void forget(const void* memory, std::size_t bytes) {
  const std::scoped_lock lock(mutex);
  const char* begin = static_cast<const char*>(memory);
  for (auto* arrays : {&points, &blocks}) {
    auto at = arrays->lower_bound({begin - longest + 1, 0});
    while (at != arrays->end() && at->first.first < begin + bytes) {
      at = at->first.first + at->first.second > begin ? arrays->erase(at) : std::next(at);
    }
  }
}

std::string unordered() {
  const std::scoped_lock lock(mutex);
  return std::exchange(first_found, {});
}

}  // namespace rehearse::cuda_double
