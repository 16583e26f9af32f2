// SPDX-License-Identifier: Apache-2.0
#include "exec/processes/process_group.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "exec/processes/abort_notice.h"
#include "exec/processes/diagnosis.h"
#include "exec/processes/supervisor.h"
#include "exec/status/flight_recorder.h"
#include "schedules/ranks/unfold.h"

namespace rehearse::exec {
namespace {

using std::chrono::duration;

constexpr double kAttributionS = 3;  // how long the judgement over a reported failure may take
constexpr double kEndS = 4;          // from the end of the run to the end of a process that hangs
constexpr double kJoinS = 300;
constexpr double kGoodbyeS = 30;
constexpr auto kTearDown = std::chrono::seconds(10);  // end_process_soon()

constexpr const char* kLostRun = "rehearse-lost-";     // files of first_to_tell()
constexpr auto kLostRunStays = std::chrono::hours(1);  // nobody comes later than that

constexpr const char* kRunKey = "run";  // in the store: what tells this run from every other

std::string unique_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(now / std::chrono::nanoseconds(1)) + "-" + std::to_string(getpid());
}

// Whether this process is the first of its machine to say that the host of run `run` is gone: who
// makes the file is. It stays, for a process that comes late, until forget_lost_runs().
bool first_to_tell(const std::string& run) {
  const std::string path = temporary_folder() + "/" + kLostRun + run;
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file < 0) return errno != EEXIST;  // rather twice than never
  close(file);
  return true;
}

// Whoever joins a run removes what earlier runs on this machine left.
void forget_lost_runs() {
  namespace fs = std::filesystem;
  std::error_code error;  // of others, or gone meanwhile: not ours to complain about
  const auto before = fs::file_time_type::clock::now() - kLostRunStays;
  for (fs::directory_iterator at(temporary_folder(), error), end; !error && at != end;
       at.increment(error)) {
    if (!at->path().filename().string().starts_with(kLostRun)) continue;
    std::error_code unknown;
    const fs::file_time_type written = at->last_write_time(unknown);
    if (!unknown && written < before) fs::remove(at->path(), unknown);
  }
}

}  // namespace

void end_process_soon(int code) {
  std::thread([code] {
    std::this_thread::sleep_for(kTearDown);
    _exit(code);
  }).detach();
}

struct ProcessGroup::Impl {
  LaunchEnvironment launch;
  Options options;
  Identity identity;
  std::vector<RankClass> rows;
  std::optional<StatusBoard> board;
  std::unique_ptr<Supervisor> supervisor;  // where this process hosts the store
  std::unique_ptr<StoreClient> store;
  std::int64_t clock_offset = 0;
  std::string address;
  std::string run;  // kRunKey's value; empty: it was never learnt

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<AbortNotice> notice;  // the run was aborted
  bool lost = false;                  // who hosts the store is gone,
  bool closed = false;                // and its connection was closed
  std::int64_t heard_ns = 0;          // when it answered last
  bool ending = false;                // this process is on its way out: not to be ended from here
  bool dumped = false;
  std::mutex telling;  // while `ended` is called
  std::function<void(const std::string&)> ended;

  void over(std::optional<AbortNotice> why);
  void dump();
  void print_loss_of_host();
};

// From the store client's thread, which then waits until this process is on its way out.
void ProcessGroup::Impl::over(std::optional<AbortNotice> why) {
  {
    const std::lock_guard lock(mutex);
    if (ending) return;
    notice = std::move(why);
    lost = !notice;
  }
  changed.notify_all();
  {
    const std::lock_guard tell(telling);
    if (ended) ended(lost ? "the host of the store is gone" : "the run was ended");
  }
  std::unique_lock lock(mutex);
  if (changed.wait_for(lock, duration<double>(kEndS), [&] { return ending; })) return;
  lock.unlock();
  dump();
  if (lost) print_loss_of_host();
  _exit(notice ? notice->exit_code : 3);
}

void ProcessGroup::Impl::dump() {
  AbortNotice told;
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(dumped, true)) return;
    if (notice) told = *notice;
  }
  if (launch.launched() || told.exit_code != 3) return;  // the launcher does it; or nobody hung
  const std::string folder = told.flight.empty() ? options.flight : told.flight;
  (void)dump_flight(*board, identity.first_rank(), identity.last_rank(), *options.schedule, folder);
}

