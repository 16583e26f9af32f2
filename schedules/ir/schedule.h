// SPDX-License-Identifier: Apache-2.0
// A schedule: for every rank class, the ops in the order in which it issues them.
//
// Columnar: flat arrays cut by offsets; ids are positions in them, so side tables are plain
// vectors. One type for all levels. L0 (compute orders): ops and placement only. L1 without a
// model: also transfers, matches and waits. L1 of a scenario: also values, operands, groups,
// buckets, arena.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedules/ir/group.h"
#include "schedules/ir/op.h"
#include "schedules/ir/placement.h"

namespace rehearse {

enum class Level : std::uint8_t { Compute, Full };  // L0, L1

// What a value is, for the report's parts and for who may free it.
enum class ValueKind : std::uint8_t {
  Input,       // tokens, targets
  Activation,  // what a stage or segment hands on
  ActivationGradient,
  SavedForDgrad,  // slab I: what F keeps for I
  SavedForWgrad,  // slab W: what F keeps for W
  LeftForWgrad,   // what I leaves for W
  Workspace,      // defined and freed by one op
  Gradient,       // of a bucket (or its shard)
  FullParameter,
  ParameterShard,
  OptimizerState,  // master weights and moments
  Metrics,         // loss, norms
  // dK, dV of a slice of the sequence, fp32: the backwards of later slices add, its own ends it
  KeyValueGradient,
  RemadeForDgrad,  // what R makes again for I
  RemadeForWgrad,  // what R makes again for W
};
inline constexpr std::size_t kNumValueKinds = 15;
enum class Home : std::uint8_t { Device, Host, Nvme };  // Nvme: a file on the node's drives
inline constexpr std::size_t kNumHomes = 3;

// A place in memory on one row. Contents are SSA: each update writes the next version, and
// Operand::version names the one that is read (Update: read and replaced by version + 1).
struct Value {
  ValueKind kind{};
  Home home = Home::Device;
  bool persistent = false;  // alive before the first and after the last op of the step
  bool shard = false;       // Gradient: 1/d of its bucket
  RankClass row{};
  Stage stage{};  // activations, slabs, workspace
  Microbatch microbatch{};
  std::int16_t segment_begin = 0, segment_end = -1;  // the part that it belongs to, as in Op
  BucketId bucket{};
  // k-th gather of a bucket, use of a tied gradient; slice of activations, slabs
  std::int32_t instance = -1;
  OpId define{};      // first op that writes it; none: before the step
  OpId last_use{};    // last op that touches it, in program order; none: kept
  OpId hold_until{};  // last op at whose issue it still counts as alive (none: kept)
  Bytes bytes{};      // a multiple of nothing; the arena rounds to its alignment
  // In the row's arena, that of its home; -1: not planned, or the host's tokens, targets and norms,
  // which whoever performs the schedule has.
  Bytes offset{-1};
};

// Who places a value in host memory: whether the schedule places it, or whoever performs it has it.
constexpr bool in_host_arena(const Value& value) {
  return value.home == Home::Host && value.kind != ValueKind::Input &&
         value.kind != ValueKind::Metrics;
}

enum class Access : std::uint8_t { Read, Write, Update, Workspace };
struct Operand {
  ValueId value{};
  std::int16_t version = 0;
  Access access{};
  bool last = false;  // the value's life ends with this op on this op's stream
};

// Ranks that share one program: equal but for coordinates that do not matter (folding).
struct RankClassInfo {
  Position position{};
  std::int32_t multiplicity = 1;              // ranks that it stands for
  std::int32_t data_begin = 0, data_end = 1;  // their dp coordinates [begin, end)
};

// Where a parameter tensor lies. A table that embedding and head share has one place on a position,
// that of its first use there.
struct BucketTensor {
  BucketId bucket{};
  Stage stage{};
  std::int32_t segment = 0;  // in its stage
  std::int32_t tensor = 0;   // in segment_parameters() of that segment, or of the table's
  std::int64_t offset = 0;   // [elements]
};

// Flat block of whole segments' parameters; gradients, master weights and moments share its layout.
struct Bucket {
  std::string name;  // "L0", "E", "T"
  Position position{};
  std::int64_t partial = 0;   // leading elements whose gradient is partial over tp
  std::int64_t elements = 0;  // unpadded, per tp rank
  std::int64_t padded = 0;    // multiple of d * 64
  std::int32_t tensors = 0;
  bool tied = false;  // the vocabulary table of a tied embedding
  // Over whom its gradient is summed and its shards lie; between groups of these, where there are
  // several, what each of them has summed is summed over GroupKind::Replicate.
  GroupKind replicas = GroupKind::Data;
};

// What an op moves over a link (schedules/ir/payload.h).
struct Carried {
  std::int64_t elements = 0;
  std::int32_t element_bytes = 1;
  std::int64_t bytes() const { return elements * element_bytes; }
  bool operator==(const Carried&) const = default;
};

enum class SegmentKind : std::uint8_t { Embedding, Layer, Head };
struct SegmentInfo {
  SegmentKind kind{};
  std::int32_t layer = -1;  // model layer number for Layer
};

struct Schedule {
  Level level = Level::Compute;
  std::string name;  // generator and arguments: "interleaved_1f1b(p=2,m=2,v=2,N=2)"
  std::int32_t microbatches = 0;
  std::int32_t slices = 1;
  Placement placement;

