// SPDX-License-Identifier: Apache-2.0
// V5: a collective hangs or mixes data unless all of its members list it, of the same kind and
// bytes, in the same order as the others of its communicator.
#include <algorithm>

#include "schedules/ir/exchange_parts.h"
#include "schedules/proof/rules/rules.h"

namespace rehearse {
namespace {

// The part of a member's memory that a collective needs: the room for what is carried, not the
// payload itself.
Bytes largest_bytes(const Schedule& schedule, std::int32_t id) {
  Bytes largest{};
  for (const Operand& operand : schedule.operands_of({id})) {
    largest = std::max(largest, schedule.values[operand.value.index()].bytes);
  }
  return largest;
}

// Whether the root alone has the whole array.
bool differs_at_root(OpKind kind) {
  return has_root(kind) && is_parted(kind);
}

// Ranks of one instance of the group that these rows stand for.
std::int64_t members(const Facts& facts, const Group& group, const std::vector<std::int32_t>& ops) {
  const Schedule& s = facts.schedule;
  std::int64_t ranks = 0;
  for (const std::int32_t op : ops) {
    const RankClassInfo row = s.rows.empty() ? RankClassInfo{} : s.rows[s.row_of({op}).index()];
    switch (traits(group.kind).row_members) {
      case RowMembers::Inside:
        ranks += std::min(row.multiplicity, group.size);
        break;
      case RowMembers::Replicas:
        ranks += row.data_end - row.data_begin;
        break;
      case RowMembers::Ranks:
        ranks += row.multiplicity;
        break;
      case RowMembers::One:
        ++ranks;
        break;
    }
  }
  return ranks;
}

}  // namespace

bool check_collectives(const Facts& facts, Report& report) {
  const Schedule& s = facts.schedule;
  if (s.groups.empty()) return false;
  std::vector<std::vector<std::int32_t>> of_match;  // ops, by match, in program order of rows
  bool any = false;
  facts.each_op([&](RankClass row, std::int32_t id, const Op& op) {
    if (traits(op.kind).op_class != OpClass::Collective || !op.group) return;
    any = true;
    const std::vector<RankClass>& rows = s.groups[op.group.index()].rows;
    if (!rows.empty() && std::ranges::find(rows, row) == rows.end()) {
      report.add(id, [&] {
        return facts.where(id) + " is on group " + std::string(s.group_of(op).name()) +
               ", which its row is not a member of";
      });
    }
    if (!op.match) {
      return report.add(id, [&] { return facts.where(id) + " meets nobody: it has no match"; });
    }
    of_match.resize(std::max(of_match.size(), op.match.index() + 1));
    of_match[op.match.index()].push_back(id);
  });
  if (!any) return false;

  for (const auto& ops : of_match) {
    if (ops.empty()) continue;
    const std::int32_t lead = ops.front();
    const Op& first = facts.op(lead);
    const Group& group = s.groups[first.group.index()];
    for (std::size_t k = 1; k < ops.size(); ++k) {
      const Op& op = facts.op(ops[k]);
      if (s.row_of({ops[k]}) == s.row_of({ops[k - 1]})) {
        report.add(ops[k], [&] { return facts.where(ops[k]) + " meets an op of its own row"; });
      }
      if (op.kind != first.kind || op.group != first.group) {
        report.add(ops[k], [&] {
          return facts.where(ops[k]) + " meets " + facts.where(lead) +
                 ": members list the same collective of the same group";
        });
      } else if (!differs_at_root(op.kind) && largest_bytes(s, ops[k]) != largest_bytes(s, lead)) {
        report.add(ops[k], [&] {
          return facts.where(ops[k]) + " has " + std::to_string(largest_bytes(s, ops[k]).value) +
                 " bytes, " + facts.where(lead) + " has " +
                 std::to_string(largest_bytes(s, lead).value);
        });
      }
    }
    if (s.rows.empty() && group.kind != GroupKind::Other) continue;
    const std::int64_t there = members(facts, group, ops);
    if (there != group.size) {
      report.add(lead, [&] {
        return facts.where(lead) + " on group " + std::string(group.name()) + " is listed by " +
               std::to_string(there) + " of its " + std::to_string(group.size) + " ranks";
      });
    }
  }

  // Order: where two rows share several collectives of a group, they list them alike. Each op is
  // compared with the latest earlier one of its row and group that the same partner row shares.
  struct Seen {
    GroupId group;
    RankClass other;
    std::int32_t mine, theirs;
  };
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    std::vector<Seen> seen;
    for (std::size_t i = s.first_op(row); i < s.first_op({row.value + 1}); ++i) {
      const Op& op = s.ops[i];
      if (traits(op.kind).op_class != OpClass::Collective || !op.group || !op.match) continue;
      for (const std::int32_t theirs : of_match[op.match.index()]) {
        const RankClass other = s.row_of({theirs});
        if (other <= row) continue;
        const auto id = static_cast<std::int32_t>(i);
        const auto before = std::ranges::find_if(seen, [&](const Seen& entry) {
          return entry.group == op.group && entry.other == other;
        });
        if (before == seen.end()) {
          seen.push_back({op.group, other, id, theirs});
          continue;
        }
        if (theirs < before->theirs) {
          report.add(id, [&] {
            return facts.where(id) + " comes after " + to_text(s, {before->mine}) + ", but on " +
                   row_name(s, other) + " before it: group " + std::string(s.group_of(op).name()) +
                   " needs one order";
          });
        }
        before->mine = id;
        before->theirs = theirs;
      }
    }
  }
  return true;
}

}  // namespace rehearse
