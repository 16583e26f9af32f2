#include "cli/stop_signals.h"

#include <unistd.h>

#include <ctime>

namespace rehearse::cli {
namespace {

volatile std::sig_atomic_t signal_received = 0;  // what a handler may write

volatile std::sig_atomic_t second_received = 0;

// `timeout` and launchers signal a process and its group: a signal told twice within a second is
// one.
void remember(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto second = static_cast<std::sig_atomic_t>(now.tv_sec);
  if (signal_received == 0) {
    signal_received = signal;
    second_received = second;
  } else if (second - second_received > 1) {
    _exit(128 + signal);
  }
}

}  // namespace

StopSignals::StopSignals() {
  signal_received = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
  action.sa_handler = SIG_IGN;  // a file beyond the limit is an error of its write
  action.sa_flags = 0;
  sigaction(SIGXFSZ, &action, &file_size_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGXFSZ, &file_size_, nullptr);
}

int StopSignals::received() {
  return signal_received;
}

}  // namespace rehearse::cli
