// SPDX-License-Identifier: Apache-2.0
#include "sim/report/rank_words.h"

#include <algorithm>

#include "schedules/scenario/mesh.h"

namespace rehearse::sim {
namespace {

constexpr std::size_t kWidest = 14;

// "0-3,8-11"; of many pieces the first.
std::string pieces(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    std::string piece = (i == 0 ? "" : ",") + std::to_string(ranks[i]);
    if (last > i) piece += "-" + std::to_string(ranks[last]);
    if (i > 0 && text.size() + piece.size() + 4 > kWidest) return text + ",...";
    text += piece;
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<std::int32_t> ranks_of(const Schedule& schedule, RankClass row, const Plan& plan) {
  const Mesh mesh(plan);
  const RankClassInfo& info = schedule.rows[row.index()];
  std::vector<std::int32_t> ranks;
  for (std::int32_t replica = info.data_begin; replica < info.data_end; ++replica) {
    Coordinates at = mesh.of_replica(replica, info.position.value);
    for (at.tensor = 0; at.tensor < mesh.size(Axis::Tensor); ++at.tensor) {
      ranks.push_back(mesh.rank(at).value);
    }
  }
  if (!std::ranges::is_sorted(ranks)) std::ranges::sort(ranks);
  return ranks;
}

RankWords rank_words(const Schedule& schedule, const Plan& plan, std::size_t rows) {
  const bool classes =
      rows == schedule.rows.size() && schedule.num_rows() > schedule.placement.positions;
  RankWords names{.title = classes ? "ranks" : "position", .words = {}};
  for (std::size_t row = 0; row < rows; ++row) {
    names.words.push_back(classes
                              ? pieces(ranks_of(schedule, {static_cast<std::int32_t>(row)}, plan))
                              : std::to_string(row));
  }
  return names;
}

}  // namespace rehearse::sim
