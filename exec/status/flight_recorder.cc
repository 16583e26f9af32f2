// SPDX-License-Identifier: Apache-2.0
#include "exec/status/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "schedules/base/bytes/whole_file.h"
#include "schedules/ir/listing.h"

namespace rehearse::exec {
namespace {

constexpr const char* kStreamNames[kNumStreams] = {"compute", "p2p", "dp", "h2d", "d2h"};

std::string op_name(const Schedule& schedule, std::int32_t op) {
  if (op < 0) return "null";
  std::string text = "\"";
  if (op < schedule.num_ops()) {
    for (const char c : op_label(schedule, {op})) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text + '"';
}

std::string waited_for(std::int32_t peer) {
  if (peer == kWaitsForNobody) return "null";
  return peer < 0 ? "\"group\"" : std::to_string(peer);
}

std::string event_json(const OpEvent& event, const Schedule& schedule) {
  const std::int32_t op = event.op.load(std::memory_order_relaxed);
  const std::int64_t ended = event.ended_ns.load(std::memory_order_relaxed);
  const std::size_t stream =
      std::min<std::size_t>(event.stream.load(std::memory_order_relaxed), kNumStreams - 1);
  return "{\"step\": " + std::to_string(event.step.load(std::memory_order_relaxed)) +
         ", \"op\": " + op_name(schedule, op) + ", \"id\": " + std::to_string(op) +
         ", \"stream\": \"" + kStreamNames[stream] +
         "\", \"began_ns\": " + std::to_string(event.began_ns.load(std::memory_order_relaxed)) +
         ", \"ended_ns\": " + (ended == 0 ? "null" : std::to_string(ended)) +
         ", \"waited_for\": " + waited_for(event.waits_for.load(std::memory_order_relaxed)) + "}";
}

std::string rank_json(const RankStatus& status, std::int32_t rank, const Schedule& schedule) {
  const std::int32_t step = status.step.load(std::memory_order_relaxed);
  std::string text =
      "{\n \"schema\": \"rehearse.flight/1\",\n \"rank\": " + std::to_string(rank) +
      ",\n \"step\": " + (step < 0 ? "null" : std::to_string(step)) + ",\n \"last_finished\": " +
      op_name(schedule, status.last_ended.load(std::memory_order_relaxed)) + ",\n \"events\": [";
  const std::uint32_t events = status.events.load(std::memory_order_relaxed);
  const std::uint32_t first =
      events > kFlightEvents ? events - static_cast<std::uint32_t>(kFlightEvents) : 0;
  for (std::uint32_t i = first; i < events; ++i) {
    text += i == first ? "\n  " : ",\n  ";
    text += event_json(status.ring[i % kFlightEvents], schedule);
  }
  return text + "\n ]\n}\n";
}

}  // namespace

std::string temporary_folder() {
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

std::string default_flight_folder() {
  return temporary_folder() + "/rehearse-flight-" + std::to_string(getpid());
}

Result<> dump_flight(const StatusBoard& board, std::int32_t first, std::int32_t last,
                     const Schedule& schedule, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{folder + ": " + error.message()};
  for (std::int32_t rank = first; rank < last; ++rank) {
    const std::string path = folder + "/rank-" + std::to_string(rank) + ".json";
    const Result<> written = write_whole(path, rank_json(board.rank(rank), rank, schedule));
    if (!written) return written;
  }
  return {};
}

}  // namespace rehearse::exec
