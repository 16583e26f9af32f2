// SPDX-License-Identifier: Apache-2.0
#include "viz/hang/hang.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace rehearse::viz {
namespace {

// Calls of one kind between two ranks, or of one group: the k-th of one side is the k-th of the
// other. A recorder keeps the latest ones only, so they are counted from the first that is not
// finished.
bool same_transfer(const Call& a, std::int32_t peer, const char* op) {
  return a.transfer() && a.peer == peer && a.op == op;
}

class Aligning {
 public:
  explicit Aligning(std::vector<Dump> dumps) : dumps_(std::move(dumps)) {
    for (const Dump& dump : dumps_) {
      of_rank_[dump.rank] = &dump;
      for (const DumpedGroup& group : dump.groups) {
        auto& ranks = members_[group.name];
        if (group.ranks.size() > ranks.size()) ranks = group.ranks;
      }
    }
    // A group that nobody lists has those ranks that have called it.
    for (const Dump& dump : dumps_) {
      for (const Call& call : dump.calls) {
        if (!members_[call.group].empty() || call.transfer()) continue;
        callers_[call.group].insert(dump.rank);
      }
    }
    // The default group has every rank.
    std::set<std::int32_t> every;
    for (const auto& [rank, dump] : of_rank_) every.insert(rank);
    for (const auto& [group, ranks] : members_) every.insert(ranks.begin(), ranks.end());
    callers_["default_pg"].insert(every.begin(), every.end());
    for (auto& [group, ranks] : members_) {
      if (ranks.empty()) ranks.assign(callers_[group].begin(), callers_[group].end());
    }
  }

  Hang find() {
    std::set<std::int32_t> all;
    for (const auto& [rank, dump] : of_rank_) all.insert(rank);
    for (const auto& [group, ranks] : members_) all.insert(ranks.begin(), ranks.end());
    for (const std::int32_t rank : all) hang_.ranks.push_back(standing(rank));
    judge();
    return std::move(hang_);
  }

 private:
  StandingRank standing(std::int32_t rank) const {
    StandingRank out{.rank = rank};
    const auto dump = of_rank_.find(rank);
    out.dumped = dump != of_rank_.end();
    if (!out.dumped) return out;
    const std::vector<Call>& calls = dump->second->calls;
    const auto first = std::ranges::find_if(
        calls, [](const Call& call) { return call.state != CallState::Completed; });
    out.stands = first != calls.end();
    if (out.stands) {
      out.call = *first;
      out.waits_for = first->transfer() ? missing_end(rank, *first) : missing_members(rank, *first);
    } else if (!calls.empty()) {
      out.call = calls.back();
    }
    return out;
  }

  // The rank's call of that number of the group, as far as it is known; null: it has none.
  const Call* call_of(std::int32_t rank, const Call& like) const {
    const auto dump = of_rank_.find(rank);
    if (dump == of_rank_.end()) return nullptr;
    for (const Call& call : dump->second->calls) {
      if (!call.transfer() && call.group == like.group && call.sequence == like.sequence)
        return &call;
    }
    return nullptr;
  }

  std::vector<std::int32_t> missing_members(std::int32_t rank, const Call& call) const {
    std::vector<std::int32_t> missing;
    const auto members = members_.find(call.group);
    if (members == members_.end()) return missing;
    for (const std::int32_t other : members->second) {
      if (other == rank || call_of(other, call) != nullptr) continue;
      // What a recorder has forgotten was finished.
      if (last_sequence(other, call.group) >= call.sequence) continue;
      missing.push_back(other);
    }
    return missing;
  }
  std::int64_t last_sequence(std::int32_t rank, const std::string& group) const {
    std::int64_t last = -1;
    const auto dump = of_rank_.find(rank);
    if (dump == of_rank_.end()) return last;
    for (const Call& call : dump->second->calls) {
      if (!call.transfer() && call.group == group) last = std::max(last, call.sequence);
    }
    return last;
  }

  // The other end of a transfer, where it has not called its part: it has as many finished ones as
  // this rank, and this is the k-th that is not.
  std::vector<std::int32_t> missing_end(std::int32_t rank, const Call& call) const {
    const auto dump = of_rank_.find(call.peer);
    if (dump == of_rank_.end()) return {call.peer};
    const char* other = call.op == "send" || call.op == "isend" ? "recv" : "send";
    const auto finished = [](const std::vector<Call>& calls, std::int32_t peer, const char* op) {
      return std::ranges::count_if(calls, [&](const Call& one) {
        return same_transfer(one, peer, op) && one.state == CallState::Completed;
      });
    };
    const std::vector<Call>& theirs = dump->second->calls;
    const auto open = std::ranges::count_if(theirs, [&](const Call& one) {
      return same_transfer(one, rank, other) && one.state != CallState::Completed;
    });
    const bool ahead = finished(theirs, rank, other) >
                       finished(of_rank_.at(rank)->calls, call.peer, call.op.c_str());
    if (open > 0 || ahead) return {};
    return {call.peer};
  }

