// SPDX-License-Identifier: Apache-2.0
// rehearse groups: which ranks form which process group, by node.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "cli/commands.h"
#include "cli/open.h"
#include "schedules/base/counted.h"
#include "schedules/base/json_document.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/ranks/group_key.h"
#include "schedules/scenario/mesh.h"
#include "sim/network/torus.h"

namespace rehearse::cli {
namespace {

struct GroupsOptions : ScenarioFlags {
  std::int32_t rank = -1;  // all
  bool json = false;
};

// Instances of one group, each its ranks in ascending order; of a file's own as it lists them.
struct Instances {
  std::string name;
  std::vector<std::vector<std::int32_t>> ranks;
};

// Ranks of a pipeline send to each other: they differ in their position alone.
std::array<std::int32_t, 3> key_of(GroupKind kind, const Coordinates& at, const Mesh& mesh,
                                   const Placement& placement) {
  if (kind == GroupKind::Pipeline) return {at.tensor, at.context, at.data};
  return group_key(kind, at, mesh, placement);
}

// A file's own: in every column of the mesh the ranks at the positions that it lists.
Instances own_group(const Schedule& order, const Group& group, const Mesh& mesh) {
  Instances made{.name = group.other_name};
  for (std::int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    Coordinates at = mesh.coordinates({rank});
    const std::vector<Position> positions = own_instance(order, group, {at.pipeline});
    if (positions.empty() || positions.front().value != at.pipeline) continue;
    std::vector<std::int32_t>& ranks = made.ranks.emplace_back();
    for (const Position position : positions) {
      at.pipeline = position.value;
      ranks.push_back(mesh.rank(at).value);
    }
  }
  return made;
}

std::vector<Instances> groups_of(const Layout& layout, const Schedule& order) {
  const Placement& placement = order.placement;
  const Mesh mesh(layout.plan);
  std::vector<Instances> groups;
  for (const auto& [kind, size] : group_sizes(layout, placement)) {
    std::map<std::array<std::int32_t, 3>, std::vector<std::int32_t>> instances;
    for (std::int32_t rank = 0; rank < mesh.ranks(); ++rank) {
      const auto key = key_of(kind, mesh.coordinates({rank}), mesh, placement);
      if (key[0] >= 0) instances[key].push_back(rank);
    }
    Instances made{.name = std::string(traits(kind).name)};
    for (auto& [key, ranks] : instances) {
      made.ranks.push_back(std::move(ranks));
    }
    std::ranges::sort(made.ranks);
    groups.push_back(std::move(made));
  }
  for (const Group& group : order.groups) groups.push_back(own_group(order, group, mesh));
  return groups;
}

std::int32_t nodes_of(std::vector<std::int32_t> ranks, std::int32_t per_node) {
  std::ranges::sort(ranks);
  std::int32_t nodes = 0, last = -1;
  for (const std::int32_t rank : ranks) {
    if (rank / per_node != last) ++nodes;
    last = rank / per_node;
  }
  return nodes;
}

// "0-7", "0 8 16 24 ... 120"
std::string ranks_text(const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kMost = 16;
  const auto last = static_cast<std::int32_t>(ranks.size()) - 1;
  if (last > 1 && ranks.back() - ranks.front() == last && std::ranges::is_sorted(ranks)) {
    return fmt::format("{}-{}", ranks.front(), ranks.back());
  }
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks.size() > kMost && i == kMost - 1) {
      return text + fmt::format(" ... {}", ranks.back());
    }
    text += (i == 0 ? "" : " ") + std::to_string(ranks[i]);
  }
  return text;
}

// Where nodes are tori.
using OnTorus = std::optional<sim::Torus>;
// The sizes of the block that a group on one node forms: 4 x 2; empty where it forms none.
std::vector<std::int32_t> block_of(const OnTorus& torus, std::vector<std::int32_t> ranks,
                                   std::int32_t per_node) {
  if (!torus || nodes_of(ranks, per_node) > 1) return {};
  for (std::int32_t& rank : ranks) rank %= per_node;
  return torus->block_of(ranks);
}

std::string block_text(const OnTorus& torus, const std::vector<std::int32_t>& ranks,
                       std::int32_t per_node) {
  if (!torus || nodes_of(ranks, per_node) > 1) return {};
  std::string text;
  for (const std::int32_t size : block_of(torus, ranks, per_node)) {
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  }
  return (text.empty() ? "no block" : text) + " of the torus  ";
}

