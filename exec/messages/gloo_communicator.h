// SPDX-License-Identifier: Apache-2.0
// Ranks of several processes meet over Gloo (TCP): the Communicator of the CPU backend.
//
// Gloo carries tagged messages between processes, over one full mesh; the collectives are composed
// of them (exec/messages/composed_collectives.h), because Gloo's own sum in an order of their own.
// Processes of one machine read each other's memory instead, where that is allowed
// (exec/messages/shared_memory_transport.h).
//
// Gloo is a module (schedules/base/installed/module.h): where it is not installed, connect_gloo
// says so.
#pragma once

#include <functional>
#include <memory>

#include "exec/backend/communicator.h"
#include "exec/store/store.h"
#include "schedules/base/throttle.h"

namespace rehearse::exec {

bool has_gloo();  // its module is installed; loads nothing

// What went wrong first, for who must say whose fault a failed run is.
enum class GlooTrouble : std::uint8_t { None, Timeout, PeerLost, Ended };

class ProcessCommunicator : public Communicator {
 public:
  // Every call under way and to come ends with this error, soon. From any thread.
  virtual void end(const std::string& why) = 0;
  virtual GlooTrouble trouble() const = 0;
  // How many of the other processes are reached through memory, not TCP.
  virtual std::int32_t reached_through_memory() const = 0;
  // The largest of all processes' values; every process calls it in turn. Waits.
  virtual Result<double> largest(double value) = 0;
};

struct GlooOptions {
  std::int32_t process = 0, processes = 1;
  std::int32_t ranks = 1;  // of the run; `processes` divides it
  std::string address;     // numeric, of this machine: listens there while they meet, nowhere else
  std::string secret;      // of the run; the others prove over their connections that they know it
  double timeout_s = 600;  // of one exchange
  bool shared_memory = true;  // false: this process by TCP within its machine too
  Throttle throttle;          // what ops exchange with other processes, as slow as this
};

// Meets the other processes through keys of the store. Error: who does not come, within the
// timeout, or does not know the secret. What follows on Gloo's connections is not authenticated.
Result<std::unique_ptr<ProcessCommunicator>> connect_gloo(const GlooOptions& options,
                                                          StoreClient& store);

struct GlooModule {
  static constexpr const char* kName = "gloo";
  static constexpr const char* kMissing =
      "no Gloo here, which carries data between processes: install rehearse-gloo, or build with "
      "libgloo-dev";
  static constexpr int kVersion = 1;
  int version = 0;
  decltype(&connect_gloo) connect = nullptr;
};

}  // namespace rehearse::exec
