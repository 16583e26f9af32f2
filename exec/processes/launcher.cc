// SPDX-License-Identifier: Apache-2.0
#include "exec/processes/launcher.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "exec/processes/supervisor.h"
#include "exec/status/flight_recorder.h"
#include "exec/status/status.h"
#include "exec/store/secret.h"
#include "exec/store/socket.h"
#include "schedules/ranks/unfold.h"

extern char** environ;

namespace rehearse::exec {
namespace {

constexpr std::int64_t kEndNs = 1'500'000'000;  // what children have to end in after a failure

constexpr std::int64_t kOneWishNs = 1'000'000'000;

struct Child {
  pid_t pid = -1;
  bool alive = false;
  int code = 0, signal = 0;  // how it ended: exit code, or 128 + signal and the signal
};

// This command's arguments, and the variables that tell a child who it is.
class Command {
 public:
  Command() {
    std::ifstream in("/proc/self/cmdline", std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (std::size_t at = 0; at < all.size(); at = all.find('\0', at) + 1)
      arguments_.emplace_back(all.c_str() + at);
    for (char** entry = environ; *entry != nullptr; ++entry) environment_.emplace_back(*entry);
  }
  void set(const std::string& name, const std::string& value) {
    std::erase_if(environment_,
                  [&](const std::string& entry) { return entry.starts_with(name + "="); });
    environment_.push_back(name + "=" + value);
  }
  void unset(const std::string& name) {
    std::erase_if(environment_,
                  [&](const std::string& entry) { return entry.starts_with(name + "="); });
  }
  // Only calls that are safe between fork and exec, in the child of a process with threads.
  pid_t start(const sigset_t& signals) {
    std::vector<char*> arguments = pointers(arguments_), environment = pointers(environment_);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(3);  // it died before we asked to die with it
    sigprocmask(SIG_SETMASK, &signals, nullptr);
    execve("/proc/self/exe", arguments.data(), environment.data());
    _exit(127);
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
  }
  std::vector<std::string> arguments_, environment_;
};

std::string nonce() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
    bits = static_cast<std::uint64_t>(monotonic_ns());
  return std::to_string(bits);
}

class Launcher {
 public:
  explicit Launcher(const LauncherOptions& options) : options_(options) {}
  int run();

 private:
  Result<> start(const sigset_t& before, const std::string& secret);
  void reap();
  void pass_on(const signalfd_siginfo& signal);
  void kill_all(int signal) {
    for (const Child& child : children_) {
      if (child.alive) kill(child.pid, signal);
    }
  }
  bool any_alive() const {
    for (const Child& child : children_) {
      if (child.alive) return true;
    }
    return false;
  }
  bool ended_badly() const {  // a stop that was asked for ends all with the same code
    for (const Child& child : children_) {
      if (child.code != children_[0].code || (child.code != 0 && interrupts_ == 0)) return true;
    }
    return false;
  }
  bool killed_by_interrupt() const {  // before it could stop in good order
    for (const Child& child : children_) {
      if (child.signal == SIGINT || child.signal == SIGTERM || child.signal == SIGHUP ||
          (child.signal == SIGKILL && interrupts_ > 1))
        return true;
    }
    return false;
  }
  void wait_for_all(const Descriptor& signals);

