// SPDX-License-Identifier: Apache-2.0
// When each op began and ended, what memory and links did meanwhile, and the file that holds it.
//
// Simulated and measured steps leave the same trace; `label` tells them apart, and a measured one
// has a row for every rank (schedules/ranks/unfold.h). Columnar: entry i belongs to op i of the
// schedule that was performed. What ops that differ only by micro-batch share is one row of
// `classes`, so an op takes 28 B; its name is regenerated, never stored. Columns are owned or lie
// in the mapped file; both read alike. Not here: how anything is drawn or analysed (viz/).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/ir/op.h"
#include "schedules/ir/schedule.h"

namespace rehearse {

// A column: owned, or a view into the mapped file of its trace. Immutable once made.
template <class T>
class Column {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Column() = default;
  Column(std::vector<T> owned) : owned_(std::move(owned)), view_(owned_) {}
  static Column mapped(std::span<const T> view) {
    Column column;
    column.view_ = view;
    return column;
  }
  Column(Column&& other) noexcept
      : owned_(std::move(other.owned_)), view_(std::exchange(other.view_, {})) {}
  Column& operator=(Column&& other) noexcept {
    owned_ = std::move(other.owned_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }

  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  const T& operator[](std::size_t i) const { return view_[i]; }
  auto begin() const { return view_.begin(); }
  auto end() const { return view_.end(); }
  const T* data() const { return view_.data(); }
  std::span<const T> view() const { return view_; }

 private:
  std::vector<T> owned_;
  std::span<const T> view_;
};

// A file mapped for reading, unmapped at the end of its life.
class MappedTrace {
 public:
  MappedTrace() = default;
  MappedTrace(const void* data, std::size_t size) : data_(data), size_(size) {}
  MappedTrace(MappedTrace&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedTrace& operator=(MappedTrace&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedTrace();
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  const void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Why a compute stream is idle (report key `bubble_causes_s`). On disk: do not change or reorder.
enum class IdleCause : std::uint8_t {
  Warmup,
  Cooldown,
  Dependency,
  Communication,
  Contention,
  Straggler,
  Host,
  Resource,
  Imbalance,  // fewer rows of experts than the busiest rank
};
inline constexpr std::size_t kNumIdleCauses = 9;
inline constexpr std::string_view kIdleCauseNames[kNumIdleCauses] = {
    "warmup",    "cooldown", "dependency", "communication", "contention",
    "straggler", "host",     "resource",   "imbalance"};

// Imbalance stands in reports where there is some: of models with experts.
constexpr bool reports_cause(std::size_t cause, bool any) {
  return any || cause != static_cast<std::size_t>(IdleCause::Imbalance);
}

enum class TraceLabel : std::uint8_t { Predicted, Measured };

using TraceString = std::int32_t;  // index into Trace::strings; -1: none

// What the ops that differ only by micro-batch (and by match) share.
struct TraceClass {
  OpKind kind{};
  Stream stream{};
  Payload payload{};
  std::int8_t slice = -1;
  std::int16_t slot = 0;  // lane of its row that it runs on, see Trace::lanes
  std::int16_t segment_begin = 0, segment_end = -1;  // as in Op
  OpKind first_kind{}, second_kind{};                // Overlap: kinds of its two ops
  std::int8_t second_slice = -1;
  std::uint8_t apart = 0;  // 1: a backward, or half, whose micro-batch has an R of its own
  Stage stage{};           // Overlap: of the first op
  Stage second_stage{};
  TraceString group = -1;   // collectives: "dp", "embed"; else none
  TraceString bucket = -1;  // "L3"
  TraceString name = -1;    // foreign ops: their name; -1: regenerate
  std::int64_t bytes = 0;   // transfers, collectives: payload [B]; 0: not known
  bool operator==(const TraceClass&) const = default;
};
static_assert(sizeof(TraceClass) == 48);

struct TraceRow {
  Position position{};
  std::int32_t multiplicity = 1;    // ranks that share this row
  Rank first_rank{};                // lowest of them; none: not known
  TraceString name = -1;            // "rank 0-7"; none: made from position
  std::int64_t capacity_bytes = 0;  // device memory; 0: not known
  bool operator==(const TraceRow&) const = default;
};

struct TraceLane {
  Stream stream{};
  std::uint8_t reserved[3] = {};
  TraceString name = -1;  // foreign lanes; none: the stream's name
  bool operator==(const TraceLane&) const = default;
};

// [begin, end) in which the row's compute stream has no op.
struct IdleSpan {
  std::int64_t begin = 0, end = 0;  // [ns]
  OpId op{};                        // the op that ends the gap; none: the step's end does
  IdleCause cause{};
  std::uint8_t reserved[3] = {};
  bool operator==(const IdleSpan&) const = default;
};

struct TraceLink {
  TraceString name = -1;
  std::int32_t reserved = 0;
  std::int64_t bytes_per_second = 0;
  bool operator==(const TraceLink&) const = default;
};
// From `time` on (until the link's next sample) the link is used to `load_ppm` / 10^6.
struct LinkSample {
  std::int64_t time = 0;  // [ns]
  std::int32_t load_ppm = 0, reserved = 0;
  bool operator==(const LinkSample&) const = default;
};

// A place in memory that ops touch, as schedule.h's Value; `bucket` is its bucket's name.
struct TraceValue {
  ValueKind kind{};
  Home home{};
  std::uint8_t shard = 0, persistent = 0;  // 0 or 1
  RankClass row{};
  Stage stage{};
  Microbatch microbatch{};
  std::int16_t segment_begin = 0, segment_end = -1;
  TraceString bucket = -1;
  std::int32_t instance = -1;
  OpId define{}, last_use{}, hold_until{};
  std::int64_t bytes = 0, offset = -1;  // [B]; offset -1: in no arena
  bool operator==(const TraceValue&) const = default;
};
static_assert(sizeof(TraceValue) == 56);

struct TraceOperand {
  std::int32_t value = 0;  // index into Trace::values
  std::int16_t version = 0;
  Access access{};
  std::uint8_t last = 0;  // 1: the value's life ends with this op
  bool operator==(const TraceOperand&) const = default;
};
static_assert(sizeof(TraceOperand) == 8);

// One kernel or collective inside a compute op (body.h's Node).
struct TraceNode {
  TraceString name = -1;        // "gemm qkv + bias"
  std::uint8_t collective = 0;  // 1: `bytes` is its payload, the whole array
  std::uint8_t overlapped = 0;  // 1: runs beside its neighbours; `time_ns` is its time alone
  std::uint8_t recompute = 0;   // 1: a forward's node, run again in the backward
  std::uint8_t level = 255;     // what its time rests on, a number of the predictor's; 255: unknown
  std::int64_t m = 0, n = 0, k = 0, batch = 1;  // products: C(m, n) += A(m, k) B(k, n)
  std::int64_t flops = 0, bytes = 0;            // bytes: to and from device memory
  std::int64_t time_ns = -1;                    // predicted, alone; -1: unknown
  bool operator==(const TraceNode&) const = default;
};
static_assert(sizeof(TraceNode) == 64);

// Who meets in a node that is a collective, and which node waits for it: those before it may run
// meanwhile; -1: none may.
struct TraceMeeting {
  std::int32_t node = 0, until = -1;  // indices into Trace::nodes
  OpKind kind{};                      // RingExchange: Send
  GroupKind group{};
  std::uint8_t reserved[2] = {};
  bool operator==(const TraceMeeting&) const = default;
};
static_assert(sizeof(TraceMeeting) == 12);

// Nodes [node_begin, node_end) in the order in which they run.
struct TraceBody {
  TraceString name = -1;  // "layer F"
  std::int32_t node_begin = 0, node_end = 0;
  std::int32_t reserved = 0;
  bool operator==(const TraceBody&) const = default;
};
// A body, `count` times in a row.
struct TraceBodyRun {
  std::int32_t body = 0, count = 1;
  bool operator==(const TraceBodyRun&) const = default;
};

struct Trace {
  TraceLabel label = TraceLabel::Predicted;
  std::string schedule_hash;  // content_hash of the schedule as lowered; empty: foreign
  std::string schedule_name;  // generator and arguments
  std::string title;          // scenario's name, or file
  std::string caption;        // assumed durations, device: written on figures
  std::int32_t microbatches = 0;
  // Steps that a profile of PyTorch marks (ProfilerStep#N); 0: none. Files of ours do not hold
  // this.
  std::int32_t profiled_steps = 0;
  Nanoseconds begin{}, end{};  // first start and last end over all ops

  std::vector<std::string> strings;
  Column<TraceRow> rows;
  Column<std::int64_t> row_begin;  // ops of row r are [row_begin[r], row_begin[r+1])
  // Row of the schedule that row r performs, where every rank has a row of its own (a measured
  // trace): op k of row r is op k of that row. Empty: row r performs row r.
  Column<std::int32_t> row_class;
  std::int32_t slots = 0;   // lanes per row, equal for all rows; unused ones are empty
  Column<TraceLane> lanes;  // of row r: [r * slots, (r+1) * slots)
  Column<TraceClass> classes;

  // Per op. On one lane ops do not overlap and come in order of time.
  Column<std::int64_t> start_ns, end_ns;  // 0 <= start <= end
  Column<std::int32_t> op_class;          // index into classes
  Column<std::int32_t> microbatch;        // -1: none
  Column<std::int32_t> partner;           // MatchId; Overlap: micro-batch of its second op

  // Optional, empty where not known. Per op:
  Column<std::uint8_t> cost_level;         // as TraceNode::level
  Column<std::int64_t> expected_start_ns;  // measured traces: what had been predicted
  Column<std::int64_t> communicating_ns;   // its body waits for its own collectives (idle)
  // Per row, cut by offsets (num_rows + 1 entries):
  Column<std::int64_t> idle_begin;
  Column<IdleSpan> idle;  // in order of time, not overlapping
  Column<std::int64_t> memory_begin;
  Column<std::int64_t> memory_time;       // [ns]; from then on the bytes below hold
  Column<std::int64_t> memory_bytes;      // sample-major: [sample * memory_parts.size() + part]
  std::vector<std::string> memory_parts;  // "parameters", "activations" ... (report's words)
  // Per link:
  Column<TraceLink> links;
  Column<std::int64_t> link_begin;
  Column<LinkSample> link_samples;
  // Ops that must have ended before op i starts: waits[wait_begin[i] .. wait_begin[i+1]).
  // Order inside a lane and between ops of equal match is implied.
  Column<std::int32_t> wait_begin;
  Column<std::int32_t> waits;
  // What op i reads and writes: operands[operand_begin[i] .. operand_begin[i+1]).
  Column<std::int32_t> operand_begin;
  Column<TraceOperand> operands;
  Column<TraceValue> values;
  // What ops of class c run: runs[run_begin[c] .. run_begin[c+1]), in order.
  Column<std::int32_t> run_begin;
  Column<TraceBodyRun> runs;
  Column<TraceBody> bodies;
  Column<TraceNode> nodes;
  Column<TraceMeeting> meetings;  // of nodes that are collectives, ascending; empty: not known
  // For a run on this machine's CPU, over all its processes: what was planned to be resident at the
  // peak, and what the system counted; 0: not known. [B]
  Column<std::int64_t> resident_bytes;  // planned, measured; or empty

  // How many tokens chose each expert in each step of a run of a model with experts,
  // expert_rows[(step * expert_layers.size() + layer) * experts + expert].
  Column<std::int32_t> expert_shape;   // experts of a layer, ranks that share them; or empty
  Column<std::int32_t> expert_layers;  // which layers have experts, ascending
  Column<std::int32_t> expert_steps;   // numbers of the steps, from 0, ascending
  Column<std::int64_t> expert_rows;

  std::int64_t planned_resident() const { return resident_bytes.empty() ? 0 : resident_bytes[0]; }
  std::int64_t measured_resident() const { return resident_bytes.empty() ? 0 : resident_bytes[1]; }

  MappedTrace mapping;  // holds the mapped columns

  std::int32_t num_ops() const { return static_cast<std::int32_t>(start_ns.size()); }
  std::int32_t num_rows() const { return static_cast<std::int32_t>(rows.size()); }
  std::int32_t num_lanes() const { return num_rows() * slots; }
  const TraceClass& class_of(OpId op) const {
    return classes[static_cast<std::size_t>(op_class[op.index()])];
  }
  RankClass row_of(OpId op) const;  // binary search
  std::int32_t lane_of(OpId op) const { return row_of(op).value * slots + class_of(op).slot; }
  std::string_view text(TraceString id) const {
    return id < 0 ? std::string_view{} : std::string_view{strings[static_cast<std::size_t>(id)]};
  }
  Nanoseconds step() const { return end - begin; }
};

// In torch's notation (text.h), or the foreign name.
std::string op_name(const Trace& trace, OpId op);
// "rank 0", "rank 0 (x8)" where it stands for eight, "position 3".
std::string row_name(const Trace& trace, RankClass row);
// "compute", "p2p", "dp", ... or the foreign lane's name.
std::string lane_name(const Trace& trace, std::int32_t lane);
std::string_view stream_name(Stream stream);

struct TraceOptions {
  TraceLabel label = TraceLabel::Predicted;
  std::string title, caption;
  std::vector<TraceRow> rows;  // per row; empty: from the schedule, without ranks and capacity
  // Where the schedule was unfolded: per row, the row of the one that it was unfolded from; and
  // that one's hash. Empty: `schedule` is as it was lowered.
  std::vector<std::int32_t> row_class;
  std::string schedule_hash;
  bool waits = true;  // keep the schedule's waits (about 8 B per op): critical path
  // Operands and values take some 100 B per op: of longer schedules they are left out.
  std::int32_t most_ops_with_operands = 1 << 20;
};

// REQUIRES: start and end have one entry per op of the schedule, 0 <= start <= end. Ops of one
// stream that overlap (grouped transfers) get lanes of their own. Optional columns are the
// caller's: `trace.idle = std::vector<IdleSpan>{...}`.
Trace make_trace(const Schedule& schedule, std::span<const Nanoseconds> start,
                 std::span<const Nanoseconds> end, TraceOptions options = {});

// Little-endian, 64 B aligned sections; by atomic rename. Equal traces give equal bytes.
Result<> write_trace(const Trace& trace, const std::string& path);
// Maps the file and proves every offset, index and order that the columns promise.
// Error: one line, "FILE: what is wrong".
Result<Trace> read_trace(const std::string& path);
// What of these promises a trace breaks, for traces made elsewhere; empty: none.
std::string trace_fault(const Trace& trace);
// True if the file begins like a trace of ours (else: foreign, see viz/import/import.h).
bool is_trace_file(const std::string& path);

}  // namespace rehearse
