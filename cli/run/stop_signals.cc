// SPDX-License-Identifier: Apache-2.0
#include "cli/run/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace rehearse::cli {
namespace {

// The first signal and the second of its coming in one word, because handlers of two threads may
// run at once. 0: none came.
std::atomic<std::int64_t> first = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // what a handler may touch

constexpr std::int64_t kSignals = 256;

// `timeout` and launchers signal a process and its group: a signal told twice within a second is
// one.
void remember(int signal) {
  const int error = errno;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t second = now.tv_sec;
  std::int64_t before = 0;
  const bool came_first = first.compare_exchange_strong(before, second * kSignals + signal);
  if (!came_first && second - before / kSignals > 1) _exit(128 + signal);
  errno = error;
}

}  // namespace

StopSignals::StopSignals() {
  first = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
  sigaction(SIGHUP, &action, &hang_up_);
  if (hang_up_.sa_handler == SIG_IGN) sigaction(SIGHUP, &hang_up_, nullptr);  // nohup
  action.sa_handler = SIG_IGN;  // a file beyond the limit is an error of its write
  action.sa_flags = 0;
  sigaction(SIGXFSZ, &action, &file_size_);
}

StopSignals::~StopSignals() {
  if (received() != 0) return;
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGHUP, &hang_up_, nullptr);
  sigaction(SIGXFSZ, &file_size_, nullptr);
}

int StopSignals::received() {
  return static_cast<int>(first % kSignals);
}

}  // namespace rehearse::cli