  const LauncherOptions& options_;
  std::vector<Child> children_;
  std::optional<StatusBoard> board_;
  std::unique_ptr<Supervisor> supervisor_;
  int interrupts_ = 0;
  std::int64_t interrupted_ns_ = 0;
};

Result<> Launcher::start(const sigset_t& before, const std::string& secret) {
  const std::vector<RankClass> rows = rows_of_ranks(*options_.plan, *options_.schedule);
  Result<StatusBoard> board = StatusBoard::create(static_cast<std::int32_t>(rows.size()));
  if (!board) return board.error();
  board_ = std::move(board).value();
  Supervisor::Options watch;
  watch.expected = {
      .processes = options_.processes,
      .ranks = static_cast<std::int32_t>(rows.size()),
      .job = nonce(),
      .version = options_.version,
      .schedule_hash = content_hash(*options_.schedule),
      .secret = secret,
      .kept = store_share(*options_.schedule, rows, options_.processes, options_.steps)};
  watch.schedule = options_.schedule;
  watch.rows = rows;
  watch.board = &*board_;
  watch.shared = true;
  watch.timeout_s = options_.timeout_s;
  watch.flight = options_.flight.empty() ? default_flight_folder() : options_.flight;
  const std::string job = watch.expected.job;
  Result<std::unique_ptr<Supervisor>> made = Supervisor::start(std::move(watch));
  if (!made) return made.error();
  supervisor_ = std::move(made).value();

  Command command;
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    command.set(name, std::to_string(options_.processes));
  }
  command.set("MASTER_ADDR", "127.0.0.1");
  command.set("MASTER_PORT", std::to_string(supervisor_->port()));
  command.set("REHEARSE_JOB", job);
  command.set("REHEARSE_SECRET", secret);  // an environment is this user's alone to read
  command.unset("REHEARSE_SECRET_FILE");
  command.set("REHEARSE_STATUS_FD", std::to_string(board_->descriptor()));
  command.unset("TORCHELASTIC_USE_AGENT_STORE");
  for (std::int32_t p = 0; p < options_.processes; ++p) {
    command.set("RANK", std::to_string(p));
    command.set("LOCAL_RANK", std::to_string(p));
    const pid_t pid = command.start(before);
    if (pid < 0) return Error{std::string("cannot start a process: ") + std::strerror(errno)};
    children_.push_back({.pid = pid, .alive = true});
  }
  return {};
}

void Launcher::reap() {
  int status = 0;
  for (std::size_t p = 0; p < children_.size(); ++p) {
    Child& child = children_[p];
    const auto process = static_cast<std::int32_t>(p);
    while (child.alive &&
           waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == child.pid) {
      if (WIFEXITED(status)) {
        child.alive = false;
        child.code = WEXITSTATUS(status);
        supervisor_->process_is(process, ProcessView::How::Exited, child.code);
      } else if (WIFSIGNALED(status)) {
        child.alive = false;
        child.signal = WTERMSIG(status);
        child.code = 128 + child.signal;
        supervisor_->process_is(process, ProcessView::How::Killed, WTERMSIG(status));
      } else {
        supervisor_->process_is(
            process, WIFSTOPPED(status) ? ProcessView::How::Stopped : ProcessView::How::Running, 0);
      }
    }
  }
}

// A terminal's Ctrl-C has reached the children too: they are in its foreground group.
void Launcher::pass_on(const signalfd_siginfo& signal) {
  const int number = static_cast<int>(signal.ssi_signo);
  // `timeout` and shells signal the process and its group: one wish, told twice.
  if (interrupts_ > 0 && monotonic_ns() - interrupted_ns_ < kOneWishNs) return;
  interrupted_ns_ = monotonic_ns();
  if (++interrupts_ > 1) return kill_all(SIGKILL);
  if (signal.ssi_code != SI_KERNEL) kill_all(number);
}

// Returns when no child is left, or 100 ms after the run is known to have failed.
void Launcher::wait_for_all(const Descriptor& signals) {
  while (any_alive() && !supervisor_->attribution()) {
    pollfd waiting{.fd = signals.get(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 100) > 0) {
      signalfd_siginfo signal{};
      if (read(signals.get(), &signal, sizeof signal) == sizeof signal &&
          signal.ssi_signo != SIGCHLD) {
        pass_on(signal);
      }
    }
    reap();
  }
}

int Launcher::run() {
  const Result<std::optional<std::string>> given = given_secret(std::getenv);
  if (!given) {
    options_.print_error("run: " + given.error().message);
    return 2;
  }
  for (const int signal : {SIGINT, SIGTERM})
    ::signal(signal, SIG_DFL);  // a background job's are ignored
  sigset_t ours, before;
  sigemptyset(&ours);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&ours, signal);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaddset(&ours, SIGHUP);  // ignored under nohup
  sigprocmask(SIG_BLOCK, &ours, &before);  // threads that are made from here on inherit it
  const Descriptor signals(signalfd(-1, &ours, SFD_CLOEXEC));
  const Result<> started = start(before, given.value().value_or(fresh_secret()));
  if (!started) {
    kill_all(SIGKILL);
    while (wait(nullptr) > 0) {
    }
    options_.print_error("run: --processes: " + started.error().message);
    return 3;
  }
  wait_for_all(signals);

  // A child may have ended badly before the supervisor has looked, or after its goodbye.
  const std::int64_t deadline = monotonic_ns() + kEndNs;
  std::optional<FailureAttribution> attribution = supervisor_->attribution();
  while (!attribution && !any_alive() && ended_badly() && monotonic_ns() < deadline) {
    poll(nullptr, 0, 50);
    attribution = supervisor_->attribution();
  }
  if (interrupts_ > 0 && killed_by_interrupt()) {
    options_.print_error("run: interrupted");
  } else if (attribution) {
    options_.print_error(attribution->line);
  }
  while (any_alive() && monotonic_ns() < deadline) {
    poll(nullptr, 0, 20);
    reap();
  }
  kill_all(SIGKILL);
  while (wait(nullptr) > 0) {
  }
  if (interrupts_ > 0 && killed_by_interrupt()) return 130;
  if (attribution) return attribution->exit_code;
  // Success is what every process says of itself.
  for (const Child& child : children_) {
    if (child.code != 0) return child.code;
  }
  return 0;
}

}  // namespace

int launch_processes(const LauncherOptions& options) {
  return Launcher(options).run();
}

}  // namespace rehearse::exec
