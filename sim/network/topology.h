// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a plan stand, which links a group of them uses, and with whom it shares them.
//
// Ranks fill nodes in order (rank / gpus_per_node). Nothing is unfolded: a program row stands for
// all ranks of a position, so *all* instances of its group run at once (every tensor-parallel index
// has its own data-parallel ring), and what a shape says already counts these siblings. Links that
// several rows use are the same ResourceId for all of them; equal links (all nodes of a position)
// are one resource. No times here: collective_cost.h and transfer_cost.h make them.
//
// Nothing is looked at per GPU either: replicas that stand on the links as the replicas before them
// do are left out (Network::leave_out_replicas), and what counts them is put right again.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/mesh.h"
#include "sim/cluster/cluster.h"
#include "sim/cost/cost.h"
#include "sim/network/collective_model.h"
#include "sim/network/torus.h"

namespace rehearse::sim {

// Where a link stands; `Out` and `In` are its two directions, which do not share.
enum class LinkKind : std::uint8_t {
  Port,    // a GPU's scale-up links: NVLink, xGMI; its PCIe link where there are none
  Torus,   // from a GPU of a torus to a neighbour
  Pcie,    // up-link of a PCIe switch
  Socket,  // between the sockets of a node (GPU traffic of PCIe-only nodes)
  Nic,     // what one or several GPUs of a node have of its NICs
  Leaf,    // leaf switch (scalable unit) to spine, where oversubscribed
  Pod,     // pod or data centre to core, where oversubscribed
};
inline constexpr std::size_t kNumLinkKinds = 7;
// "scale_up", "torus", "pcie", "socket", "nic", "leaf", "pod"
std::string_view name_of(LinkKind kind);
inline bool is_inside_node(LinkKind kind) {
  return kind < LinkKind::Nic;
}
// A GPU's own links to the others of its node.
inline bool is_scale_up(LinkKind kind) {
  return kind <= LinkKind::Torus;
}

struct Link {
  LinkKind kind{};
  bool outward = true;      // direction: leaving the block of GPUs below it; of a torus forward
  BytesPerSecond capacity;  // achievable, of one such link
  std::int32_t axis = 0;    // of a torus: along which it lies,
  std::int32_t gpu = 0;     // and the first GPU of a node that has such a link
};
std::string name_of(const Link& link);  // "nic out"; "torus axis 0 of gpu 3 forward"

// How much of a link an op occupies per byte. Both are of the most loaded of the equal links, with
// all siblings of the row together.
struct LinkUse {
  ResourceId resource{};
  LinkKind kind{};
  double ring = 0;      // [s per byte that one member sends around the ring]
  double pairwise = 0;  // [s per byte of one member's whole buffer in an all-to-all]
  double next = 0;      // of a torus: [s per byte that each member sends to the next of its group]
  // The share of a path that the row's own ranks ask for. The other rows of its position (replicas
  // that differ) ask for the rest, at about the same time.
  double part = 1;
};

// Which kinds of links some uses load.
using LinkKinds = std::array<bool, kNumLinkKinds>;
LinkKinds kinds_of(std::span<const LinkUse> uses);

// What ranks send from one process of a run to another, over the link of these two (`throttle`).
struct Crossing {
  ResourceId link{};
  std::int32_t senders = 1, receivers = 1;  // of an instance, in the one and in the other
  std::int32_t instances = 1;               // that do so at the same time
  bool next = true;  // the second process has the member behind the last one of the first
  bool operator==(const Crossing&) const = default;
};

// What is known of a group before an operation and a size are chosen: the same for all its
// instances (the worst of them where they differ).
struct GroupShape {
  std::int32_t ranks = 1;           // n
  std::int32_t nodes = 1;           // N: nodes that hold a member
  std::int32_t processes = 1;       // of a CPU's ranks: that hold a member
  std::int32_t ranks_per_node = 1;  // g: most members on one node
  std::int32_t siblings = 1;        // instances of this row with members on one node, at most
  double nics = 0;                  // NIC ports of one node for one instance; 0.5: a half-share
  std::int32_t pods = 1;            // pods (data centres) that hold a member
  std::int32_t turn_hops = 0, next_hops = 0, reach_hops = 0;  // on a torus (TorusGroup)
  std::vector<LinkUse> links;                                 // bandwidth terms; empty for one rank
  std::vector<Crossing> crossings;  // between throttled processes; empty: nothing is throttled
  bool operator==(const GroupShape&) const = default;
};

inline bool operator==(const LinkUse& a, const LinkUse& b) {
  return a.resource == b.resource && a.kind == b.kind && a.ring == b.ring &&
         a.pairwise == b.pairwise && a.next == b.next && a.part == b.part;
}

// The way from one row's ranks to the equal ranks of another (pipeline neighbours). It takes as
// long as for all rows of the position together: one row of all replicas, or a row for each.
struct Path {
  bool between_nodes = false;
  bool between_processes = false;  // of a CPU's ranks: some pair of them
  bool same_device = false;        // both stages on one position: no link at all
  bool crosses_pod = false;
  std::int32_t hops = 0;  // on a torus: links of the longest way, all of which the sender asks for
  std::vector<LinkUse> out, in;     // `ring` [s per byte that each rank sends]; for SEND, for RECV
  std::vector<Crossing> crossings;  // between throttled processes: ranks as instances
  double seconds_per_byte = 0;      // of the slowest link, siblings counted
  LinkKind link = LinkKind::Port;   // that link
};

// The mesh coordinates that vary inside one instance of a group.
struct GroupAxes {
  bool tensor = false, context = false, data = false;
  ReplicaPart part = ReplicaPart::All;       // of the replicas along context and data
  TensorPart tensor_part = TensorPart::All;  // of the ranks along tensor: a row or column of a grid
  std::vector<Position> positions;  // empty: the row's own; else the group spans these positions
  // `tensor`, `context`, `data` are those of the experts' mesh: tensor, expert and replicas.
  bool folded = false;
};
GroupAxes axes_of(GroupKind kind);  // without positions

// A link of one row, and what it is on another.
struct Counterpart {
  ResourceId here{}, there{};
};
// Demands on another row's links; what has no counterpart stays as it is.
std::vector<Demand> moved_to(std::span<const Counterpart> links, std::span<const Demand> demands);

class Network {
 public:
  // REQUIRES: cluster and model outlive the network. Row r of `rows` as in Schedule::rows; empty:
  // row r is position r. A plan with more GPUs than a node fills further nodes, the last in part.
  // `all_replicas`: every rank is looked at, for tests; nothing else differs.
  Network(const Cluster& cluster, const CollectiveModel& model, const Plan& plan,
          std::span<const RankClassInfo> rows, bool all_replicas = false);

