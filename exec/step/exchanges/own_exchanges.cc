// SPDX-License-Identifier: Apache-2.0
#include "exec/step/exchanges/own_exchanges.h"

#include <algorithm>
#include <cmath>

#include "schedules/ir/exchange_parts.h"
#include "schedules/ir/payload.h"
#include "schedules/ir/text.h"
#include "schedules/ranks/group_key.h"

namespace rehearse::exec {
namespace {

constexpr std::int32_t kMostMembers = 16;  // a part's number times their sum is exact in fp32

// A part of an array as numbers: in turn 2^r, member r's, and (k + 1) 2^r, where k is the part.
// A sum of members' is then told by its bits, the part by the ratio.
float number_of(std::int32_t member, std::int32_t part, std::int64_t i) {
  return std::ldexp(i % 2 == 0 ? 1.0F : static_cast<float>(part + 1), member);
}

// "a0", or "\u03a30" where it is the sum of all; "?" where it is neither.
std::string word_of(const float* part, std::int64_t elements, std::int32_t members, bool numbered) {
  for (std::int64_t i = 2; i < elements; ++i) {
    if (part[i] != part[i % 2]) return "?";
  }
  const auto all = static_cast<float>((1 << members) - 1);
  const float ratio = elements > 1 ? part[1] / part[0] : 1;
  const auto number = static_cast<std::int32_t>(ratio) - 1;
  if (!(part[0] > 0) || static_cast<float>(number + 1) != ratio || number < 0) return "?";
  const std::string which = numbered ? std::to_string(number) : std::string();
  if (part[0] == all) return "\u03a3" + which;
  int member = 0;
  if (std::frexp(part[0], &member) != 0.5F || member < 1 || member > members) return "?";
  return std::string(1, static_cast<char>('a' + member - 1)) + which;
}

// One end of an exchange on one rank.
struct End {
  std::int64_t elements = 0;  // of a part
  std::int32_t parts = 0;     // that lie here
  std::int32_t first = 0;     // number of the first of them
  bool numbered = false;      // parts that are long enough to say which they are
};

End end_of(const Schedule& s, OpId id, Portion portion, std::int32_t member) {
  const Group& group = s.group_of(s.ops[id.index()]);
  const std::int64_t whole = payload_of(s, id).elements;
  // What is not cut for the members is shown in parts all the same, where they come out even.
  const bool parted = is_parted(s.ops[id.index()].kind) || whole % (2 * group.size) == 0;
  const std::int32_t parts = parted ? group.size : 1;
  return {whole / parts, portion == Portion::Whole ? parts : 1,
          portion == Portion::Whole ? 0 : member, parted && whole / parts > 1};
}

// Calls visit(op, member, members) for every exchange of the rank.
template <class Visit>
void each_exchange(const LocalRanks& local, const RankState& rank, Visit visit) {
  const Schedule& s = local.schedule;
  for (std::size_t i = s.first_op(rank.row); i < s.first_op({rank.row.value + 1}); ++i) {
    const Op& op = s.ops[i];
    if (!s.is_on(op, GroupKind::Other)) continue;
    const Position at{rank.at.pipeline};
    const std::vector<Position> listed = own_instance(s, s.group_of(op), at);
    visit(OpId{static_cast<std::int32_t>(i)},
          static_cast<std::int32_t>(std::ranges::find(listed, at) - listed.begin()),
          static_cast<std::int32_t>(listed.size()));
  }
}

}  // namespace

void bring_exchanges(const LocalRanks& local) {
  std::vector<float> values;
  for (const auto& rank : local.ranks) {
    each_exchange(local, *rank, [&](OpId id, std::int32_t member, std::int32_t members) {
      const Op& op = local.schedule.ops[id.index()];
      const Portion brings = exchange_parts(op.kind, member == op.peer.value).brings;
      const Operand& first = local.schedule.operands_of(id).front();
      if (brings == Portion::Nothing || members > kMostMembers) return;
      const End end = end_of(local.schedule, id, brings, member);
      values.clear();
      for (std::int32_t k = 0; k < end.parts; ++k) {
        for (std::int64_t i = 0; i < end.elements; ++i) {
          values.push_back(number_of(member, end.first + k, i));
        }
      }
      local.device.write(local.address(*rank, first.value), values.data(),
                         static_cast<std::int64_t>(4 * values.size()));
    });
  }
}

std::vector<HeldExchange> held_exchanges(const LocalRanks& local) {
  std::vector<HeldExchange> held;
  for (const auto& rank : local.ranks) {
    each_exchange(local, *rank, [&](OpId id, std::int32_t member, std::int32_t members) {
      if (members > kMostMembers) return;
      const Op& op = local.schedule.ops[id.index()];
      HeldExchange& made = held.emplace_back();
      made.name = to_text(local.schedule, id);
      made.rank = rank->rank.value;
      const ExchangeParts parts = exchange_parts(op.kind, member == op.peer.value);
      for (const Operand& operand : local.schedule.operands_of(id)) {
        const bool in = operand.access == Access::Read;
        const End end = end_of(local.schedule, id, in ? parts.brings : parts.gets, member);
        std::vector<float> values(static_cast<std::size_t>(end.elements * end.parts));
        local.device.read(values.data(), local.address(*rank, operand.value),
                          static_cast<std::int64_t>(4 * values.size()));
        std::string& text = in ? made.before : made.after;
        for (std::int32_t k = 0; k < end.parts; ++k) {
          text += (k == 0 ? "" : " ") +
                  word_of(values.data() + k * end.elements, end.elements, members, end.numbered);
        }
      }
      // What a root has sent to all it has as well.
      if (op.kind == OpKind::Broadcast && made.after.empty()) made.after = made.before;
    });
  }
  return held;
}

}  // namespace rehearse::exec