  std::vector<Op> ops;                     // row after row, in issue order
  std::vector<std::int32_t> row_begin{0};  // row r is [row_begin[r], row_begin[r+1])
  std::vector<Op> children;                // pairs that OVERLAP ops run, F first

  // L1: ops of other streams of the same row that must have finished before op i may start (one
  // event each): waits[wait_begin[i] .. wait_begin[i+1]). Order inside a stream is implied.
  std::vector<OpId> waits;
  std::vector<std::int32_t> wait_begin{0};
  std::vector<std::uint8_t> wait_is_reuse;  // parallel to waits: 1 = memory reuse, 0 = data

  std::vector<RankClassInfo> rows;  // empty at L0: row r is position r
  std::vector<Group> groups;
  std::vector<Bucket> buckets;
  std::vector<BucketTensor> tensors;  // by position, in model order; empty in a file's schedule
  std::vector<std::vector<SegmentInfo>> segments;  // per stage; empty without a model
  std::vector<Value> values;
  std::vector<Operand> operands;  // operands[operand_begin[i] .. operand_begin[i+1])
  std::vector<std::int32_t> operand_begin{0};
  // By match: what its transfer or collective carries. Empty where nobody said. No part of the
  // hash.
  std::vector<Carried> carried;
  // Per row, after lifetimes are planned; host_bytes, nvme_bytes: the arenas of what plan.offload
  // keeps there. nvme_bytes is empty where it keeps nothing on drives.
  std::vector<Bytes> arena_bytes, live_peak_bytes, host_bytes, nvme_bytes;

  std::int32_t num_rows() const { return static_cast<std::int32_t>(row_begin.size()) - 1; }
  std::int32_t num_ops() const { return static_cast<std::int32_t>(ops.size()); }
  std::span<const Op> program(RankClass row) const {
    return std::span{ops}.subspan(first_op(row), first_op({row.value + 1}) - first_op(row));
  }
  std::size_t first_op(RankClass row) const {
    return static_cast<std::size_t>(row_begin[row.index()]);
  }
  RankClass row_of(OpId id) const;  // binary search
  const Group& group_of(const Op& op) const { return groups[op.group.index()]; }
  bool is_on(const Op& op, GroupKind kind) const { return op.group && group_of(op).kind == kind; }
  GroupId group(GroupKind kind) const;             // none: the schedule has none of this kind
  std::int32_t group_size(GroupKind kind) const {  // ranks of an instance; 1 where there is none
    const GroupId id = group(kind);
    return id ? groups[id.index()].size : 1;
  }
  std::int32_t replicas(const Bucket& bucket) const { return group_size(bucket.replicas); }
  // Elements of a bucket that one rank updates: its shard from ZeRO-1 on.
  std::int64_t owned_elements(const Bucket& bucket, std::int32_t zero_stage) const {
    return bucket.padded / (zero_stage >= 1 ? replicas(bucket) : 1);
  }
  std::span<const OpId> waits_of(OpId id) const { return cut(waits, wait_begin, id); }
  std::span<const Operand> operands_of(OpId id) const { return cut(operands, operand_begin, id); }
  Position position_of(RankClass row) const {
    return rows.empty() ? Position{row.value} : rows[row.index()].position;
  }
  void end_row() { row_begin.push_back(static_cast<std::int32_t>(ops.size())); }

 private:
  template <class T>
  static std::span<const T> cut(const std::vector<T>& all, const std::vector<std::int32_t>& begin,
                                OpId id) {
    if (begin.size() < 2) return {};
    const auto from = static_cast<std::size_t>(begin[id.index()]);
    return std::span{all}.subspan(from, static_cast<std::size_t>(begin[id.index() + 1]) - from);
  }
};

// Content hash (FNV-1a, 64 bit) over everything that execution depends on: ops, children,
// placement, waits, values, operands, groups. Names do not count. 16 hexadecimal digits.
std::string content_hash(const Schedule& schedule);

}  // namespace rehearse
