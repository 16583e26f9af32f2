// SPDX-License-Identifier: Apache-2.0
// Watches over all processes of a run: hosts their store, notices when one fails or falls silent,
// judges who is to blame, and ends the run for all. The launcher has one; where processes were
// started by torchrun, Slurm or mpirun, process 0 has it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/processes/diagnosis.h"
#include "exec/store/store.h"

namespace rehearse::exec {

class Supervisor {
 public:
  struct Options {
    Identity expected;  // what all must hold
    std::uint16_t port = 0;
    std::string listen = "127.0.0.1";  // StoreServer::start's `at`
    const Schedule* schedule = nullptr;
    std::vector<RankClass> rows;  // of the ranks
    const StatusBoard* board = nullptr;
    bool shared = false;     // all processes write the board; else heartbeats fill it
    std::int32_t host = -1;  // the process that this is: heartbeats are answered with its status
    double timeout_s = 600;  // of one op
    double join_s = 300;     // until everybody has joined
    std::string flight;      // where flight records go
    std::function<void(const FailureAttribution&)>
        failed;  // once, from a thread of the supervisor's
  };
  // REQUIRES: schedule and board outlive it.
  static Result<std::unique_ptr<Supervisor>> start(Options options);
  ~Supervisor();

  std::uint16_t port() const;
  std::string address() const;  // StoreServer's
  // What a launcher knows of its children. Finished: ended with `code`, well or not.
  void process_is(std::int32_t process, ProcessView::How how, int code);
  std::optional<FailureAttribution> attribution() const;
  // Until every process has said goodbye; false: some has not within `timeout_s`, or the run
  // failed.
  bool wait_for_goodbyes(double timeout_s) const;

 private:
  struct Impl;
  explicit Supervisor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What one process may keep in the store [B]: the times of its ranks' ops and of its steps, twice
// over, and what it takes to meet. `rows`: by rank.
std::uint32_t store_share(const Schedule& schedule, std::span<const RankClass> rows,
                          std::int32_t processes, std::int64_t steps);

}  // namespace rehearse::exec
