// SPDX-License-Identifier: Apache-2.0
// What a hang is told as: to people, and as JSON (rehearse.hang/1).
#include <fmt/format.h>

#include "schedules/base/json_document.h"
#include "viz/hang/hang.h"

namespace rehearse::viz {
namespace {

std::string call_text(const Call& call) {
  std::string text = call.op;
  if (call.transfer()) {
    text +=
        (call.op.find("recv") != std::string::npos ? " from " : " to ") + std::to_string(call.peer);
  } else {
    text += fmt::format(" {} of {}", call.sequence, call.group);
  }
  for (const std::string& shape : call.shapes) text += " [" + shape + "]";
  return text + (call.place.empty() ? "" : ", " + call.place);
}

std::string state_text(const StandingRank& rank) {
  if (!rank.dumped) return "no dump";
  if (rank.call.op.empty()) return "called nothing";
  std::string text = (rank.stands ? "stands in " : "finished ") + call_text(rank.call);
  for (std::size_t i = 0; i < rank.waits_for.size(); ++i) {
    text += (i == 0 ? ": waits for " : ", ") + std::to_string(rank.waits_for[i]);
  }
  return text;
}

}  // namespace

std::string hang_text(const Hang& hang) {
  std::string text = hang.sentence + "\n";
  // Ranks that stand alike are one line.
  for (std::size_t i = 0; i < hang.ranks.size();) {
    const std::string state = state_text(hang.ranks[i]);
    std::size_t last = i;
    while (last + 1 < hang.ranks.size() && state_text(hang.ranks[last + 1]) == state) ++last;
    text += last == i ? fmt::format("  rank {}: {}\n", hang.ranks[i].rank, state)
                      : fmt::format("  ranks {}-{}: {}\n", hang.ranks[i].rank,
                                    hang.ranks[last].rank, state);
    i = last + 1;
  }
  return text;
}

std::string hang_json(const Hang& hang) {
  Json json{{"schema", "rehearse.hang/1"},
            {"kind", kHangNames[static_cast<std::size_t>(hang.kind)]},
            {"sentence", hang.sentence}};
  json["culprits"] = Json(hang.culprits);
  json["in_a_circle"] = hang.kind == HangKind::Circle;
  json["ranks"] = Json::array();
  for (const StandingRank& rank : hang.ranks) {
    Json call;
    if (!rank.call.op.empty()) {
      call = {{"op", rank.call.op},
              {"group", rank.call.group},
              {"sequence", rank.call.sequence},
              {"peer", rank.call.transfer() ? Json(rank.call.peer) : Json()},
              {"place", rank.call.place.empty() ? Json() : Json(rank.call.place)}};
      call["shapes"] = Json(rank.call.shapes);
    }
    Json row{{"rank", rank.rank},
             {"state", !rank.dumped  ? "no_dump"
                       : rank.stands ? "stands"
                                     : "elsewhere"},
             {"call", call}};
    row["waits_for"] = Json(rank.waits_for);
    json["ranks"].push_back(std::move(row));
  }
  return json.dump(2) + "\n";
}

}  // namespace rehearse::viz