std::string text_of(const std::vector<Instances>& groups, const Plan& plan, std::int32_t per_node,
                    std::int32_t rank, const OnTorus& torus) {
  std::string text = fmt::format("{}, {} per node\n", counted(plan.gpus(), "rank"), per_node);
  for (const Instances& group : groups) {
    for (const auto& ranks : group.ranks) {
      if (rank >= 0 && std::ranges::find(ranks, rank) == ranks.end()) continue;
      const std::int32_t nodes = nodes_of(ranks, per_node);
      const auto count = static_cast<std::int64_t>(group.ranks.size());
      const auto size = static_cast<std::int64_t>(ranks.size());
      text += fmt::format("{:<9} {:>6} {:<5}  ", group.name, size, noun_of(size, "rank"));
      if (rank < 0) text += fmt::format("{:>6} {:<6}  ", count, noun_of(count, "group"));
      text += nodes == 1 ? "inside a node    " : fmt::format("over {:>4} nodes  ", nodes);
      text += block_text(torus, ranks, per_node);
      text += (rank < 0 ? "the first: " : "") + ranks_text(ranks) + "\n";
      if (rank < 0) break;
    }
  }
  return text;
}

Json json_of(const std::vector<Instances>& groups, const Plan& plan, std::int32_t per_node,
             std::int32_t rank, const OnTorus& torus) {
  Json json{{"schema", "rehearse.groups/1"}, {"ranks", plan.gpus()}, {"gpus_per_node", per_node}};
  json["groups"] = Json::array();
  for (const Instances& group : groups) {
    for (const auto& ranks : group.ranks) {
      if (rank >= 0 && std::ranges::find(ranks, rank) == ranks.end()) continue;
      Json row{{"group", group.name}, {"ranks", ranks}, {"nodes", nodes_of(ranks, per_node)}};
      if (torus) {
        const std::vector<std::int32_t> block = block_of(torus, ranks, per_node);
        row["torus_block"] = block.empty() ? Json() : Json(block);
      }
      json["groups"].push_back(std::move(row));
    }
  }
  return json;
}

int groups(const GroupsOptions& options) {
  const Result<Opened> opened = open(options.scenario, options.options());
  if (!opened) return fail(opened.error().message);
  const auto& [scenario, cluster] = opened.value();
  if (options.rank >= scenario.plan.gpus()) {
    return fail(fmt::format("groups: --rank {}: the last rank of {} is {}", options.rank,
                            scenario.plan.gpus(), scenario.plan.gpus() - 1));
  }
  Plan plan = scenario.plan;
  const Result<Schedule> order = order_of(scenario.model, plan);
  if (!order) return fail(options.scenario + ": " + order.error().message);
  const std::vector<Instances> all = groups_of({scenario.model, plan}, order.value());
  const std::int32_t per_node =
      std::max(1, cluster.workers > 0 ? plan.gpus() : cluster.gpus_per_node);
  OnTorus torus;
  if (!cluster.scale_up.axes.empty()) torus.emplace(cluster.scale_up.axes);
  print_text(options.json ? json_of(all, plan, per_node, options.rank, torus).dump(2) + "\n"
                          : text_of(all, plan, per_node, options.rank, torus));
  return kDone;
}

}  // namespace

Command groups_command() {
  const auto o = std::make_shared<GroupsOptions>();
  Command command{"groups", "which ranks form which process group, by node"};
  command.options = {
      required({"SCENARIO", &o->scenario, "scenario file"}),
      {"--rank", &o->rank, "the groups of this rank, with all their members", Whole{0, 1 << 20}},
      {"--json", &o->json, "one JSON document on stdout, with all groups"},
      one_each({"--set", &o->set, "override a key: --set plan.tensor_parallel=4"}),
      {"--cluster", &o->cluster, "cluster file instead of the scenario's"},
      {"--gpus", &o->gpus, "number of GPUs instead of the scenario's", Whole{1, 1 << 20}},
  };
  command.footer = "Example: rehearse groups 3d-8-gpus --rank 3";
  command.perform = [o](const Given&) { return groups(*o); };
  return command;
}

}  // namespace rehearse::cli
