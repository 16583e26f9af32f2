// SPDX-License-Identifier: Apache-2.0
#include "sim/search/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>
#include <vector>

namespace rehearse::sim {
namespace {

TEST(ParallelFor, CallsEachOnce) {
  for (const std::int32_t threads : {0, 1, 3, 50}) {
    std::vector<std::atomic<int>> calls(20);
    parallel_for(calls.size(), threads, [&](std::size_t i) { ++calls[i]; });
    for (const std::atomic<int>& one : calls) EXPECT_EQ(one.load(), 1);
  }
}

// What a worker throws comes to who called, who can say it, instead of ending the process. With two
// threads one of which holds the first call until the second has thrown, a worker that is not the
// caller's own thread throws in some rounds, the caller's own in others.
TEST(ParallelFor, ThrowsWhatAWorkerThrew) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> threw{false};
    const auto work = [&](std::size_t i) {
      if (i == 0) {
        while (!threw.load()) std::this_thread::yield();
      }
      if (i == 1) {
        threw = true;
        throw std::bad_alloc();
      }
    };
    EXPECT_THROW(parallel_for(100, 2, work), std::bad_alloc);
  }
}

// The others end with the call that they are in.
TEST(ParallelFor, EndsEarlyWhereOneThrew) {
  std::atomic<int> calls{0};
  EXPECT_THROW(parallel_for(1'000'000, 1,
                            [&](std::size_t i) {
                              ++calls;
                              if (i == 2) throw std::string("third");
                            }),
               std::string);
  EXPECT_EQ(calls.load(), 3);
}

}  // namespace
}  // namespace rehearse::sim
