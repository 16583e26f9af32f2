// SPDX-License-Identifier: Apache-2.0
// One end of a connection to the store, without its socket: bytes in, messages out, and the
// reverse. Server and client prove to one another that they know the run's secret; nothing before
// that is believed, and every message after it carries a tag.
//
//   client              server
//   Hello {c}     ->                  magic, protocol, 32 random bytes c
//                 <-    Challenge {s} 32 random bytes s
//   Proof, tagged ->                  no body
//                 <-    Proved, tagged, or Denied
//   from here on every message is tagged, in both directions
//
//   key of a direction = HMAC(secret, "rehearse 2 " + direction + c + s)
//   tag = HMAC(key, number u64 of the message in its direction + length, type, request, body)
//
// The secret is never sent, and who listens learns nothing that helps to speak: fresh random bytes
// of both ends are in every key, so that what was recorded proves nothing on another connection;
// the number in every tag, so that no message can be repeated, left out or moved. Messages are not
// encrypted. HMAC is HMAC-SHA-256; tags are compared in constant time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "exec/store/hmac.h"
#include "exec/store/store_messages.h"

namespace rehearse::exec {

class Channel {
 public:
  enum class End : std::uint8_t { Server, Client };
  enum class State : std::uint8_t {
    Greeting,  // the other end has said nothing
    Proving,   // it has not proved that it knows the secret
    Open,      // it has
    Denied,    // the secrets differ; a server has yet to send that
    Broken,    // it sent what is no message of this protocol, or changed one on its way
  };
  // A client's Hello lies in take_reply() at once. REQUIRES: `nonce` is kNonceBytes long, and new.
  Channel(End end, std::string secret, const StoreLimits& limits,
          const std::string& nonce = random_bytes(kNonceBytes));

  State state() const { return state_; }
  // Bytes that came. At most one message of the largest kind is kept of them: call next() until
  // there is none, then take more, in pieces.
  void take(std::string_view bytes) { in_ += bytes; }
  // The next message of the run that is whole and true; performs the handshake on its way there.
  // None: more bytes are needed, or see state().
  std::optional<Frame> next();
  // What the handshake has to send now; empty: nothing.
  std::string take_reply() { return std::exchange(reply_, {}); }
  // The bytes of a message. They must be sent in the order of the calls, and only from one thread
  // at a time; next() may run in another. REQUIRES: Open (it may have broken since).
  std::string tagged(StoreMessage type, std::uint64_t request, std::string_view body);
  std::size_t buffered() const { return in_.size(); }

 private:
  std::optional<Frame> next_frame();
  bool greet(const Frame& frame);
  void make_keys(const std::string& client, const std::string& server);
  bool expected(StoreMessage type) const;
  bool is_tagged(StoreMessage type) const;

  End end_;
  State state_ = State::Greeting;
  std::string secret_, nonce_;
  StoreLimits limits_;
  std::string in_, reply_;
  std::size_t at_ = 0;  // of in_: what was taken
  std::string read_key_, write_key_;
  std::uint64_t read_ = 0, written_ = 0;  // tagged messages so far
};

}  // namespace rehearse::exec
