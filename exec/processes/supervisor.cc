// SPDX-License-Identifier: Apache-2.0
#include "exec/processes/supervisor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "exec/processes/abort_notice.h"
#include "exec/status/flight_recorder.h"
#include "exec/store/printable.h"
#include "exec/store/store_messages.h"
#include "schedules/base/counted.h"

namespace rehearse::exec {
namespace {

using How = ProcessView::How;

constexpr auto kRound = std::chrono::milliseconds(100);
// From the first sign of trouble to the judgement: peers notice a death before its parent does.
constexpr std::int64_t kGraceNs = 300'000'000;
constexpr double kSilentS = 1.5;  // of heartbeats that come four times a second

double seconds_since(std::int64_t ns) {
  return static_cast<double>(monotonic_ns() - ns) * 1e-9;
}

}  // namespace

struct Supervisor::Impl {
  Options options;
  std::unique_ptr<StoreServer> server;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool woken = false, stopping = false;
  struct Known {  // from a launcher
    How how = How::Running;
    int code = 0;
    std::int64_t since_ns = 0;
  };
  std::vector<Known> known;
  std::optional<FailureAttribution> attribution;
  std::int64_t began_ns = 0, trouble_ns = 0;
  std::thread thread;

  void watch();
  ProcessView view(std::int32_t process, const Member& member) const;
  bool trouble(const ProcessView& view, std::int32_t process, const Member& member) const;
  void attribute(const std::vector<ProcessView>& views);
};

ProcessView Supervisor::Impl::view(std::int32_t process, const Member& member) const {
  const Known& mine = known[static_cast<std::size_t>(process)];
  ProcessView out{.how = mine.how, .code = mine.code, .report = member.report};
  if (mine.how == How::Killed || mine.how == How::Stopped) return out;
  if (member.state == Member::State::Left) out.how = How::Finished;
  if (out.how != How::Running) return out;
  if (member.state == Member::State::Expected) out.how = How::Absent;
  if (member.state == Member::State::Lost) out.how = How::Lost;
  out.silent_s = member.state == Member::State::Joined ? seconds_since(member.heard_ns) : 0;
  if (out.silent_s > std::min(kSilentS, 0.8 * options.timeout_s)) out.how = How::Silent;
  return out;
}

// Whether this alone is a reason to end the run.
bool Supervisor::Impl::trouble(const ProcessView& view, std::int32_t process,
                               const Member& member) const {
  if (member.report) return true;
  const double patience = options.timeout_s + 1;
  switch (view.how) {
    case How::Killed:
    case How::Exited:
    case How::Lost:
      return true;
    case How::Absent:
      return seconds_since(began_ns) > options.join_s;
    case How::Silent:
      return view.silent_s > patience;
    case How::Stopped:
      return seconds_since(known[static_cast<std::size_t>(process)].since_ns) > patience;
    case How::Running:
    case How::Finished:
      return false;
  }
  return false;
}

void Supervisor::Impl::attribute(const std::vector<ProcessView>& views) {
  FailureAttribution found =
      diagnose({*options.schedule, options.rows, *options.board, views, options.timeout_s});
  const auto culprit = static_cast<std::size_t>(
      std::max(0, found.rank) / (options.expected.ranks / options.expected.processes));
  const bool absent = culprit < views.size() && views[culprit].how == How::Absent;
  if (const std::int64_t denied = server->denied(); absent && denied > 0) {
    found.line += "; " + counted(denied, "connection") + " with another secret " +
                  (denied == 1 ? "was" : "were") + " refused";
  }
  if (options.shared && found.exit_code == 3) {
    const auto ranks = static_cast<std::int32_t>(options.rows.size());
    if (!dump_flight(*options.board, 0, ranks, *options.schedule, options.flight))
      options.flight.clear();
  }
  if (found.exit_code == 3 && !options.flight.empty()) {
    found.line += "; flight records in " + options.flight;
  }
  {
    const std::lock_guard lock(mutex);
    attribution = found;
  }
  server->abort(abort_bytes(options.flight, found));
  changed.notify_all();
  if (options.failed) options.failed(found);
}

void Supervisor::Impl::watch() {
  while (true) {
    {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, kRound, [&] { return woken || stopping; });
      if (stopping) return;
      woken = false;
    }
    const std::vector<Member> members = server->members();
    std::vector<ProcessView> views;
    bool any = false;
    {
      const std::lock_guard lock(mutex);
      for (std::int32_t p = 0; p < options.expected.processes; ++p) {
        const Member& member = members[static_cast<std::size_t>(p)];
        if (!options.shared && p != options.host) {
          Identity who = options.expected;
          who.process = p;
          apply_status(member.beat, *options.board, who.first_rank(), who.last_rank());
        }
        views.push_back(view(p, member));
        any = any || trouble(views.back(), p, member);
      }
    }
    if (!any) {
      trouble_ns = 0;
      continue;
    }
    if (trouble_ns == 0) trouble_ns = monotonic_ns();
    if (monotonic_ns() - trouble_ns < kGraceNs) continue;
    return attribute(views);
  }
}