  GroupShape group(RankClass row, const GroupAxes& axes) const;
  // By axis: Tensor, Context, Data (replicas without context), Pipeline (all positions), those of
  // experts and of a grid of tensor parallel ranks.
  GroupShape group(RankClass row, Axis axis) const;
  // The shape of a group of the schedule: along the axes and over the positions of its kind.
  GroupShape group(RankClass row, const Schedule& schedule, GroupId group) const;
  Path path(RankClass from, RankClass to) const;
  // Host copies: the PCIe (or C2C) link between the row's GPUs and their host. `out`: device to
  // host. Capacity shared by the GPUs of one switch is counted.
  Path to_host(RankClass row) const;

  // What the links of the groups (tp, cp, dp) of row `from` are on row `to`: each row has its own
  // ports, so a body priced once for all rows must not load one row's.
  std::vector<Counterpart> counterparts(RankClass from, RankClass to) const;
  // What rings of `members` GPUs of one node reach per GPU; what one pair of it reaches [B/s].
  double ring_bandwidth(std::int32_t members) const;
  double pair_bandwidth() const;
  const std::optional<Torus>& torus() const { return torus_; }

  std::int32_t num_rows() const { return static_cast<std::int32_t>(row_begin_.size()) - 1; }
  std::int32_t num_nodes() const { return nodes_; }
  std::int32_t replicas_left_out() const { return period_ * periods_left_out_; }
  // Resources are numbered 0 ... num_resources()-1 (CostTable::num_resources).
  // links(), then the links between throttled processes.
  std::int32_t num_resources() const {
    const std::int32_t processes = cluster_->throttle.on() ? cluster_->processes : 0;
    return static_cast<std::int32_t>(links_.size()) + processes * processes;
  }
  std::span<const Link> links() const { return links_; }
  const Cluster& cluster() const { return *cluster_; }
  const CollectiveModel& model() const { return *model_; }

