// SPDX-License-Identifier: Apache-2.0
#include "exec/messages/link_throttle.h"

#include <algorithm>

namespace rehearse::exec {

std::optional<LinkThrottle::Clock::time_point> LinkThrottle::cross(
    std::span<const Message> messages, Clock::time_point deadline) {
  if (!throttle_.on()) return Clock::now();
  std::unique_lock lock(mutex_);
  Clock::time_point arrived{};
  for (const Message& message : messages) {
    Clock::time_point& free =
        free_[2 * static_cast<std::size_t>(message.process) + (message.send ? 1 : 0)];
    free = std::max(free, message.since) + std::chrono::nanoseconds(throttle_.occupied_ns(message.bytes));
    arrived = std::max(arrived, free + std::chrono::nanoseconds(throttle_.latency_ns));
  }
  ended_.wait_until(lock, std::min(arrived, deadline), [this] { return over_; });
  if (over_ || arrived > deadline) return {};
  return arrived;
}

void LinkThrottle::end() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  ended_.notify_all();
}

}  // namespace rehearse::exec
