// SPDX-License-Identifier: Apache-2.0
// fn(0) ... fn(count - 1), each once, on `threads` threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace rehearse::sim {

template <class Fn>
void parallel_for(std::size_t count, std::int32_t threads, const Fn& fn) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) fn(i);
  };
  std::vector<std::thread> others;
  const auto wanted = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(threads, 1)));
  for (std::size_t t = 1; t < wanted; ++t) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
}

}  // namespace rehearse::sim
