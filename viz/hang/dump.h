// SPDX-License-Identifier: Apache-2.0
// What each rank of a job that hangs says it has called: PyTorch's Flight Recorder, as JSON.
//
// Format: torch/csrc/distributed/c10d/FlightRecorder.hpp (keys of a dump), and torch's own reader,
// torch/distributed/flight_recorder. Dumps are pickles where torch writes files: nothing is
// unpickled here, docs/flight_recorder_json.py turns them into JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/json_reader.h"

namespace rehearse::viz {

enum class CallState : std::uint8_t { Scheduled, Started, Completed };

// A collective, or one end of a transfer, as one rank called it.
struct Call {
  std::int64_t record = 0;    // in the order in which the rank called
  std::string group;          // "default_pg", or the group's name where it has no description
  std::int64_t sequence = 0;  // of the group's collectives, as the rank counts them
  std::string op;             // "all_reduce", "send"
  std::int32_t peer = -1;     // of a transfer: the other end, a rank of the job; -1: a collective
  std::vector<std::string> shapes;  // of what it was called with: "4x16 float32"
  CallState state = CallState::Scheduled;
  std::string place;  // "train.py:42 step"; empty: not recorded

  bool transfer() const { return peer >= 0; }
};

struct DumpedGroup {
  std::string name;
  std::vector<std::int32_t> ranks;  // of the job, ascending
};

struct Dump {
  std::int32_t rank = -1;
  std::vector<DumpedGroup> groups;
  std::vector<Call> calls;  // in the order in which they were called
};

// Whether a document is a dump: of one rank, or a list of them.
bool is_dump(const JsonValue& document);
// Error: what the document lacks, by key. A dump without "rank" is of the rank whose number its
// file's name ends in.
Result<std::vector<Dump>> read_dumps(const JsonValue& document, const std::string& path);

}  // namespace rehearse::viz
