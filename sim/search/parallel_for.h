// SPDX-License-Identifier: Apache-2.0
// fn(0) ... fn(count - 1), each once, on `threads` threads, or on as many as the system gives. What
// one throws ends the others after the call that they are in, and is thrown here.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace rehearse::sim {

template <class Fn>
void parallel_for(std::size_t count, std::int32_t threads, const Fn& fn) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr thrown;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) fn(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const auto wanted = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(threads, 1)));
  others.reserve(wanted);
  for (std::size_t t = 1; t < wanted; ++t) {
    try {
      others.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads, or no memory for their stacks
      break;
    }
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace rehearse::sim
