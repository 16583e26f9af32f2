// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/watchdog.h"

#include <utility>

namespace rehearse::exec::cuda {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr auto kLook = std::chrono::milliseconds(10);

}  // namespace

Watchdog::Watchdog(double timeout_s, std::function<void(const std::string&)> stuck,
                   double patience_s)
    : timeout_s_(timeout_s),
      patience_s_(patience_s),
      stuck_(std::move(stuck)),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (host_.joinable()) host_.join();
}

void Watchdog::watch(Partners partners) {
  const std::scoped_lock lock(mutex_);
  partners_ = std::move(partners);
}

bool Watchdog::dismiss() {
  std::unique_lock lock(mutex_);
  if (late_) failed("the step has not ended");
  taken_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !asking_ && (failure_.empty() || aborted_); });
  partners_ = {};
  return aborted_;
}

void Watchdog::begin(Late late) {
  const std::scoped_lock lock(mutex_);
  late_ = std::move(late);
  progress_ = Clock::now();
}

void Watchdog::progressed() {
  const std::scoped_lock lock(mutex_);
  progress_ = Clock::now();
}

void Watchdog::end() {
  const std::scoped_lock lock(mutex_);
  late_ = nullptr;
}

void Watchdog::fail(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  failed(why);
}

std::string Watchdog::failure() {
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) {
    taken_ = true;
    changed_.notify_all();
  }
  return failure_;
}

void Watchdog::failed(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  changed_.notify_all();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && failure_.empty()) {
    changed_.wait_for(lock, kLook, [this] { return stopping_ || !failure_.empty(); });
    if (stopping_ || !failure_.empty() || !late_) continue;
    if (partners_.failed) {
      asking_ = true;
      lock.unlock();
      const std::string why = partners_.failed();
      lock.lock();
      asking_ = false;
      changed_.notify_all();
      if (!why.empty()) failed(why);
    }
    const double waited = Seconds(Clock::now() - progress_).count();
    if (late_ && waited > timeout_s_) failed(late_(waited));
  }
  if (failure_.empty()) return;
  if (stuck_) host_ = std::thread([this] { wait_for_host(); });
  if (partners_.abort) {
    lock.unlock();
    partners_.abort();
    lock.lock();
  }
  aborted_ = true;
  changed_.notify_all();
}

void Watchdog::wait_for_host() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, Seconds(patience_s_), [this] { return taken_ || stopping_; })) return;
  const std::string why = failure_;
  lock.unlock();
  stuck_(why);
}

}  // namespace rehearse::exec::cuda
