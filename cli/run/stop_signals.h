// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM and SIGHUP as a wish: a training run looks for it between steps, so that it can
// write its checkpoint and end. A second signal ends the process at once.
//
// Once one came, they stay caught until the process ends: a launcher may pass on late what a
// terminal has told already, and a run that ends in good order is not killed by that.
#pragma once

#include <csignal>

namespace rehearse::cli {

// Caught while it lives, and behind it if one came; one at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // The first that came; 0: none.
  static int received();

 private:
  struct sigaction interrupt_ {
  }, terminate_{}, hang_up_{}, file_size_{};
};

}  // namespace rehearse::cli