Supervisor::Supervisor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Supervisor>> Supervisor::start(Options options) {
  Result<std::unique_ptr<StoreServer>> server =
      StoreServer::start(options.expected, options.port, options.listen);
  if (!server) return server.error();
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  impl->server = std::move(server).value();
  impl->known.resize(static_cast<std::size_t>(impl->options.expected.processes));
  impl->began_ns = monotonic_ns();
  Impl& at = *impl;
  at.server->on_change([&at] {
    {
      const std::lock_guard lock(at.mutex);
      at.woken = true;
    }
    at.changed.notify_all();
  });
  if (at.options.host >= 0) {
    Identity host = at.options.expected;
    host.process = at.options.host;
    at.server->answer_beats([&at, host] {
      return status_bytes(*at.options.board, host.first_rank(), host.last_rank());
    });
  }
  at.thread = std::thread([&at] { at.watch(); });
  return std::unique_ptr<Supervisor>(new Supervisor(std::move(impl)));
}

Supervisor::~Supervisor() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
  impl_->server.reset();  // its thread calls on_change
}

std::uint16_t Supervisor::port() const {
  return impl_->server->port();
}

std::string Supervisor::address() const {
  return impl_->server->address();
}

void Supervisor::process_is(std::int32_t process, ProcessView::How how, int code) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->known[static_cast<std::size_t>(process)] = {how, code, monotonic_ns()};
    impl_->woken = true;
  }
  impl_->changed.notify_all();
}

std::optional<FailureAttribution> Supervisor::attribution() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->attribution;
}

bool Supervisor::wait_for_goodbyes(double timeout_s) const {
  const std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(timeout_s * 1e9);
  while (monotonic_ns() < deadline) {
    const std::vector<Member> members = impl_->server->members();
    if (std::ranges::all_of(members,
                            [](const Member& m) { return m.state == Member::State::Left; }))
      return true;
    std::unique_lock lock(impl_->mutex);
    if (impl_->attribution) return false;
    impl_->changed.wait_for(lock, std::chrono::milliseconds(20));
  }
  return false;
}

std::uint32_t store_share(const Schedule& schedule, std::span<const RankClass> rows,
                          std::int32_t processes, std::int64_t steps) {
  constexpr std::int64_t kMeeting = 8 << 20, kMost = 1 << 30;
  constexpr std::int64_t kTimes = 2 * 16;  // [B] of a start and an end, and of a step's seconds
  const auto ranks = static_cast<std::int32_t>(rows.size()), each = ranks / processes;
  std::int64_t most = 0;
  for (std::int32_t first = 0; first + each <= ranks; first += each) {
    std::int64_t ops = 0;
    for (std::int32_t r = first; r < first + each; ++r) {
      const RankClass row = rows[static_cast<std::size_t>(r)];
      ops += schedule.row_begin[row.index() + 1] - schedule.row_begin[row.index()];
    }
    most = std::max(most, ops);
  }
  const std::int64_t bytes = kMeeting + kTimes * (most + std::min(steps, kMost / kTimes));
  return static_cast<std::uint32_t>(std::min(bytes, kMost));
}

}  // namespace rehearse::exec
