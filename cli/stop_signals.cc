#include "cli/stop_signals.h"

namespace rehearse::cli {
namespace {

volatile std::sig_atomic_t signal_received = 0;  // what a handler may write

void remember(int signal) {
  signal_received = signal;
}

}  // namespace

StopSignals::StopSignals() {
  signal_received = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
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
