// SPDX-License-Identifier: Apache-2.0
// The store without sockets: who has come, what they keep, what each is told. Bytes of a connection
// in, bytes of connections out. StoreServer puts it on a network, the fuzz target feeds it.
//
// What others can make it hold is bounded: strangers (who have not joined) to kStrangers
// connections of a few kilobytes for kStrangerNs, those first that have said nothing, the oldest
// before others; each process to one connection, one message (largest_body), `kept` bytes of keys
// and values, kWaits waits, and one unread value: a connection that does not read is not read from
// either (see wants_more).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "exec/store/channel.h"
#include "exec/store/store.h"

namespace rehearse::exec {

class StoreRoom {
 public:
  static constexpr std::int64_t kStrangerNs = 10'000'000'000;  // to join
  static constexpr std::size_t kStrangers = 128;               // connections, or one per process
  static constexpr std::size_t kWaits = 64;                    // of one process
  static constexpr std::size_t kUnread = 1u << 20;             // [B], above which nothing is added

  // A connection. `gone`: to be closed by who owns the socket, then forget()-ten.
  struct Seat {
    Channel channel;
    std::string address;        // numeric, of this end
    std::int32_t process = -1;  // -1: has not joined
    std::int64_t since_ns = 0;
    std::string out;       // to be sent, from `sent` on
    std::size_t sent = 0;  // of `out`
    bool closing = false;  // once `out` is sent
    bool gone = false;
    std::size_t unsent() const { return out.size() - sent; }
    bool wants_more() const { return !gone && !closing && unsent() <= kUnread; }
  };

  explicit StoreRoom(const Identity& expected);

  // --- of the server's thread; times are monotonic_ns() ---
  Seat& enter(const std::string& address, std::int64_t now_ns,
              const std::string& nonce = random_bytes(kNonceBytes));
  void receive(Seat& from, std::string_view bytes, std::int64_t now_ns);
  void was_sent(Seat& to, std::size_t bytes, std::int64_t now_ns);
  void lose(Seat& seat);             // its connection is closed, or shall be
  bool lose_oldest_stranger();       // false: there is none
  void attend(std::int64_t now_ns);  // waits that end, strangers that are late, the abort
  void forget_gone();
  std::list<Seat>& seats() { return seats_; }
  std::size_t kept() const;  // [B] of all processes

  // --- from any thread ---
  std::vector<Member> members() const;
  std::string address() const;
  std::int64_t denied() const;  // connections with another secret
  void abort(const std::string& why);
  void on_change(std::function<void()> changed);
  void answer_beats(std::function<std::string()> answer);

 private:
  struct Value {
    std::string bytes;
    std::int32_t owner = 0;  // the process that set it last, and pays for it
  };
  struct Waiter {  // of one Get or Wait
    Seat* who = nullptr;
    std::uint64_t request = 0;
    std::vector<std::string> keys;
    bool value = false;  // Get: answer with the value of its one key
    std::int64_t deadline_ns = 0;
  };
  void handle(Seat& from, const Frame& frame, std::int64_t now_ns);
  void join(Seat& from, const Frame& frame, std::int64_t now_ns);
  bool wait(Seat& from, const Frame& frame, std::int64_t now_ns);
  bool report(Seat& from, const Frame& frame);
  std::string refusal(const Identity& who) const;
  bool keep(std::int32_t process, const std::string& key, std::string value);
  void answer_waiters(std::int64_t now_ns);
  void say(Seat& to, StoreMessage type, std::uint64_t request, std::string_view body = {});
  template <class Change>
  void change(std::int32_t process, const Change& with);

  const Identity expected_;
  const StoreLimits limits_;
  std::list<Seat> seats_;
  std::list<Waiter> waiters_;
  std::map<std::string, Value> values_;
  std::vector<std::size_t> kept_;  // [B] by process
  bool abort_said_ = false;

  mutable std::mutex mutex_;  // of all that follows
  std::vector<Member> members_;
  std::optional<std::string> aborted_;
  std::string address_;
  std::int64_t denied_ = 0;
  std::function<void()> changed_;
  std::function<std::string()> beat_answer_;
};

}  // namespace rehearse::exec
