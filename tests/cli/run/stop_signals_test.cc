// SPDX-License-Identifier: Apache-2.0
#include "cli/run/stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace rehearse::cli {
namespace {

// A launcher that is slow to pass on a Ctrl-C reaches a run that has stopped and is about to exit.
TEST(StopSignals, AWishToldAgainBehindTheRunDoesNotKillTheProcess) {
  EXPECT_EXIT(
      {
        {
          const StopSignals signals;
          raise(SIGINT);
        }
        raise(SIGINT);
        _exit(100 + StopSignals::received());
      },
      testing::ExitedWithCode(100 + SIGINT), "");
}

TEST(StopSignals, WithoutAWishTheyActAsBefore) {
  EXPECT_EXIT(
      {
        { const StopSignals signals; }
        raise(SIGINT);
        _exit(0);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace rehearse::cli
