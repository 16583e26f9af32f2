// SPDX-License-Identifier: Apache-2.0
// The schedules that we can generate, by name: one row each. Readers, command line, search and
// tests walk this table; nothing else knows a schedule by its name.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"
#include "schedules/order/growing.h"
#include "schedules/timing/compute_timing.h"

namespace rehearse {

// What a generator is asked for. A 0 means "left out": the schedule's own default (resolve_shape).
struct ScheduleShape {
  std::int32_t positions = 1;     // p: ranks of the pipeline
  std::int32_t microbatches = 1;  // m: per step, both directions together
  std::int32_t chunks = 0;        // v: virtual stages per position
  std::int32_t group_size = 0;    // N of the interleaved orders
  std::int32_t extra_warmup = 0;  // forwards more before the first backward (interleaved_1f1b)
  std::int32_t slices = 0;        // sequence slices per micro-batch, of sliced schedules
  bool pairs = false;  // steady forwards and backwards run as overlapped pairs (Pairing::Asked)
  // Planned schedules only: activations per position as a multiple of 1F1B's peak on position 0,
  // and the durations that the plan is made for.
  double memory_limit = 0;
  PositionTimes times;
  std::vector<StageTimes> stage_times;  // per stage, where stages differ; wins over `times`
};

// How many stages a schedule has, and where they lie.
enum class ChunkRule : std::uint8_t {
  One,             // p stages, stage s on position s
  Many,            // p * v stages, stage s on position s mod p
  V,               // 2p stages, stage s on positions s and then 2p-1-s
  Waves,           // p * v stages, v even: V after V
  Bidirectional,   // p stages, each on two positions; half of the micro-batches runs upward
  BidirectionalV,  // 2p stages in a V, each on two positions
  Any,             // whichever is best (auto); chunks left out: any of the above
};

// Whether a forward of one micro-batch runs beside the backward of another, as one op.
enum class Pairing : std::uint8_t { Never, Asked, Always };

// How orders grow with their micro-batches: by how many of them the middle of every row repeats
// itself. The order of so many more is the same with one repetition more, once there are twice as
// many as positions and of a group.
enum class Growth : std::uint8_t {
  Otherwise,  // several parts grow (all forwards, then all backwards), or it is searched for
  ByOne,
  ByTwo,    // one of each direction
  ByGroup,  // N
};

struct ScheduleInfo {
  std::string_view name;                      // canonical, as in a scenario's plan.schedule
  std::array<std::string_view, 5> aliases{};  // further spellings, lower case with `_`
  ChunkRule chunks = ChunkRule::One;
  bool splits_backward = false;  // lists I and W instead of B
  bool sliced = false;           // takes `slices`
  bool grouped = false;          // takes `group_size` (N)
  bool extra_warmup = false;     // takes `extra_warmup`
  bool planned = false;          // takes durations and `memory_limit`
  double default_memory = 0;     // of planned ones: memory_limit where it is left out
  bool one_stage = false;        // p = 1 alone
  Pairing pairing = Pairing::Never;
  bool serial = false;      // one position works at a time
  bool dominated = false;   // always as slow as another that needs no more memory
  bool asked_only = false;  // `search` tries it where it is named
  // What p and m must satisfy beyond >= 1 (at p = 1 every shape is legal).
  bool even_positions = false;     // p even
  bool even_microbatches = false;  // m even
  std::int32_t least_rounds = 0;   // m >= least_rounds * p
  bool rounds = false;             // p divides m
  Growth growth = Growth::ByOne;
  // REQUIRES: a shape that resolve_shape returned, positions >= 2 or more than one chunk.
  Result<Schedule> (*generate)(const ScheduleShape& shape) = nullptr;
  // Where it is found in the rules that make the order, in place of `growth`. REQUIRES: the same.
  Growing (*growing)(const ScheduleShape& shape) = nullptr;
};

std::span<const ScheduleInfo> schedule_table();  // every schedule, in the order of the documents

// The row of a name in any spelling ("1F1B", "ZB-H1", "zb_h1"); nullptr where there is none.
const ScheduleInfo* find_schedule(std::string_view name);
// What to say of a name without a row, which is `shown` as the reader quotes it: that it is unknown
// and what the nearest known one is (all of them where every name is more than half of this one
// away).
std::string unknown_schedule(std::string_view name, const std::string& shown);

// The shape with every default filled in, or what is wrong with it ("chunks: ...", "group_size:
// ...", "microbatches: ...": the key, then the reason). Defaults: docs/schedules.md.
Result<ScheduleShape> resolve_shape(const ScheduleInfo& info, const ScheduleShape& shape);
// The N of interleaved orders where it is left out: the smallest N >= p for which the last group of
// micro-batches is whole or holds at least p of them; m where m < p.
std::int32_t default_group_size(std::int32_t positions, std::int32_t microbatches);

// The shape's shorter orders. Of a schedule that is known to grow they are its orders of fewer
// micro-batches, all that have twice as many as positions and of a repetition; where `growing`
// finds them the rules are tried out. REQUIRES: a shape that resolve_shape returned.
Growing growing_of(const ScheduleInfo& info, const ScheduleShape& shape);

// Where the stages of its orders lie. REQUIRES: chunks are filled in (resolve_shape); not
// ChunkRule::Any, which chooses, but on one position.
Placement placement_of(const ScheduleInfo& info, const ScheduleShape& shape);

// A schedule at Level::Compute: ops, row_begin, placement, microbatches, slices, name. At p = 1
// with one chunk every name gives the micro-batches one after another.
Result<Schedule> generate(std::string_view name, const ScheduleShape& shape);

// Stages that one micro-batch visits on one position: what its times are divided by (1, v or 2).
std::int32_t visited_chunks(const Schedule& schedule);

}  // namespace rehearse
