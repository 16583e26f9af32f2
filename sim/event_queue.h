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
  std::uint64_t order = 0;  // priority << 32 | sequence; unique among equal times
  std::int32_t slot = -1;

  bool before(const Event& other) const {
    return time != other.time ? time < other.time : order < other.order;
  }
};

class EventQueue {
 public:
  explicit EventQueue(std::int32_t num_slots) : place_(static_cast<std::size_t>(num_slots), -1) {
    heap_.reserve(place_.size());
  }

  bool empty() const { return heap_.empty(); }
  const Event& top() const { return heap_.front(); }

  // Puts the event in its slot, in place of what was there.
  void put(const Event& event) {
    std::int32_t at = place_[index(event.slot)];
    if (at < 0) {
      at = static_cast<std::int32_t>(heap_.size());
      heap_.push_back(event);
    } else if (heap_[index(at)].before(event)) {
      sink(at, event);
      return;
    }
    rise(at, event);
  }

  void pop() {
    place_[index(heap_.front().slot)] = -1;
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(0, last);
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  void set(std::int32_t at, const Event& event) {
    heap_[index(at)] = event;
    place_[index(event.slot)] = at;
  }

  void rise(std::int32_t at, const Event& event) {
    while (at > 0) {
      const std::int32_t parent = (at - 1) / 4;
      if (!event.before(heap_[index(parent)])) break;
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
        if (heap_[index(c)].before(heap_[index(first)])) first = c;
      }
      if (!heap_[index(first)].before(event)) break;
      set(at, heap_[index(first)]);
      at = first;
    }
    set(at, event);
  }

  std::vector<Event> heap_;
  std::vector<std::int32_t> place_;  // per slot: where in the heap, -1: not in it
};

}  // namespace rehearse::sim