// The host cannot judge itself: on every machine the first that misses it does, with what the host
// last said of its ranks.
void ProcessGroup::Impl::print_loss_of_host() {
  if (launch.launched()) return;
  std::string of_run;
  {
    const std::lock_guard lock(mutex);
    of_run = run;
  }
  if (of_run.empty() ? launch.process != 1 : !first_to_tell(of_run)) return;
  std::vector<ProcessView> views(static_cast<std::size_t>(identity.processes));
  {
    const std::lock_guard lock(mutex);
    views[0].how = closed ? ProcessView::How::Lost : ProcessView::How::Silent;
    views[0].silent_s = static_cast<double>(monotonic_ns() - heard_ns) * 1e-9;
  }
  const FailureAttribution found =
      diagnose({*options.schedule, rows, *board, views, options.timeout_s});
  options.print_error(found.line + "; flight records in " + options.flight);
}

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<ProcessGroup>> ProcessGroup::join(const LaunchEnvironment& launch,
                                                         const Options& options) {
  auto impl = std::make_unique<Impl>();
  Impl& at = *impl;
  at.launch = launch;
  at.options = options;
  if (at.options.flight.empty()) at.options.flight = default_flight_folder();
  at.rows = rows_of_ranks(*options.plan, *options.schedule);
  const auto ranks = static_cast<std::int32_t>(at.rows.size());
  at.identity = {.process = launch.process,
                 .processes = launch.processes,
                 .ranks = ranks,
                 .job = launch.job,
                 .version = options.version,
                 .schedule_hash = content_hash(*options.schedule),
                 .secret = launch.secret,
                 .kept = store_share(*options.schedule, at.rows, launch.processes, options.steps)};
  Result<StatusBoard> board = launch.launched()
                                  ? StatusBoard::attach(launch.status_descriptor, ranks)
                                  : StatusBoard::create(ranks);
  if (!board) return board.error();
  at.board = std::move(board).value();

  const double join_s = std::min(kJoinS, std::max(options.timeout_s, 10.0));
  if (launch.process == 0 && !launch.launched()) {
    Supervisor::Options watch;
    watch.expected = at.identity;
    watch.port = launch.port;
    watch.listen = launch.one_host ? launch.host : std::string();
    watch.schedule = options.schedule;
    watch.rows = at.rows;
    watch.board = &*at.board;
    watch.host = 0;
    watch.timeout_s = options.timeout_s;
    watch.join_s = join_s;
    watch.flight = at.options.flight;
    watch.failed = [print = options.print_error](const FailureAttribution& attribution) {
      print(attribution.line);
    };
    Result<std::unique_ptr<Supervisor>> made = Supervisor::start(std::move(watch));
    if (!made) return Error{"MASTER_PORT: " + made.error().message};
    at.supervisor = std::move(made).value();
  }
  StoreClient::Events events;
  events.beat = [&at] {
    return status_bytes(*at.board, at.identity.first_rank(), at.identity.last_rank());
  };
  if (!launch.launched() && launch.process != 0) {
    at.heard_ns = monotonic_ns();
    events.heard = [&at](const std::string& status) {
      apply_status(status, *at.board, 0, at.identity.ranks / at.identity.processes);
      const std::lock_guard lock(at.mutex);
      at.heard_ns = monotonic_ns();
    };
  }
  events.aborted = [&at](const std::string& why) { at.over(parse_abort(why)); };
  events.lost = [&at](bool closed) {
    {
      const std::lock_guard lock(at.mutex);
      at.closed = closed;
    }
    at.over(std::nullopt);
  };
  // Not "localhost": there are machines where that name does not resolve.
  const bool hosts = launch.process == 0 && !launch.launched() && !launch.one_host;
  const std::string host = hosts ? "127.0.0.1" : launch.host;
  Result<std::unique_ptr<StoreClient>> store = StoreClient::join(
      host, launch.port, at.identity, join_s, options.timeout_s + 3, std::move(events));
  if (!store) return store.error();
  at.store = std::move(store).value();
  std::unique_ptr<ProcessGroup> made(new ProcessGroup(std::move(impl)));
  at.address = at.store->address();
  if (launch.launched()) return made;  // one machine, one clock
  forget_lost_runs();
  // Who hosts the store reaches itself by any address; the others know by which it is reached.
  if (launch.process != 0) {
    (void)at.store->set("joined/" + std::to_string(launch.process), {});
    const Result<std::string> run = at.store->get(kRunKey, join_s);
    const std::lock_guard lock(at.mutex);
    if (run) at.run = run.value();
  } else {
    (void)at.store->set(kRunKey, unique_name());
    std::vector<std::string> others;
    for (std::int32_t p = 1; p < launch.processes; ++p)
      others.push_back("joined/" + std::to_string(p));
    // Who does not come is missed by the supervisor, which then ends the run.
    if (at.store->wait(others, join_s)) at.address = at.supervisor->address();
  }
  const Result<std::int64_t> offset = at.store->clock_offset();
  if (offset) at.clock_offset = offset.value();  // else the run is over, which the first op says
  return made;
}

ProcessGroup::~ProcessGroup() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->changed.notify_all();
  impl_->store.reset();
  impl_->supervisor.reset();
}

const LaunchEnvironment& ProcessGroup::launch() const {
  return impl_->launch;
}
const Identity& ProcessGroup::identity() const {
  return impl_->identity;
}
const StatusBoard& ProcessGroup::board() const {
  return *impl_->board;
}
StoreClient& ProcessGroup::store() {
  return *impl_->store;
}
const std::string& ProcessGroup::address() const {
  return impl_->address;
}
std::int64_t ProcessGroup::clock_offset_ns() const {
  return impl_->clock_offset;
}

void ProcessGroup::on_end(std::function<void(const std::string&)> ended) {
  const std::lock_guard tell(impl_->telling);
  impl_->ended = std::move(ended);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->ended && (impl_->notice || impl_->lost)) impl_->ended("the run was ended");
}

int ProcessGroup::failed(const FailureReport& failure) {
  Impl& at = *impl_;
  at.store->report(failure);
  std::unique_lock lock(at.mutex);
  const auto known = [&] { return at.notice.has_value() || at.lost; };
  const bool heard = at.changed.wait_for(lock, duration<double>(kAttributionS), known);
  const int code = at.notice ? at.notice->exit_code : 3;
  const bool host_gone = !heard || !at.notice;
  at.ending = true;
  lock.unlock();
  at.changed.notify_all();
  at.dump();
  if (host_gone && at.launch.process != 0) at.print_loss_of_host();
  return code;
}

Result<> ProcessGroup::leave() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->store->leave();
  if (!impl_->supervisor || impl_->supervisor->wait_for_goodbyes(kGoodbyeS)) return {};
  if (const std::optional<FailureAttribution> attribution = impl_->supervisor->attribution()) {
    return Error{.message = attribution->line, .infeasible = true};
  }
  return Error{"not every process said that it has finished"};
}

}  // namespace rehearse::exec
