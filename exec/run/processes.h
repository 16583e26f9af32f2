// SPDX-License-Identifier: Apache-2.0
// A training run as one of several processes sees it: who they are, what they agree on, what
// process 0 gathers from the others for its report, and how a failure is told. Alone, all of it is
// trivial.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/messages/gloo_communicator.h"
#include "exec/processes/launch_environment.h"
#include "exec/processes/process_group.h"
#include "exec/run/measurement.h"
#include "exec/step/observer.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::exec {

struct ProcessOptions {
  std::int64_t steps = 0;  // of the run
  double timeout_s = 600;  // of one op
  std::string flight;      // folder of flight records; empty: the default one
  std::string version;     // of the binary: all must be of one
  Throttle throttle;       // of what ops exchange between processes
};

// The first line of each `what`, of lines `what=way`.
std::string first_lines(std::span<const std::string> all);

// REHEARSE_NEIGHBORS=0: no; processes of one machine talk over TCP as those of several do.
bool shared_memory_allowed();

class Processes {
 public:
  // Alone. `say` prints one line.
  explicit Processes(std::function<void(const std::string&)> say) : say_(std::move(say)) {}
  ~Processes();
  // As the launch says; reads the run's secret (exec/store/secret.h). REQUIRES: plan and schedule
  // outlive it. Error: a secret that cannot be; `machine`: who does not come.
  Result<> join(const LaunchEnvironment& launch, const Plan& plan, const Schedule& schedule,
                const ProcessOptions& options);

  bool first() const { return group_ == nullptr || group_->launch().process == 0; }
  // on this machine
  int here() const { return group_ == nullptr ? 1 : group_->launch().local_processes; }
  // by a launcher of ours
  bool launched() const { return group_ != nullptr && group_->launch().launched(); }
  int count() const { return group_ == nullptr ? 1 : group_->launch().processes; }
  // What the interpreter gets; null when alone.
  Communicator* communicator() const { return communicator_.get(); }
  Observer* observer() { return observer_ ? &*observer_ : nullptr; }

  // Every process calls these in the same order.
  Result<int> largest(int own);                       // over all processes
  Result<> agree(const Result<>& own);                // an error if one has one
  Result<std::string> share(const std::string& own);  // what process 0 brought
  // Lines `what=way` of every process: of each `what` those of the lowest process that has it.
  // Waits for all, however long they take to find theirs: one that dies is found by its heartbeat.
  Result<std::string> first_of_each(const std::string& own);
  int number() const { return group_ == nullptr ? 0 : group_->launch().process; }
  int local() const { return group_ == nullptr ? 0 : group_->launch().local; }  // on this machine
  // Fills what process 0 reports: start and end of the last step's ops on every rank, and the
  // longest process's time of every step. On the others it hands theirs over.
  Result<> gather(const Interpreter& process, Measurement& measurement);

  // What fail() is told next may be another process's fault: if one is dead or silent, it is named.
  void suspect_others() { others_fault_ = true; }
  // The run fails here, or ends here for another's fault. Prints (alone), or reports it for the one
  // line that names the culprit. Returns the exit code, with which the process ends soon.
  int fail(const std::string& message, int code);
  // All is done here. False: another process did not finish, and it is said.
  bool leave();

 private:
  Result<std::string> share(const std::string& own, double timeout_s);

  std::function<void(const std::string&)> say_;
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<ProcessCommunicator> communicator_;
  std::optional<Observer> observer_;
  double timeout_s_ = 600;
  int shared_ = 0;             // values shared so far
  bool others_fault_ = false;  // the error at hand is another process's
};

}  // namespace rehearse::exec
