// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/link_names.h"

#include <algorithm>
#include <set>

#include "schedules/scenario/mesh.h"

namespace rehearse::sim {
namespace {

// "3", "0-3", "0, 2".
std::string numbers_text(const std::set<std::int32_t>& numbers) {
  const std::int32_t first = *numbers.begin(), last = *numbers.rbegin();
  if (first == last) return std::to_string(first);
  const bool gapless = last - first + 1 == static_cast<std::int32_t>(numbers.size());
  if (gapless) return std::to_string(first) + "-" + std::to_string(last);
  std::string text;
  for (const std::int32_t number : numbers)
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

// The rows whose ops ask for each resource.
std::vector<std::set<std::int32_t>> rows_of_resources(const Prediction& p) {
  const CostTable& table = p.pricing.table;
  std::vector<std::set<std::int32_t>> rows(p.link_names.size());
  std::vector<std::int32_t> seen_by(table.costs.size(), -1);  // the last row that asked by a cost
  for (std::int32_t row = 0; row < p.schedule.num_rows(); ++row) {
    const std::size_t first = p.schedule.first_op(RankClass{row});
    const std::size_t count = p.schedule.program(RankClass{row}).size();
    for (std::size_t op = first; op < first + count; ++op) {
      const auto cost = static_cast<std::size_t>(table.of_op[op]);
      if (seen_by[cost] == row) continue;
      seen_by[cost] = row;
      for (const Demand& demand : table.demands_of(table.costs[cost])) {
        if (demand.resource.index() < rows.size()) rows[demand.resource.index()].insert(row);
      }
    }
  }
  return rows;
}

}  // namespace

std::vector<std::string> link_names(const Prediction& p, const Cluster& cluster) {
  std::vector<std::string> names = p.link_names;
  const std::vector<std::set<std::int32_t>> rows = rows_of_resources(p);
  const Mesh mesh(p.plan);
  std::vector<std::int32_t> rows_of_position(p.schedule.rows.size());
  for (const RankClassInfo& row : p.schedule.rows) ++rows_of_position[row.position.index()];
  for (std::size_t link = 0; link < names.size(); ++link) {
    std::ranges::replace(names[link], '_', '-');
    if (rows[link].empty()) continue;
    std::set<std::int32_t> positions, nodes;
    for (const std::int32_t row : rows[link]) {
      const Position position = p.schedule.rows[static_cast<std::size_t>(row)].position;
      positions.insert(position.value);
      const Rank first = mesh.rank(Coordinates{0, 0, 0, position.value});
      const Rank last =
          mesh.rank(Coordinates{mesh.size(Axis::Tensor) - 1, mesh.size(Axis::Context) - 1,
                                mesh.size(Axis::Data) - 1, position.value});
      nodes.insert(first.value / cluster.gpus_per_node);
      nodes.insert(last.value / cluster.gpus_per_node);
    }
    names[link] +=
        (positions.size() == 1 ? ", position " : ", positions ") + numbers_text(positions);
    // Replicas that differ have links of their own.
    const std::int32_t row = *rows[link].begin();
    const std::size_t position = p.schedule.rows[static_cast<std::size_t>(row)].position.index();
    if (rows[link].size() == 1 && rows_of_position[position] > 1)
      names[link] += ", class " + std::to_string(row);
    const std::int32_t from = *nodes.begin(), to = *nodes.rbegin();
    names[link] += from == to ? ", node " + std::to_string(from)
                              : ", nodes " + std::to_string(from) + "-" + std::to_string(to);
  }
  return names;
}

}  // namespace rehearse::sim
