// SPDX-License-Identifier: Apache-2.0
// What the program that started this process says of the others: torchrun's variables, Slurm's or
// Open MPI's, or our own launcher's. Reads the environment, nothing else.
//
// All processes are known to be on one host where the launcher is ours or counts them so, and where
// MASTER_ADDR is a loopback address, which nobody else can reach.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "schedules/base/result.h"

namespace rehearse::exec {

struct LaunchEnvironment {
  std::int32_t process = 0, processes = 1;
  std::int32_t local = 0;            // number on this machine: chooses the device
  std::int32_t local_processes = 1;  // on this machine; all where the launcher does not say
  bool one_host = false;             // all processes are on this machine, as far as is told
  std::string host;            // of process 0, where the store is; one_host: numeric, loopback
  std::uint16_t port = 29500;  // of the store
  std::string job;             // the same in all processes of the job, another in other jobs
  std::string by;              // "rehearse", "torchrun", "Slurm", "Open MPI"
  std::string secret;          // exec/store/secret.h; who joins fills it in
  int status_descriptor = -1;  // of the launcher's status board; -1: there is none
  bool launched() const { return status_descriptor >= 0; }  // by `rehearse run --processes`
};

// nullopt: started alone. Under torchrun's own store (TORCHELASTIC_USE_AGENT_STORE=True) its agent
// listens on MASTER_PORT: the store is one port further. Error: "WORLD_SIZE: …" what is wrong.
Result<std::optional<LaunchEnvironment>> read_launch_environment(
    const std::function<const char*(const char*)>& variable);

// The first host of Slurm's compressed list: "node[07-09,12],login" is node07.
std::string first_host(const std::string& node_list);

}  // namespace rehearse::exec
