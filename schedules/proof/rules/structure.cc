// SPDX-License-Identifier: Apache-2.0
// V12 to V15: pairs, placement, folding, and the way back to the compute order.
#include <algorithm>

#include "schedules/proof/rules/rules.h"

namespace rehearse {

// A backward follows every forward of its micro-batch, so two ops of one micro-batch always depend
// on one another. A way through other ops of the ranks is a cycle through the pair: V6 finds it.
bool check_pairs(const Facts& facts, Report& report) {
  if (!facts.index.has(OpKind::Overlap)) return false;
  facts.each_op([&](RankClass, std::int32_t id, const Op& op) {
    if (op.kind != OpKind::Overlap) return;
    const auto pair = work_of(facts.schedule, op);
    if (pair[0].kind != OpKind::Forward || !is_backward(pair[1].kind)) {
      return report.add(
          id, [&] { return facts.where(id) + ": a pair is a forward and then a backward"; });
    }
    if (pair[0].microbatch == pair[1].microbatch) {
      report.add(id, [&] {
        return facts.where(id) + ": " + to_text(pair[1]) + " depends on " + to_text(pair[0]) +
               ", they cannot run at the same time";
      });
    }
  });
  return true;
}

bool check_placement(const Facts& facts, Report& report) {
  const Placement& placement = facts.schedule.placement;
  for (const auto* map : {&placement.down, &placement.up}) {
    for (std::size_t s = 0; s < map->size(); ++s) {
      const Position at = (*map)[s];
      if (at.value >= 0 && at.value < placement.positions) continue;
      report.add(-1, [&] {
        return "stage " + std::to_string(s) + " lies on position " + std::to_string(at.value) +
               ": there are " + std::to_string(placement.positions);
      });
    }
  }
  for (const Finding& finding : facts.survey.findings) {
    if (finding.fault != Fault::Elsewhere) continue;
    report.add(finding.op, [&] {
      const Op& work = finding.work;
      const Position home = placement.position(work.stage, work.microbatch);
      return facts.where(finding.op) + ": stage " + std::to_string(work.stage.value) +
             " lies on rank " + std::to_string(home.value) +
             (placement.up.empty() ? ""
                                   : " for micro-batch " + std::to_string(work.microbatch.value));
    });
  }
  return true;
}

// Rows stand for all data coordinates of their position, each once, all with the same number of
// ranks per coordinate; the two ends of a transfer stand for the same coordinates.
bool check_folding(const Facts& facts, Report& report) {
  const Schedule& s = facts.schedule;
  if (s.rows.empty()) return false;
  std::int32_t width = 0;
  for (const RankClassInfo& row : s.rows) width = std::max(width, row.data_end);
  std::vector<std::vector<RankClass>> of(
      static_cast<std::size_t>(std::max(s.placement.positions, 0)));
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    const RankClassInfo& info = s.rows[row.index()];
    if (info.position.value < 0 || info.position.value >= s.placement.positions) {
      report.add(-1, [&] { return row_name(s, row) + " lies on no position"; });
      continue;
    }
    of[info.position.index()].push_back(row);
  }
  for (std::size_t position = 0; position < of.size(); ++position) {
    auto& rows = of[position];
    std::ranges::sort(rows, {}, [&](RankClass row) { return s.rows[row.index()].data_begin; });
    std::int32_t next = 0;
    for (const RankClass row : rows) {
      const RankClassInfo& info = s.rows[row.index()];
      if (info.data_begin != next || info.data_end <= info.data_begin) {
        report.add(-1, [&] {
          return row_name(s, row) + " stands for data coordinates " +
                 std::to_string(info.data_begin) + " to " + std::to_string(info.data_end) +
                 " of position " + std::to_string(position) + ", where " + std::to_string(next) +
                 " is next";
        });
      }
      next = info.data_end;
      const RankClassInfo& first = s.rows.front();
      const std::int64_t mine =
          std::int64_t{info.multiplicity} * (first.data_end - first.data_begin);
      const std::int64_t like =
          std::int64_t{first.multiplicity} * (info.data_end - info.data_begin);
      if (mine != like) {
        report.add(-1, [&] {
          return row_name(s, row) + " stands for " + std::to_string(info.multiplicity) +
                 " ranks: not as many per data coordinate as row 0";
        });
      }
    }
    if (next != width) {
      report.add(-1, [&] {
        return "position " + std::to_string(position) + " has rows for " + std::to_string(next) +
               " data coordinates of " + std::to_string(width);
      });
    }
  }
  facts.each_op([&](RankClass row, std::int32_t id, const Op& op) {
    if (op.kind != OpKind::Send) return;
    const std::int32_t other = facts.index.partner(facts.index.class_of(row), op);
    if (other < 0) return;
    const RankClassInfo& a = s.rows[row.index()];
    const RankClassInfo& b = s.rows[s.row_of({other}).index()];
    if (a.data_begin == b.data_begin && a.data_end == b.data_end) return;
    report.add(id, [&] {
      return facts.where(id) + " and " + facts.where(other) + " stand for different replicas";
    });
  });
  return true;
}

