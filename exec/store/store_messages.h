// SPDX-License-Identifier: Apache-2.0
// What store server and client say to one another. Not for anybody else.
//
// Message: length u32 (of what follows), type u8, request u64, body (exec/store/wire.h); after the
// first two of a connection, a tag that proves who wrote it (exec/store/channel.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "exec/store/store.h"
#include "exec/store/wire.h"
#include "schedules/ir/op.h"

namespace rehearse::exec {

inline constexpr std::uint32_t kStoreMagic =
    0x52485253;  // "SRHR": who speaks something else is cut off
inline constexpr std::uint32_t kStoreProtocol = 2;
inline constexpr std::size_t kMessageHeader = 4 + 1 + 8;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kLargestKey = 256;    // [B]
inline constexpr std::size_t kLargestText = 2000;  // [B] of an error, as printable() counts

enum class StoreMessage : std::uint8_t {
  // both meet: Hello and Challenge carry nonces, Proof and Proved a tag, Denied is the last word
  Hello,
  Challenge,
  Proof,
  Proved,
  Denied,
  // client to server
  Join,
  Set,
  Get,
  Wait,
  Add,
  Clock,
  Beat,
  Report,
  Leave,
  // server to client
  Welcome,
  Refused,
  OtherJob,
  Value,
  Full,
  TimedOut,
  Heard,
  Abort,
};
inline constexpr std::uint8_t kStoreMessages = static_cast<std::uint8_t>(StoreMessage::Abort) + 1;

struct Frame {
  StoreMessage type{};
  std::uint64_t request = 0;
  std::string body;
};

// What bounds the messages of a run: both ends compute it from what they hold alike.
struct StoreLimits {
  std::uint32_t kept = 8u << 20;  // [B] that one process may keep in the store
  std::int32_t processes = 1;
  std::int32_t ranks_each = 1;
};

inline StoreLimits limits_of(const Identity& run) {
  return {.kept = run.kept, .processes = run.processes, .ranks_each = run.ranks / run.processes};
}

// The largest body [B] of a message: nothing larger is read, or kept.
inline std::uint64_t largest_body(StoreMessage type, const StoreLimits& limits) {
  const auto processes = static_cast<std::uint64_t>(limits.processes);
  switch (type) {
    case StoreMessage::Hello:
      return 4 + 4 + kNonceBytes;
    case StoreMessage::Challenge:
      return kNonceBytes;
    case StoreMessage::Proof:
    case StoreMessage::Proved:
    case StoreMessage::Denied:
    case StoreMessage::Clock:
    case StoreMessage::Leave:
    case StoreMessage::Welcome:
      return 0;
    case StoreMessage::Join:
    case StoreMessage::Get:
    case StoreMessage::Add:
    case StoreMessage::TimedOut:
      return 1024;
    case StoreMessage::Wait:
      return 4096 + 64 * processes;
    case StoreMessage::Set:
    case StoreMessage::Value:
      return std::uint64_t{limits.kept} + 4 + kLargestKey;
    case StoreMessage::Beat:
    case StoreMessage::Heard:  // the status of the ranks of one process
                               // (exec/processes/diagnosis.h)
      return 8 + static_cast<std::uint64_t>(limits.ranks_each) * (9 + 12 * kNumStreams);
    case StoreMessage::Report:
    case StoreMessage::Refused:
    case StoreMessage::OtherJob:
    case StoreMessage::Full:
      return 64 + 2 * kLargestText;
    case StoreMessage::Abort:  // with a path
      return 64 + 2 * kLargestText + 4096;
  }
  return 0;
}

}  // namespace rehearse::exec
