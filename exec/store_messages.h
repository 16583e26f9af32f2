// What store server and client say to one another. Not for anybody else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exec/wire.h"

namespace rehearse::exec {

inline constexpr std::uint32_t kStoreMagic =
    0x52485253;  // "SRHR": who speaks something else is cut off
inline constexpr std::uint32_t kStoreProtocol = 1;
inline constexpr std::size_t kMessageHeader = 4 + 1 + 8;
inline constexpr std::uint32_t kLargestStranger = 4096;       // body bytes of who has not joined
inline constexpr std::uint32_t kLargestMessage = 256u << 20;  // of a member

enum class StoreMessage : std::uint8_t {
  // client to server
  Hello,
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
  TimedOut,
  Heard,
  Abort,
};

struct Frame {
  StoreMessage type{};
  std::uint64_t request = 0;
  std::string body;
};

inline std::string frame_bytes(StoreMessage type, std::uint64_t request, std::string_view body) {
  WireWriter out;
  out.number(static_cast<std::uint32_t>(1 + 8 + body.size()));
  out.number(static_cast<std::uint8_t>(type)).number(request);
  return out.take().append(body);
}

// Takes the first whole message off `bytes` from `at` on. None: not all there yet, or `broken`.
inline std::optional<Frame> next_frame(const std::string& bytes, std::size_t& at,
                                       std::uint32_t largest_body, bool& broken) {
  if (bytes.size() - at < kMessageHeader) return {};
  WireReader header(std::string_view(bytes).substr(at, kMessageHeader));
  const auto length = header.number<std::uint32_t>();
  const auto type = header.number<std::uint8_t>();
  if (length < 9 || length - 9 > largest_body ||
      type > static_cast<std::uint8_t>(StoreMessage::Abort)) {
    broken = true;
    return {};
  }
  if (bytes.size() - at < 4 + std::size_t{length}) return {};
  Frame frame{static_cast<StoreMessage>(type), header.number<std::uint64_t>(),
              bytes.substr(at + kMessageHeader, length - 9)};
  at += 4 + std::size_t{length};
  return frame;
}

}  // namespace rehearse::exec
