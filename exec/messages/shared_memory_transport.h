// SPDX-License-Identifier: Apache-2.0
// Messages among the processes of one machine: a sender says where its data lies, and the receiver
// reads it out of the sender's memory (process_vm_readv; "cross memory attach" in MPI libraries).
// One copy, one wake-up at each end, no socket.
//
// The processes share a segment with a mailbox per pair. A message is a rendezvous: the send ends
// when the receiver has read. Processes are neighbors where they have the same kernel, namespaces
// of processes and of the network, and may read each other's memory (the same user; in a container,
// its rules for ptrace); among others there is no segment, and reaches() says no.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/messages/composed_collectives.h"
#include "exec/store/store.h"

namespace rehearse::exec {

class SharedMemoryTransport {
 public:
  struct Options {
    std::int32_t process = 0, processes = 1;
    std::int32_t ranks = 1;  // of the run; `processes` divides it
    bool willing = true;     // false: this process is nobody's neighbor
    double timeout_s = 600;  // of connect()
  };
  // Every process of the run calls it, each waits for all. Error: of the store. What the machine
  // does not allow is no error: then nobody is reached.
  static Result<std::unique_ptr<SharedMemoryTransport>> connect(const Options& options,
                                                                StoreClient& store);
  // The others then take this process for gone.
  ~SharedMemoryTransport();

  bool reaches(std::int32_t process) const;  // false: itself, too

  enum class Outcome : std::uint8_t { Done, Late, Gone, Ended };
  struct Moved {
    Outcome outcome = Outcome::Done;
    std::int32_t process = -1;  // of the message that was waited for
  };
  // Sends and receives all of it; waits until all is done, or nothing will be. Message::since
  // becomes when both ends had asked for it, and what copying takes later. Late: at `deadline`.
  // Gone: the other process has ended or closed, or lets nobody read. From any number of threads.
  // REQUIRES: reaches() all of them.
  Moved move(std::span<Message> messages, std::chrono::steady_clock::time_point deadline);
  void end();  // every move() under way and to come ends, soon

 private:
  struct Impl;
  explicit SharedMemoryTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rehearse::exec