namespace {

// What two ops must share to be the same op of L0, parts and notes aside.
bool same_work(const Op& a, const Op& b) {
  return a.kind == b.kind && a.stage == b.stage && a.microbatch == b.microbatch &&
         a.slice == b.slice;
}

// An op that lowering keeps: of stages, and the exchanges of own groups.
bool is_kept(const Schedule& s, const Op& op) {
  return is_compute(op.kind) || s.is_on(op, GroupKind::Other);
}

bool same_op(const Schedule& a, const Op& x, const Schedule& b, const Op& y) {
  if (x.kind != y.kind) return false;
  if (!is_compute(x.kind)) {
    return x.instance == y.instance && x.peer == y.peer &&
           a.group_of(x).name() == b.group_of(y).name();
  }
  if (x.kind != OpKind::Overlap) return same_work(x, y);
  const auto mine = work_of(a, x), theirs = work_of(b, y);
  return std::ranges::equal(mine, theirs, same_work);
}

}  // namespace

// Erase what lowering adds, merge neighbouring parts: the compute order of the position is left.
bool check_lowering(const Facts& facts, Report& report) {
  const Schedule* order = facts.options.compute_order;
  if (order == nullptr || !facts.full()) return false;
  const Schedule& s = facts.schedule;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    const RankClass home{s.position_of(row).value};
    if (home.value < 0 || home.value >= order->num_rows()) {
      report.add(-1, [&] { return row_name(s, row) + " has no row in the compute order"; });
      continue;
    }
    const auto end = static_cast<std::int32_t>(order->first_op({home.value + 1}));
    auto next = static_cast<std::int32_t>(order->first_op(home));
    const Op* part = nullptr;  // the op whose parts are being merged
    bool same = true;
    for (std::size_t i = s.first_op(row); same && i < s.first_op({row.value + 1}); ++i) {
      const Op& op = s.ops[i];
      if (!is_kept(s, op)) continue;
      if (part != nullptr && op.segment_end >= 0 && same_work(*part, op)) continue;
      while (next < end && !is_kept(*order, order->ops[static_cast<std::size_t>(next)])) ++next;
      same = next < end && same_op(s, op, *order, order->ops[static_cast<std::size_t>(next)]);
      part = op.segment_end >= 0 ? &op : nullptr;
      if (!same) {
        report.add(static_cast<std::int32_t>(i), [&] {
          return facts.where(static_cast<std::int32_t>(i)) +
                 " stands where the compute order has " +
                 (next < end ? to_text(*order, {next}) : std::string("nothing more"));
        });
      }
      ++next;
    }
    while (same && next < end && !is_kept(*order, order->ops[static_cast<std::size_t>(next)]))
      ++next;
    if (same && next < end) {
      report.add(-1, [&] {
        return row_name(s, row) + " lacks " + to_text(*order, {next}) + " of the compute order";
      });
    }
  }
  return true;
}

}  // namespace rehearse
