// SPDX-License-Identifier: Apache-2.0
// What happens next, in the total order (time, priority, sequence): a 4-ary heap that knows where
// each entry is, so that an event can be moved when its rate changes instead of being left for
// dead.
//
// Entries sit in slots (at most one per slot), numbers that the caller gives out and reuses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rehearse::sim {

struct Event {
  std::int64_t time = 0;    // [ns]
  std::uint32_t order = 0;  // priority << 31 | sequence; unique among equal times
  std::int32_t slot = -1;

  // Without branches: equal times are common, and a guess would be wrong half of the time.
  bool before(const Event& other) const {
    return static_cast<int>(time < other.time) |
           (static_cast<int>(time == other.time) & static_cast<int>(order < other.order));
  }
};
static_assert(sizeof(Event) == 16);

class EventQueue {
 public:
  explicit EventQueue(std::int32_t num_slots) : place_(static_cast<std::size_t>(num_slots), -1) {
    heap_.reserve(place_.size());
  }

  bool empty() const { return heap_.size() == static_cast<std::size_t>(hole_); }

  // REQUIRES: not empty(). Takes the first event out.
  Event pop() {
    const Event& first = top();
    place_[index(first.slot)] = -1;
    hole_ = true;
    return first;
  }
  // REQUIRES: not empty().
  const Event& top() {
    if (hole_) {
      hole_ = false;
      const Event last = heap_.back();
      heap_.pop_back();
      if (!heap_.empty()) sink(0, last);
    }
    return heap_.front();
  }

  // Puts the event in its slot, in place of what was there. What is put after a pop takes its place
  // at once: most ops that end let one begin.
  void put(const Event& event) {
    const std::int32_t at = place_[index(event.slot)];
    if (at >= 0) {
      if (heap_[index(at)].before(event)) return sink(at, event);
      return rise(at, event);
    }
    if (hole_) {
      hole_ = false;
      return sink(0, event);
    }
    heap_.push_back(event);
    rise(static_cast<std::int32_t>(heap_.size()) - 1, event);
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  void set(std::int32_t at, const Event& event) {
    heap_[index(at)] = event;
    place_[index(event.slot)] = at;
  }

  // While there is a hole at the top nothing may rise into it: what is there is not in the heap.
  void rise(std::int32_t at, const Event& event) {
    const std::int32_t highest = hole_ ? 1 : 0;
    while (at > 0) {
      const std::int32_t parent = (at - 1) / 4;
      if (parent < highest || !event.before(heap_[index(parent)])) break;
      set(at, heap_[index(parent)]);
      at = parent;
    }
    set(at, event);
  }

  void sink(std::int32_t at, const Event& event) {
    const auto size = static_cast<std::int32_t>(heap_.size());
    for (std::int32_t child = 4 * at + 1; child < size; child = 4 * at + 1) {
      std::int32_t first = child;
      for (std::int32_t c = child + 1; c < std::min(child + 4, size); ++c) {
        first = heap_[index(c)].before(heap_[index(first)]) ? c : first;
      }
      if (!heap_[index(first)].before(event)) break;
      set(at, heap_[index(first)]);
      at = first;
    }
    set(at, event);
  }

  std::vector<Event> heap_;
  std::vector<std::int32_t> place_;  // per slot: where in the heap, -1: not in it
  bool hole_ = false;                // heap_[0] has been taken out and nothing put there yet
};

}  // namespace rehearse::sim