  const StandingRank* at(std::int32_t rank) const {
    const auto found = std::ranges::find(hang_.ranks, rank, &StandingRank::rank);
    return found == hang_.ranks.end() ? nullptr : &*found;
  }

  // Ranks that wait for one another, in order; empty: nobody does.
  std::vector<std::int32_t> circle() const {
    std::map<std::int32_t, int> colour;  // 1: on the way, 2: seen
    std::vector<std::int32_t> way;
    const std::function<std::vector<std::int32_t>(std::int32_t)> walk =
        [&](std::int32_t rank) -> std::vector<std::int32_t> {
      colour[rank] = 1;
      way.push_back(rank);
      for (const std::int32_t next : at(rank)->waits_for) {
        if (at(next) == nullptr || colour[next] == 2) continue;
        if (colour[next] == 1) return {std::ranges::find(way, next), way.end()};
        std::vector<std::int32_t> found = walk(next);
        if (!found.empty()) return found;
      }
      colour[rank] = 2;
      way.pop_back();
      return {};
    };
    for (const StandingRank& one : hang_.ranks) {
      if (colour[one.rank] != 0) continue;
      std::vector<std::int32_t> found = walk(one.rank);
      if (!found.empty()) return found;
    }
    return {};
  }

  // The latest call of a group that several have called, with other arguments: who differs from
  // most. A mismatch may let the call end on some ranks, by an error, and others die of it.
  std::vector<std::int32_t> differing() {
    std::map<std::string, std::map<std::int64_t, std::map<std::string, std::vector<std::int32_t>>>>
        said;  // by group, number, arguments
    for (const auto& [rank, dump] : of_rank_) {
      for (const Call& call : dump->calls) {
        if (call.transfer() || may_differ(call)) continue;
        said[call.group][call.sequence][signature(call)].push_back(rank);
      }
    }
    for (const auto& [group, numbers] : said) {
      for (auto latest = numbers.rbegin(); latest != numbers.rend(); ++latest) {
        const auto& by_arguments = latest->second;
        std::size_t callers = 0, most = 0, with_most = 0;
        for (const auto& [words, ranks] : by_arguments) {
          callers += ranks.size();
          with_most = ranks.size() == most ? with_most + 1 : ranks.size() > most ? 1 : with_most;
          most = std::max(most, ranks.size());
        }
        if (callers < 2) continue;
        if (by_arguments.size() < 2) break;  // the latest that is known of several
        std::vector<std::int32_t> others;
        for (const auto& [words, ranks] : by_arguments) {
          if (ranks.size() == most && with_most == 1) continue;
          others.insert(others.end(), ranks.begin(), ranks.end());
        }
        std::ranges::sort(others);
        differs_ = "In call " + std::to_string(latest->first) + " of " + group;
        for (const auto& [words, ranks] : by_arguments) {
          differs_ += (&words == &by_arguments.begin()->first ? " " : ", ") + list(ranks) +
                      " called " + words;
        }
        return others;
      }
    }
    return {};
  }
  // Ops that every rank may call with sizes of its own.
  static bool may_differ(const Call& call) {
    return call.op.find("all_to_all") != std::string::npos ||
           call.op.find("alltoall") != std::string::npos ||
           call.op.find("coalesced") != std::string::npos;
  }
  static std::string signature(const Call& call) {
    std::string text = call.op + " of";
    for (const std::string& shape : call.shapes) text += " " + shape;
    return text;
  }

