// SPDX-License-Identifier: Apache-2.0
// Watches a host that works with a device and with partners: where nothing goes on for the timeout,
// or the partners' side fails, it says what is stuck and aborts, wherever the host is: waiting for
// the end of a step, or inside a call that does not return.
//
// Its thread makes no call of CUDA: a host that is blocked in a launch may hold the driver's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace rehearse::exec::cuda {

class Watchdog {
 public:
  // What the device talks to; both are called by a thread of the watchdog's.
  struct Partners {
    std::function<std::string()> failed;  // empty: nothing did
    std::function<void()> abort;          // once: what waits for others on the device ends
  };
  // Says what does not go on, after so many seconds.
  using Late = std::function<std::string(double seconds)>;

  // `stuck` may be null: the host has not come back so long after a failure, although all was
  // aborted. It reports the failure and ends the process.
  Watchdog(double timeout_s, std::function<void(const std::string&)> stuck, double patience_s = 10);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void watch(Partners partners);
  // No more partners. True: they were aborted, or are now, because the host's work has not ended;
  // returns when that is done.
  bool dismiss();

  // Between the two something must go on: the host says when it does.
  void begin(Late late);
  void progressed();
  void end();

  // The host's own failure; the first counts.
  void fail(const std::string& why);
  // What went wrong, empty if nothing: the host has come back and reports it.
  std::string failure();

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void wait_for_host();
  void failed(const std::string& why);

  const double timeout_s_, patience_s_;
  const std::function<void(const std::string&)> stuck_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Partners partners_;
  Late late_;  // set: the host is at work
  Clock::time_point progress_;
  std::string failure_;
  bool asking_ = false;   // the partners, without the lock
  bool aborted_ = false;  // and that is done
  bool taken_ = false;    // by the host
  bool stopping_ = false;
  std::thread host_, thread_;
};

}  // namespace rehearse::exec::cuda
