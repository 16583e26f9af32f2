// SPDX-License-Identifier: Apache-2.0
// Groups of ranks that meet in collectives. What is true of a kind is one row of kGroupTraits; who
// the members are is derived from it (schedules/ranks/group_key.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/units.h"

namespace rehearse {

enum class GroupKind : std::uint8_t {
  Tensor,
  Context,
  Expert,     // ranks that share the experts; folded, like all kinds of experts below
  Data,       // all replicas of a position's parameters: along data and context
  Pipeline,   // all positions; its ranks send to each other and meet in no collective
  Embedding,  // the ends of the pipeline, which both use a tied table
  Mirror,     // the two positions that hold a stage's parameters, one in each direction
  World,
  Other,         // of a file, with a name of its own
  Shard,         // neighbouring replicas that hold the shards of one copy between them
  Replicate,     // the replicas that hold equal shards, one of every shard group
  ExpertTensor,  // ranks that share each expert's matrices
  ExpertData,    // replicas of the same experts: over them their gradients are summed
  ExpertBlock,   // expert and expert tensor together: one whole set of experts
  TensorRow,     // of a grid of tensor parallel ranks: those of one row, who have the same tokens
  TensorColumn,  // and those of one column, who have the same columns of hidden states
  ContextHeads,  // of the ranks that share a sequence the neighbours that exchange heads,
  ContextRing,   // and one of each such group: round it go keys and values
};
inline constexpr std::size_t kNumGroupKinds = 18;

// Which replicas meet, of those along the axes of a group: those of a neighbourhood, or one of
// each. How many make one, Mesh::neighbours says.
enum class ReplicaPart : std::uint8_t { All, Neighbours, Across };
// Which of the ranks of tp meet: of a grid (Plan::tensor_parallel_2d) a row or a column.
enum class TensorPart : std::uint8_t { All, Row, Column };

// Over which positions of the pipeline an instance spans.
enum class Positions : std::uint8_t { Own, All, Ends, Mirrored };
// How many members of an instance one row stands for (rows fold equal ranks into one).
enum class RowMembers : std::uint8_t {
  Inside,    // all of them where the row is folded, else one
  Replicas,  // the row's replicas
  Ranks,     // all ranks of the row
  One,
};

struct GroupTraits {
  std::string_view name;       // in files and for people
  bool tensor, context, data;  // axes of the mesh along which an instance spans
  Positions positions;
  RowMembers row_members;
  ReplicaPart part = ReplicaPart::All;
  // Axes of the folded mesh (schedules/scenario/mesh.h) along which an instance spans, in place of
  // the three above.
  bool expert_tensor = false, expert = false, expert_data = false;
  TensorPart tensor_part = TensorPart::All;

  constexpr bool is_folded() const { return expert_tensor || expert || expert_data; }
};

inline constexpr std::array<GroupTraits, kNumGroupKinds> kGroupTraits{{
    {"tp", true, false, false, Positions::Own, RowMembers::Inside},
    {"cp", false, true, false, Positions::Own, RowMembers::Inside},
    {"ep", false, false, false, Positions::Own, RowMembers::Inside, ReplicaPart::All, false, true,
     false},
    {"dp", false, true, true, Positions::Own, RowMembers::Replicas},
    {"pp", false, false, false, Positions::All, RowMembers::One},
    {"embed", false, false, false, Positions::Ends, RowMembers::One},
    {"mirror", false, false, false, Positions::Mirrored, RowMembers::One},
    {"world", true, true, true, Positions::All, RowMembers::Ranks},
    {"", false, false, false, Positions::Own, RowMembers::One},
    {"shard", false, true, true, Positions::Own, RowMembers::Inside, ReplicaPart::Neighbours},
    {"replicate", false, true, true, Positions::Own, RowMembers::Inside, ReplicaPart::Across},
    {"etp", false, false, false, Positions::Own, RowMembers::Inside, ReplicaPart::All, true, false,
     false},
    {"edp", false, false, false, Positions::Own, RowMembers::Inside, ReplicaPart::All, false, false,
     true},
    {"ep_etp", false, false, false, Positions::Own, RowMembers::Inside, ReplicaPart::All, true,
     true, false},
    {"tpr", true, false, false, Positions::Own, RowMembers::Inside, ReplicaPart::All, false, false,
     false, TensorPart::Row},
    {"tpc", true, false, false, Positions::Own, RowMembers::Inside, ReplicaPart::All, false, false,
     false, TensorPart::Column},
    {"cp_heads", false, true, false, Positions::Own, RowMembers::Inside, ReplicaPart::Neighbours},
    {"cp_ring", false, true, false, Positions::Own, RowMembers::Inside, ReplicaPart::Across},
}};

constexpr const GroupTraits& traits(GroupKind kind) {
  return kGroupTraits[static_cast<std::size_t>(kind)];
}
constexpr GroupKind group_kind(std::string_view name) {
  for (std::size_t k = 0; k < kNumGroupKinds; ++k) {
    if (kGroupTraits[k].name == name) return static_cast<GroupKind>(k);
  }
  return GroupKind::Other;
}
// Whether a collective over the group joins what replicas of the same parameters have.
constexpr bool is_over_replicas(GroupKind kind) {
  return traits(kind).data && !traits(kind).tensor;
}

// Ranks of a collective.
struct Group {
  GroupKind kind{};
  std::int32_t size = 1;        // ranks of one instance
  std::vector<RankClass> rows;  // that take part, folded or not; of Other: by instance and member
  std::string other_name;       // of GroupKind::Other

  std::string_view name() const {
    return kind == GroupKind::Other ? std::string_view(other_name) : traits(kind).name;
  }
};

}  // namespace rehearse
