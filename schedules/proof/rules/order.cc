// SPDX-License-Identifier: Apache-2.0
// V2 and V3: everything once, and in an order that a rank can follow.
#include <algorithm>

#include "schedules/proof/rules/rules.h"

namespace rehearse {
namespace {

constexpr bool is_about_completeness(Fault fault) {
  return fault == Fault::Twice || fault == Fault::BothForms;
}
constexpr bool is_about_order(Fault fault) {
  return !is_about_completeness(fault) && fault != Fault::Elsewhere;
}

std::string tell(const Facts& facts, const Finding& finding) {
  const RankClass row = facts.schedule.row_of({finding.op});
  std::string who = to_text(finding.work) + " on " + row_name(facts.schedule, row);
  Op forward = finding.work;
  forward.kind = OpKind::Forward;
  const bool none = finding.other < 0;
  switch (finding.fault) {
    case Fault::Twice:
      return who + " is run twice";
    case Fault::BothForms:
      return who + ": its micro-batch has a whole backward (B) and a split one (I, W): one of them";
    case Fault::BeforeForward:
      return who + " runs before its forward " + to_text(forward) +
             (none ? ", which is never run" : "");
    case Fault::WeightBeforeInput:
      return who + " runs before its input gradient" + (none ? ", which is never run" : "");
    case Fault::PartOrder:
      return who + (finding.work.kind == OpKind::Recompute
                        ? ": parts of an R ascend from segment 0"
                        : ": parts of a forward ascend from segment 0, of a backward they descend");
    case Fault::SliceOrder:
      return who + ": slices of a forward ascend, of a backward they descend";
    case Fault::RecomputeLate:
      return who + " runs after the backward that it is for" +
             (none ? "" : ", " + to_text(facts.schedule, {finding.other}));
    case Fault::BeforeArrival:
      return who + " is listed before " + to_text(facts.schedule, {finding.other}) +
             ", which brings its input";
    case Fault::BeforeProducer:
      return who + " is listed before " + to_text(facts.schedule, {finding.other}) +
             ", which makes its input";
    case Fault::SendBeforeSource:
      return who + " is listed before " + to_text(facts.schedule, {finding.other}) +
             ", which makes what it carries";
    case Fault::Elsewhere:
      break;  // V13 tells it
  }
  return who;
}

void tell_findings(const Facts& facts, bool (*about)(Fault), Report& report) {
  for (const Finding& finding : facts.survey.findings) {
    if (!about(finding.fault)) continue;
    report.add(finding.op, [&] { return tell(facts, finding); });
  }
}

// "3F0 is missing: it belongs on rank 3".
void missing(const Facts& facts, std::size_t key, OpKind kind, const char* why, Report& report) {
  report.add(-1, [&] {
    Op op = compute_op(kind, facts.index.stage_of(key), facts.index.microbatch_of(key));
    op.slice = facts.index.slice_of(key);
    const Position at = facts.schedule.placement.position(op.stage, op.microbatch);
    return to_text(op) + " is missing" + why + ": it belongs on " +
           (facts.schedule.rows.empty() ? "rank " : "position ") + std::to_string(at.value);
  });
}

// Segments whose W may be left out: a head's weights are done with its forward or its I.
std::int16_t heads(const Facts& facts, Stage stage) {
  if (facts.schedule.segments.empty()) return 0;
  const auto& segments = facts.schedule.segments[stage.index()];
  return static_cast<std::int16_t>(
      std::ranges::count(segments, SegmentKind::Head, &SegmentInfo::kind));
}

}  // namespace

bool check_completeness(const Facts& facts, Report& report) {
  tell_findings(facts, is_about_completeness, report);
  // Forwards alone (inference) are complete without backwards.
  const bool trains = std::ranges::any_of(facts.survey.progress, [](const Progress& p) {
    return p.backward >= 0 || p.weight > 0 || p.recomputed > 0;
  });
  for (std::size_t key = 0; key < facts.survey.progress.size(); ++key) {
    const Progress& progress = facts.survey.progress[key];
    const Stage stage = facts.index.stage_of(key);
    const std::int16_t all = facts.survey.segments[stage.index()];
    if (progress.forward < all) {
      missing(facts, key, OpKind::Forward, progress.forward > 0 ? " in part" : "", report);
    }
    if (!trains) continue;
    if (progress.backward != 0) {
      const OpKind kind = progress.split ? OpKind::InputGradient : OpKind::Backward;
      missing(facts, key, kind, progress.backward > 0 ? " in part" : "", report);
    }
    if (progress.recomputed > 0 && progress.recomputed < all) {
      missing(facts, key, OpKind::Recompute, " in part", report);
    }
    if (progress.split && progress.weight < all - heads(facts, stage)) {
      missing(facts, key, OpKind::WeightGradient, progress.weight > 0 ? " in part" : "", report);
    }
  }
  return !facts.survey.progress.empty();
}

bool check_order(const Facts& facts, Report& report) {
  tell_findings(facts, is_about_order, report);
  return !facts.survey.progress.empty();
}

}  // namespace rehearse