 private:
  // A level of the machine: GPUs in blocks of equal size, each block with a link to the rest.
  struct Cut {
    LinkKind kind{};
    std::int32_t block = 1;                 // GPUs below one link
    double capacity = 0;                    // [B/s] per direction, what collectives reach
    bool for_groups = true;                 // false: host copies only
    std::vector<std::int32_t> resource_of;  // per block: its outward resource; inward is the next
  };
  struct Loads;  // link_loads.h
  // Chooses the mesh that is looked at. Replicas that stand `period` apart on the data axis stand
  // on the same place of every block that the cuts make (and of the experts' and the sharding
  // groups); so a machine without some whole periods in its middle has the same links with the same
  // loads. Four periods are kept at most: both ends and what lies between.
  void leave_out_replicas(const Plan& plan);
  void place_rows(std::span<const RankClassInfo> rows);
  void add_cut(LinkKind kind, std::int32_t block, double capacity, bool for_groups) {
    cuts_.push_back({.kind = kind, .block = block, .capacity = capacity, .for_groups = for_groups});
  }
  void add_node_cuts();
  void add_fabric_cuts();
  void number_links(Cut& cut);
  void number_torus_links();
  double scale_up_fraction() const;
  std::span<const std::int32_t> ranks_of(RankClass row) const;
  // The ranks of the row's position, by their coordinate along the data axis.
  std::vector<std::vector<std::int32_t>> replicas_beside(RankClass row) const;
  bool has_replica(RankClass row, std::size_t replica) const {
    const auto d = static_cast<std::int32_t>(replica);
    return d >= data_begin_[row.index()] && d < data_end_[row.index()];
  }
  std::int32_t node_of(std::int32_t rank) const { return rank / cluster_->gpus_per_node; }
  std::int32_t process_of(std::int32_t rank) const {
    return rank * cluster_->processes / mesh_.ranks();
  }
  void add_crossing(std::int32_t from, std::int32_t to, Crossing crossing,
                    std::vector<Crossing>& all) const;
  void count_crossings(std::span<const std::int32_t> members, GroupShape& shape) const;
  // Coordinates on tensor of the members of the x-th instance, of so many.
  std::vector<std::int32_t> tensor_members(const GroupAxes& axes, std::int32_t size,
                                           std::int32_t x) const;
  std::int32_t tensor_instances(const GroupAxes& axes, std::int32_t size) const;
  // Members of an instance: along the axes that it spans, else at the coordinate of `fixed`; of
  // those along tensor, fixed[0] is the number of the instance.
  void members_of(const GroupAxes& axes, const std::array<std::int32_t, 3>& size,
                  const std::array<std::int32_t, 3>& fixed,
                  std::vector<std::int32_t>& members) const;
  struct PartOfReplicas {
    std::int32_t tensor, instance, among;
    std::int32_t neighbours;  // of a neighbourhood
  };
  void part_members(const GroupAxes& axes, const std::array<std::int32_t, 3>& size,
                    const PartOfReplicas& part, std::vector<std::int32_t>& members) const;
  // Blocks of `size` ranks that hold one of an instance's `n` members, of whom `members` are looked
  // at.
  std::int32_t blocks_of(std::span<const std::int32_t> members, std::int32_t n,
                         std::int32_t size) const;
  void account(std::span<const std::int32_t> members, RankClass row, std::vector<Loads>& loads,
               GroupShape& shape) const;
  // The same of the links of a torus, where an instance has members.
  void account_on_torus(std::span<const std::int32_t> members, RankClass row, Loads& loads,
                        GroupShape& shape) const;
  void append_torus_links(Loads& loads, std::vector<LinkUse>& links) const;
  void append_links(std::span<Loads> loads, std::vector<LinkUse>& links, bool out, bool in) const;

  const Cluster* cluster_;
  const CollectiveModel* model_;
  Mesh whole_;  // of the plan
  Mesh mesh_;   // of the replicas that are looked at
  std::int32_t period_ = 0, periods_left_out_ = 0;
  std::vector<std::int32_t> row_begin_;  // ranks of row r: row_ranks_[row_begin_[r] ..]
  std::vector<std::int32_t> row_ranks_;
  std::vector<std::int32_t> row_of_rank_;
  std::vector<Cut> cuts_;
  std::optional<Torus> torus_;                                  // of every node
  std::vector<std::int32_t> torus_resource_;                    // per node and link of its torus
  std::vector<Link> links_;                                     // index = ResourceId
  std::vector<std::int32_t> data_begin_, data_end_, position_;  // per row
  std::int32_t nodes_ = 1;
};

}  // namespace rehearse::sim
