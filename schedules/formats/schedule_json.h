// SPDX-License-Identifier: Apache-2.0
// Schedule files in JSON: ours, and the fixtures' form, which is the same with other keys besides.
//
//   {"format": "rehearse.schedule", "version": "1.0", "generator": "1f1b(p=2,m=2)",
//    "hash": "0123456789abcdef", "microbatches": 2, "slices": 1,
//    "stage_to_rank": [0, 1],
//    "orders": [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]}
//
// Collectives of groups of one's own: `"groups": {"pairs": [[0, 1], [2, 3]]}`, all instances of a
// group of as many ranks, each in the order of its members; in `orders` an object
// {"op": "0SCATTER[pairs]", "bytes": 4096, "root": 0} on every member: bytes of the whole array of
// fp32 numbers, root the place of a member, 0 where it is left out.
//
// `orders` lists what every rank does, in op text (text_reader.h), with or without transfers;
// `orders_with_comms`, where it stands in this notation, is read instead. Needed is only one of the
// two: what else is left out is inferred (assemble.h). Bidirectional: `stage_to_rank` null and
// `placements`
// [{"microbatches": [first, last], "stage_to_rank": [...]}, {...}]. Keys of fixtures p, m, v,
// num_stages, seq_splits are read as what they are. Unknown keys are passed over, as versions to
// come may add some, but one within two edits of a key that is missing is an error.
// A full L1 of a scenario has its columns besides (schedule_columns.h); `orders` then lists what
// they hold, and both must agree.
#pragma once

#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"

namespace rehearse {

struct ScheduleFile {
  Schedule schedule;
  std::string declared_hash;  // empty: the file has none
  bool hash_matches = true;   // false: edited since it was generated
  std::string note;           // what the reader passed over; empty: nothing
};

// The document of a schedule file, which may hold a value for each of 2^28 ops, as far as an eighth
// of the memory that is there takes them (what grows takes several times its size).
Result<JsonValue> parse_schedule_document(std::string_view text, const std::string& path);
// Errors: "PATH:LINE: KEY: what is wrong". A version 2.x is refused.
Result<ScheduleFile> parse_schedule_json(std::string_view text, const std::string& path);
Result<ScheduleFile> schedule_from_json(const JsonValue& document, const std::string& path);
Result<ScheduleFile> read_schedule_json(const std::string& path);

// One document, a row per line.
std::string to_schedule_json(const Schedule& schedule);

}  // namespace rehearse
