// SPDX-License-Identifier: Apache-2.0
// The rendezvous store and control plane: one TCP connection per process, for the whole run. Both
// ends prove that they know the run's secret before anything else is said (exec/store/channel.h).
//
// Keys: set, get (waits), wait, add. Control: who has joined, heartbeats that carry what the
// process wants known (its ranks' status), reports of failures, an abort for all, and the notice
// that a connection closed. A client that does not know the secret, does not say in time who it is,
// or sends what is no message is cut off; it never holds up the others, and what it can make the
// server hold is bounded (exec/store/store_room.h). Nothing here waits without an end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/store/socket.h"
#include "schedules/base/result.h"

namespace rehearse::exec {

// Who joins, and what all who join must hold alike.
struct Identity {
  std::int32_t process = 0, processes = 1;
  std::int32_t ranks = 1;  // of the whole run, dealt in order
  std::string job;         // the launcher's nonce, or what names the job; another job is refused
  std::string version;     // of the binary
  std::string schedule_hash;
  // Never sent:
  std::string secret;             // of the run (exec/store/secret.h)
  std::uint32_t kept = 8u << 20;  // [B] of keys and values that one process may keep in the store

  std::int32_t first_rank() const { return process * (ranks / processes); }
  std::int32_t last_rank() const { return (process + 1) * (ranks / processes); }  // one past it
};

// A failure as the process that had it tells it.
struct FailureReport {
  enum class Kind : std::uint8_t {
    Own,       // something went wrong here: diverged, out of memory, a bad file
    Timeout,   // waited too long for another process
    PeerLost,  // a connection to another process broke
    Refused,   // could not join: another schedule, version, number of processes
  };
  Kind kind = Kind::Own;
  std::int32_t rank = -1;  // -1: the process's first
  std::int32_t exit_code = 3;
  std::string text;
};

// What the server knows of a process.
struct Member {
  enum class State : std::uint8_t { Expected, Joined, Left, Lost };  // Left: said goodbye
  State state = State::Expected;
  std::int64_t heard_ns = 0;  // when its last message came (monotonic_ns)
  std::string beat;           // its last heartbeat
  std::optional<FailureReport> report;
};

class StoreServer {
 public:
  // Listens and serves in a thread of its own. `expected` says how many processes there will be and
  // what they must hold; its `process` does not matter. Port 0: a free one, see port(). `at`: the
  // numeric address to listen at; empty: all of this machine's.
  static Result<std::unique_ptr<StoreServer>> start(const Identity& expected, std::uint16_t port,
                                                    const std::string& at = "127.0.0.1");
  // Stops; an abort that was asked for has gone out.
  ~StoreServer();

  std::uint16_t port() const;
  // The numeric address by which members reach this machine: from elsewhere, if some are elsewhere.
  std::string address() const;
  std::vector<Member> members() const;
  std::int64_t denied() const;  // connections that did not know the secret
  // Every member learns it, those that join later too: a run that is over is not joined.
  void abort(const std::string& why);
  // `changed` is called at every change of a member but its heartbeat, from the server's thread. To
  // be set before clients come.
  void on_change(std::function<void()> changed);
  // What heartbeats are answered with: Events::heard gets it. Before clients come.
  void answer_beats(std::function<std::string()> answer);

 private:
  struct Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class StoreClient {
 public:
  struct Events {
    std::function<std::string()> beat;                // what the next heartbeat says
    std::function<void(const std::string&)> heard;    // what the server answered it with
    std::function<void(const std::string&)> aborted;  // the server ended the run: why
    std::function<void(bool closed)>
        lost;  // the server closed, or has not answered for `silence_s`
  };
  // Tries until `timeout_s` is over. Events come from a thread of the client's own, until it ends;
  // at most one of aborted and lost, once. Error: nobody answers, or not with the same secret, or
  // why the server refuses this identity; with `infeasible` where it is of the server's own job
  // (then its member has a report).
  static Result<std::unique_ptr<StoreClient>> join(const std::string& host, std::uint16_t port,
                                                   const Identity& identity, double timeout_s,
                                                   double silence_s, Events events);
  // Closes. Without leave() before it the others take this process for dead.
  ~StoreClient();

  Result<> set(const std::string& key, const std::string& value);
  // Waits until somebody has set it. Error: timed out, or the run was aborted.
  Result<std::string> get(const std::string& key, double timeout_s);
  Result<> wait(const std::vector<std::string>& keys, double timeout_s);
  // Adds to a number that begins at 0; what it then is.
  Result<std::int64_t> add(const std::string& key, std::int64_t increment);
  // What to add to this process's monotonic_ns() to have the server's, from the fastest of eight
  // questions (error: half of its round trip).
  Result<std::int64_t> clock_offset();
  void report(const FailureReport& failure);
  void leave();
  // The numeric address by which this machine is reached from the server's side.
  const std::string& address() const;

 private:
  struct Impl;
  explicit StoreClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rehearse::exec
