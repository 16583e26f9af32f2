// SPDX-License-Identifier: Apache-2.0
#include "exec/store/channel.h"

#include <utility>

namespace rehearse::exec {
namespace {

// Length, type, request and body as they are sent.
std::string plain(StoreMessage type, std::uint64_t request, std::string_view body,
                  std::size_t tag) {
  WireWriter out;
  out.number(static_cast<std::uint32_t>(1 + 8 + body.size() + tag));
  out.number(static_cast<std::uint8_t>(type)).number(request);
  return out.take().append(body);
}

std::string tag_of(const std::string& key, std::uint64_t number, std::string_view message) {
  return hmac_sha256(key, WireWriter().number(number).take().append(message));
}

bool from_client(StoreMessage type) {
  return type >= StoreMessage::Join && type <= StoreMessage::Leave;
}

}  // namespace

Channel::Channel(End end, std::string secret, const StoreLimits& limits, const std::string& nonce)
    : end_(end), secret_(std::move(secret)), nonce_(nonce), limits_(limits) {
  if (end == End::Server) return;
  WireWriter hello;
  hello.number(kStoreMagic).number(kStoreProtocol);
  reply_ = plain(StoreMessage::Hello, 0, hello.take() + nonce_, 0);
}

// Whether the other end may say this now.
bool Channel::expected(StoreMessage type) const {
  const bool server = end_ == End::Server;
  switch (state_) {
    case State::Greeting:
      return type == (server ? StoreMessage::Hello : StoreMessage::Challenge);
    case State::Proving:
      if (server) return type == StoreMessage::Proof;
      return type == StoreMessage::Proved || type == StoreMessage::Denied;
    case State::Open:
      return type >= StoreMessage::Join && from_client(type) == server;
    case State::Denied:
    case State::Broken:
      return false;
  }
  return false;
}

bool Channel::is_tagged(StoreMessage type) const {
  return state_ == State::Open || type == StoreMessage::Proof || type == StoreMessage::Proved;
}

// The next message that is whole, expected and not too large, its tag compared.
std::optional<Frame> Channel::next_frame() {
  const std::string_view rest = std::string_view(in_).substr(at_);
  if (rest.size() < kMessageHeader) return {};
  WireReader header(rest.substr(0, kMessageHeader));
  const auto length = header.number<std::uint32_t>();
  const auto code = header.number<std::uint8_t>();
  const auto type = static_cast<StoreMessage>(code);
  if (code >= kStoreMessages || !expected(type)) {
    state_ = State::Broken;
    return {};
  }
  const std::size_t tag = is_tagged(type) ? kTagBytes : 0;
  const std::uint64_t least = 1 + 8 + tag;
  if (length < least || length - least > largest_body(type, limits_)) {
    state_ = State::Broken;
    return {};
  }
  if (rest.size() - 4 < length) return {};
  const std::string_view message = rest.substr(0, 4 + std::size_t{length});
  const std::string_view said = message.substr(0, message.size() - tag);
  if (tag > 0 && !same_bytes(tag_of(read_key_, read_++, said), message.substr(said.size()))) {
    state_ = state_ == State::Proving ? State::Denied : State::Broken;
    if (state_ == State::Denied && end_ == End::Server) {
      reply_ += plain(StoreMessage::Denied, 0, {}, 0);
    }
    return {};
  }
  at_ += message.size();
  return Frame{type, header.number<std::uint64_t>(), std::string(said.substr(kMessageHeader))};
}

void Channel::make_keys(const std::string& client, const std::string& server) {
  const std::string up = hmac_sha256(secret_, "rehearse 2 client to server" + client + server);
  const std::string down = hmac_sha256(secret_, "rehearse 2 server to client" + client + server);
  read_key_ = end_ == End::Server ? up : down;
  write_key_ = end_ == End::Server ? down : up;
}

// A message of the handshake. false: it is not as it must be.
bool Channel::greet(const Frame& frame) {
  switch (frame.type) {
    case StoreMessage::Hello: {
      WireReader in(frame.body);
      const auto magic = in.number<std::uint32_t>(), protocol = in.number<std::uint32_t>();
      if (frame.body.size() != largest_body(frame.type, limits_) || magic != kStoreMagic ||
          protocol != kStoreProtocol) {
        return false;
      }
      make_keys(frame.body.substr(8), nonce_);
      reply_ += plain(StoreMessage::Challenge, 0, nonce_, 0);
      state_ = State::Proving;
      return true;
    }
    case StoreMessage::Challenge:
      if (frame.body.size() != kNonceBytes) return false;
      make_keys(nonce_, frame.body);
      reply_ += tagged(StoreMessage::Proof, 0, {});
      state_ = State::Proving;
      return true;
    case StoreMessage::Proof:
      reply_ += tagged(StoreMessage::Proved, 0, {});
      state_ = State::Open;
      return true;
    case StoreMessage::Proved:
      state_ = State::Open;
      return true;
    case StoreMessage::Denied:
      state_ = State::Denied;
      return true;
    default:
      return false;
  }
}

std::optional<Frame> Channel::next() {
  while (state_ != State::Denied && state_ != State::Broken) {
    const bool open = state_ == State::Open;
    std::optional<Frame> frame = next_frame();
    if (!frame) break;
    if (open) return frame;
    if (!greet(*frame)) state_ = State::Broken;
  }
  in_.erase(0, at_);
  at_ = 0;
  if (state_ == State::Denied || state_ == State::Broken) in_.clear();
  if (in_.empty() && in_.capacity() > (1u << 20)) std::string().swap(in_);
  return {};
}

std::string Channel::tagged(StoreMessage type, std::uint64_t request, std::string_view body) {
  std::string message = plain(type, request, body, kTagBytes);
  const std::string tag = tag_of(write_key_, written_++, message);
  return message += tag;
}

}  // namespace rehearse::exec