  void judge() {
    std::set<std::int32_t> awaited;
    bool stands = false;
    for (const StandingRank& one : hang_.ranks) {
      stands |= one.stands;
      awaited.insert(one.waits_for.begin(), one.waits_for.end());
    }
    std::vector<std::int32_t> silent;
    for (const StandingRank& one : hang_.ranks) {
      if (!one.dumped) silent.push_back(one.rank);
    }
    if (!stands && silent.empty()) {
      hang_.sentence = "Nothing hangs: every call of every rank is finished.";
      return;
    }
    if (std::vector<std::int32_t> others = differing(); !others.empty()) {
      return say(HangKind::Mismatch, others);
    }
    // What ranks wait for in the end, before what of it is a consequence.
    std::vector<std::int32_t> dead, elsewhere;
    for (const std::int32_t rank : awaited) {
      const StandingRank* one = at(rank);
      if (one == nullptr || !one->dumped) {
        dead.push_back(rank);
      } else if (!one->stands) {
        elsewhere.push_back(rank);
      }
    }
    if (dead.empty() && !stands) dead = silent;
    if (!dead.empty()) return say(HangKind::Dead, dead);
    if (!elsewhere.empty()) return say(HangKind::Missing, elsewhere);
    if (std::vector<std::int32_t> round = circle(); !round.empty()) {
      return say(HangKind::Circle, round);
    }
    std::vector<std::int32_t> in;
    for (const StandingRank& one : hang_.ranks) {
      if (one.stands && one.waits_for.empty()) in.push_back(one.rank);
    }
    say(HangKind::AllIn, in);
  }

  static std::string list(const std::vector<std::int32_t>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
    }
    return text;
  }
  static std::string where(const Call& call) {
    std::string text = call.op;
    if (call.transfer()) {
      text += (call.op.find("recv") != std::string::npos ? " from rank " : " to rank ") +
              std::to_string(call.peer);
    } else {
      text += " " + std::to_string(call.sequence) + " of " + call.group;
    }
    return text + (call.place.empty() ? "" : " (" + call.place + ")");
  }
  // Who waits for one of these, and in which call the first of them does.
  std::string who_waits(const std::vector<std::int32_t>& culprits) const {
    std::vector<std::int32_t> waiting;
    const StandingRank* first = nullptr;
    for (const StandingRank& one : hang_.ranks) {
      const bool waits = std::ranges::any_of(one.waits_for, [&](std::int32_t rank) {
        return std::ranges::find(culprits, rank) != culprits.end();
      });
      if (!waits) continue;
      if (first == nullptr) first = &one;
      waiting.push_back(one.rank);
    }
    if (first == nullptr) return {};
    return list(waiting) + (waiting.size() == 1 ? " waits" : " wait") + " for it in " +
           where(first->call);
  }

  void say(HangKind kind, std::vector<std::int32_t> culprits) {
    hang_.kind = kind;
    std::string& text = hang_.sentence;
    const StandingRank* first = at(culprits.front());
    switch (kind) {
      case HangKind::Nothing:
        break;
      case HangKind::Dead:
        text = list(culprits) + " left no dump (it died, or was never asked)";
        if (const std::string waiting = who_waits(culprits); !waiting.empty()) {
          text += "; " + waiting;
        } else if (const auto other = std::ranges::find(hang_.ranks, true, &StandingRank::dumped);
                   other != hang_.ranks.end() && !other->call.op.empty()) {
          text += "; the others' last call is " + where(other->call);
        }
        text += ".";
        break;
      case HangKind::Missing:
        text = list(culprits) + " is missing: " + who_waits(culprits);
        if (first != nullptr && !first->call.op.empty()) {
          text += "; its last call, " + where(first->call) + ", is finished";
        }
        text += ".";
        break;
      case HangKind::Circle:
        for (std::size_t i = 0; i < culprits.size(); ++i) {
          const std::int32_t next = culprits[(i + 1) % culprits.size()];
          text += (i == 0 ? "A circle: rank " : ", rank ") + std::to_string(culprits[i]) +
                  " waits for rank " + std::to_string(next) + " in " + where(at(culprits[i])->call);
        }
        text += ".";
        break;
      case HangKind::Mismatch:
        text = differs_ + ".";
        break;
      case HangKind::AllIn:
        text = "All that " + where(first->call) +
               " needs are in it, with equal arguments: the "
               "network or a device does not go on, or it was not waited for long enough.";
        break;
    }
    if (!text.empty() && text[0] == 'r') text[0] = 'R';
    hang_.culprits = std::move(culprits);
  }

  const std::vector<Dump> dumps_;
  std::map<std::int32_t, const Dump*> of_rank_;
  std::map<std::string, std::vector<std::int32_t>> members_;
  std::map<std::string, std::set<std::int32_t>> callers_;
  std::string differs_;  // who has called what, where some differ
  Hang hang_;
};

}  // namespace

Result<Hang> find_hang(std::vector<Dump> dumps) {
  std::set<std::int32_t> ranks;
  for (const Dump& dump : dumps) {
    if (!ranks.insert(dump.rank).second) {
      return Error{"two dumps are of rank " + std::to_string(dump.rank)};
    }
  }
  return Aligning(std::move(dumps)).find();
}

}  // namespace rehearse::viz
