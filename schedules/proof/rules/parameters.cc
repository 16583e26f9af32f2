// SPDX-License-Identifier: Apache-2.0
// V9 and V10: parameters are whole when they are read, and every micro-batch's gradient is in the
// sum that the optimizer sees; it begins with a loss.
#include <algorithm>
#include <array>

#include "schedules/ir/listing.h"
#include "schedules/proof/rules/rules.h"

namespace rehearse {
namespace {

// torch's words name a stage that there is (V1 says so of others), ours a bucket.
bool is_about_stage(const Facts& facts, const Op& op) {
  return op.stage && op.stage.value < facts.schedule.placement.stages() && !op.bucket;
}

// --- V9 in text (torch's UNSHARD and RESHARD of a stage) ---------------------

// How a row ends.
struct EndOfRow {
  std::vector<std::int32_t> left;  // UNSHARDs that are still in force
  Stage last{};                    // of the row's last compute op
  bool reshards = false;           // the row lists a RESHARD
};

// Torch (2.8.0, _add_unshard_reshard) reshards a stage where the next one needs its room, so that a
// rank with several stages ends with that of its last op gathered, on every rank. Elsewhere what is
// still gathered at the end is a leak.
void check_left_gathered(const Facts& facts, const std::vector<EndOfRow>& rows, Report& report) {
  const auto stage_of = [&](std::int32_t id) { return facts.op(id).stage; };
  const bool like_torch = std::ranges::all_of(rows, [&](const EndOfRow& row) {
    return !row.reshards || std::ranges::find(row.left, row.last, stage_of) != row.left.end();
  });
  for (const EndOfRow& row : rows) {
    for (const std::int32_t id : row.left) {
      if (like_torch && row.reshards && stage_of(id) == row.last) continue;
      report.add(id, [&] {
        return facts.where(id) + " leaks: its stage stays gathered to the end, " +
               std::to_string(stage_of(id).value) + "RESHARD after its last op is missing";
      });
    }
  }
}

bool check_gathers_of_stages(const Facts& facts, Report& report) {
  if (!facts.index.has(OpKind::Unshard) && !facts.index.has(OpKind::Reshard)) return false;
  const Schedule& s = facts.schedule;
  const auto stages = static_cast<std::size_t>(s.placement.stages());
  std::vector<std::int32_t> gathered(stages, -1);  // on the row at hand: the UNSHARD in force
  std::vector<bool> gathers(stages, false);        // stages that are gathered at all
  for (const Op& op : s.ops) {
    const bool about = op.kind == OpKind::Unshard || op.kind == OpKind::Reshard;
    if (about && is_about_stage(facts, op)) gathers[op.stage.index()] = true;
  }
  if (std::ranges::find(gathers, true) == gathers.end()) return false;
  std::vector<EndOfRow> rows(static_cast<std::size_t>(s.num_rows()));
  std::vector<std::int32_t> unshards;  // of the row at hand
  const auto step = [&](EndOfRow& row, std::int32_t id, const Op& op) {
    const auto is = [&](OpKind kind) { return op.kind == kind && is_about_stage(facts, op); };
    if (is(OpKind::Unshard)) {
      if (gathered[op.stage.index()] >= 0) {
        report.add(id, [&] { return facts.where(id) + ": the stage is gathered already"; });
      }
      gathered[op.stage.index()] = id;
      unshards.push_back(id);
    } else if (is(OpKind::Reshard)) {
      if (gathered[op.stage.index()] < 0) {
        report.add(id, [&] { return facts.where(id) + ": the stage is not gathered"; });
      }
      gathered[op.stage.index()] = -1;
      row.reshards = true;
    } else if (is_compute(op.kind)) {
      for (const Op& work : work_of(s, op)) {
        if (!facts.index.holds(work)) continue;
        row.last = work.stage;
        if (!gathers[work.stage.index()] || gathered[work.stage.index()] >= 0) continue;
        report.add(id, [&] {
          return facts.where(id) + " computes on sharded parameters: UNSHARD its stage first";
        });
      }
    }
  };
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    for (std::size_t i = s.first_op(row); i < s.first_op({row.value + 1}); ++i) {
      step(rows[row.index()], static_cast<std::int32_t>(i), s.ops[i]);
    }
    for (const std::int32_t id : unshards) {
      std::int32_t& still = gathered[facts.op(id).stage.index()];
      if (still != id) continue;
      rows[row.index()].left.push_back(id);
      still = -1;
    }
    unshards.clear();
  }
  check_left_gathered(facts, rows, report);
  return true;
}

// --- V9 in values ------------------------------------------------------------

bool check_gathers_of_buckets(const Facts& facts, Report& report) {
  const Schedule& s = facts.schedule;
  bool any = false;
  // Per row and bucket the gather that is alive; values are looked up as they are defined.
  std::vector<std::int32_t> alive(static_cast<std::size_t>(s.num_rows()) * s.buckets.size(), -1);
  facts.each_op([&](RankClass row, std::int32_t id, const Op& op) {
    for (const Operand& operand : s.operands_of({id})) {
      const Value& value = s.values[operand.value.index()];
      if (is_compute(op.kind) && value.kind == ValueKind::ParameterShard) {
        report.add(id, [&] {
          return facts.where(id) + " computes on the shard " + value_name(s, operand.value) +
                 ": it needs the whole";
        });
      }
      const bool gather = value.kind == ValueKind::FullParameter && !value.persistent;
      if (!gather || !value.bucket || operand.access != Access::Write) continue;
      any = true;
      std::int32_t& latest = alive[row.index() * s.buckets.size() + value.bucket.index()];
      if (latest >= 0 && s.values[static_cast<std::size_t>(latest)].last_use.value >= id) {
        report.add(id, [&] {
          return facts.where(id) + " gathers " + value_name(s, operand.value) + " while " +
                 value_name(s, {latest}) + " is still in use";
        });
      }
      if (op.kind == OpKind::Unshard && op.bucket != value.bucket) {
        report.add(id, [&] { return facts.where(id) + " gathers another bucket than it names"; });
      }
      latest = operand.value.value;
    }
  });
  return any;
}

// --- V10 in text -------------------------------------------------------------

bool check_reductions_of_stages(const Facts& facts, Report& report) {
  if (!facts.index.has(OpKind::ReduceGrad) && !facts.index.has(OpKind::OptimizerStep)) return false;
  const Schedule& s = facts.schedule;
  const auto stages = static_cast<std::size_t>(s.placement.stages());
  bool any = false;
  std::vector<std::int32_t> reduced(stages, -1), stepped(stages, -1);
  facts.each_op([&](RankClass, std::int32_t id, const Op& op) {
    if (op.kind == OpKind::ReduceGrad && is_about_stage(facts, op)) {
      any = true;
      if (reduced[op.stage.index()] >= 0) {
        report.add(id, [&] { return facts.where(id) + " reduces a second time"; });
      }
      reduced[op.stage.index()] = id;
    } else if (op.kind == OpKind::OptimizerStep && is_about_stage(facts, op)) {
      any = true;
      stepped[op.stage.index()] = id;
    } else if (is_compute(op.kind)) {
      for (const Op& work : work_of(s, op)) {
        const bool adds = work.kind == OpKind::Backward || work.kind == OpKind::WeightGradient;
        if (!adds || !facts.index.holds(work)) continue;
        for (const auto* closed : {&reduced, &stepped}) {
          const std::int32_t before = (*closed)[work.stage.index()];
          if (before < 0) continue;
          report.add(id, [&] {
            return facts.where(id) + " adds to a gradient that " + to_text(s, {before}) +
                   " has used: it is late";
          });
        }
      }
    }
  });
  return any;
}

// --- V10 in values -----------------------------------------------------------

// Contributions to a bucket by a stage in one of three ways, as a set of micro-batches.
enum class Way : std::uint8_t { Forward, Input, Weight };  // with F; with I; with W
struct Contributions {
  RankClass row{};
  BucketId bucket{};
  Stage stage{};
  Way way{};
  std::vector<bool> units;  // by micro-batch and slice
  std::int32_t example = -1;
};

class Sums {
 public:
  Sums(const Facts& facts, Report& report)
      : facts_(facts), s_(facts.schedule), report_(report), of_bucket_(s_.buckets.size()) {}

  bool run() {
    // F, I and W say which stage adds to which bucket; then B and pairs can be told apart.
    const auto turn_of = [](OpKind kind) {
      return kind == OpKind::Overlap ? 2 : kind == OpKind::Backward ? 1 : 0;
    };
    for (const int turn : {0, 1, 2}) {
      facts_.each_op([&](RankClass row, std::int32_t id, const Op& op) {
        if (!is_compute(op.kind) || turn_of(op.kind) != turn) return;
        for (const Operand& operand : s_.operands_of({id})) {
          const Value& value = s_.values[operand.value.index()];
          const bool adds = value.kind == ValueKind::Gradient && operand.access != Access::Read;
          if (adds && value.bucket) credit(row, id, value.bucket);
        }
      });
    }
    for (const Contributions& sum : sums_) all_microbatches(sum);
    losses();
    flow();
    return !sums_.empty();
  }

 private:
  std::size_t unit(const Op& work) const {
    return work.microbatch.index() * static_cast<std::size_t>(facts_.index.slices()) +
           static_cast<std::size_t>(std::max<std::int8_t>(work.slice, 0));
  }
  Contributions* known(RankClass row, BucketId bucket, Stage stage, Way way) {
    for (const std::size_t at : of_bucket_[bucket.index()]) {
      Contributions& sum = sums_[at];
      if (sum.row == row && sum.stage == stage && sum.way == way) return &sum;
    }
    return nullptr;
  }

  void credit(RankClass row, std::int32_t id, BucketId bucket) {
    const Op& op = facts_.op(id);
    const bool pair = op.kind == OpKind::Overlap;
    for (const Op& work : work_of(s_, op)) {
      if (!facts_.index.holds(work)) continue;
      for (const Way way : {Way::Forward, Way::Input, Way::Weight}) {
        if (!takes(work.kind, way)) continue;
        Contributions* sum = known(row, bucket, work.stage, way);
        if (sum == nullptr && pair) continue;
        if (sum == nullptr) {
          // B alone does not say whether I or W adds: it counts for what others have shown, else W.
          const bool shown = known(row, bucket, work.stage, Way::Input) != nullptr;
          if (work.kind == OpKind::Backward && (way == Way::Input || shown)) continue;
          const std::size_t units = facts_.index.stage_stride();
          of_bucket_[bucket.index()].push_back(sums_.size());
          sums_.push_back({row, bucket, work.stage, way, std::vector<bool>(units, false), id});
          sum = &sums_.back();
        }
        sum->units[unit(work)] = true;
      }
    }
  }
  static bool takes(OpKind kind, Way way) {
    switch (way) {
      case Way::Forward:
        return kind == OpKind::Forward;
      case Way::Input:
        return is_backward(kind);
      case Way::Weight:
        return kind == OpKind::Backward || kind == OpKind::WeightGradient;
    }
    return false;
  }

  void all_microbatches(const Contributions& sum) {
    const Position here = s_.position_of(sum.row);
    for (std::int32_t b = 0; b < s_.microbatches; ++b) {
      if (s_.placement.position(sum.stage, {b}) != here) continue;
      for (std::int32_t k = 0; k < facts_.index.slices(); ++k) {
        const auto at = static_cast<std::size_t>(std::int64_t{b} * facts_.index.slices() + k);
        if (sum.units[at] || by_another_way(sum, at)) continue;
        report_.add(sum.example, [&] {
          return "bucket " + s_.buckets[sum.bucket.index()].name + " on " + row_name(s_, sum.row) +
                 " lacks micro-batch " + std::to_string(b) + " of stage " +
                 std::to_string(sum.stage.value) + ", unlike that of " + facts_.where(sum.example);
        });
      }
    }
  }
  // Some micro-batches have a B, others I and W: what I adds for these, B adds for those.
  bool by_another_way(const Contributions& sum, std::size_t at) {
    if (sum.way != Way::Input) return false;
    const Contributions* whole = known(sum.row, sum.bucket, sum.stage, Way::Weight);
    return whole != nullptr && whole->units[at];
  }

  // What goes back to replicas as the gradient of their gathered outputs, a LOSS has made.
  void losses() {
    std::vector<bool> made(s_.values.size(), false);
    facts_.each_op([&](RankClass, std::int32_t id, const Op& op) {
      const bool loss = op.kind == OpKind::Loss;
      const bool back = op.kind == OpKind::Scatter && op.payload == Payload::Gradient;
      if (!loss && !back) return;
      for (const Operand& operand : s_.operands_of({id})) {
        if (s_.values[operand.value.index()].kind != ValueKind::ActivationGradient) continue;
        if (loss) made[operand.value.index()] = true;
        if (loss || operand.access != Access::Read || made[operand.value.index()]) continue;
        report_.add(id, [&] {
          return facts_.where(id) + " hands back outputs as they came: no LOSS has made their " +
                 "gradients";
        });
      }
    });
  }

  // What each value has been through, and where it goes.
  struct Flow {
    std::int32_t last_sum = -1;               // compute op that added last
    std::int32_t collective = -1;             // first reduction over more than tp
    std::array<bool, kNumGroupKinds> over{};  // groups that have reduced it
    bool used = false;
  };

  void flow() {
    std::vector<Flow> flows(s_.values.size());
    facts_.each_op([&](RankClass, std::int32_t id, const Op& op) {
      const bool collective = traits(op.kind).op_class == OpClass::Collective;
      Flow in;  // what this op reads
      for (const Operand& operand : s_.operands_of({id})) {
        if (!is_gradient(operand) || operand.access != Access::Read) continue;
        Flow& from = flows[operand.value.index()];
        for (std::size_t k = 0; k < kNumGroupKinds; ++k) in.over[k] |= from.over[k];
        if (op.kind != OpKind::GradNorm) from.used = true;
      }
      for (const Operand& operand : s_.operands_of({id})) {
        if (!is_gradient(operand)) continue;
        Flow& value = flows[operand.value.index()];
        if (op.kind == OpKind::OptimizerStep) step(id, operand.value, value);
        if (operand.access == Access::Read) continue;
        if (is_compute(op.kind)) {
          if (value.collective >= 0) {
            report_.add(id, [&] {
              return facts_.where(id) + " adds to " + value_name(s_, operand.value) + " after " +
                     facts_.where(value.collective) + " has reduced it";
            });
          }
          value.last_sum = id;
        }
        for (std::size_t k = 0; k < kNumGroupKinds; ++k) value.over[k] |= in.over[k];
        if (collective && op.group) value.over[number(s_.group_of(op).kind)] = true;
        if (collective && is_over_replicas(op)) {
          if (value.collective < 0) value.collective = id;
          value.used |= op.kind == OpKind::Reduce;  // it went to the root
        }
      }
    });
    for (std::size_t v = 0; v < flows.size(); ++v) {
      if (s_.values[v].kind != ValueKind::Gradient || flows[v].used) continue;
      report_.add(s_.values[v].last_use.value, [&] {
        return "gradient " + value_name(s_, {static_cast<std::int32_t>(v)}) + " on " +
               row_name(s_, s_.values[v].row) + " reaches no optimizer step";
      });
    }
  }
  bool is_gradient(const Operand& operand) const {
    return s_.values[operand.value.index()].kind == ValueKind::Gradient;
  }
  // Over whom the value's bucket is summed.
  GroupKind replicas_of(ValueId value) const {
    const BucketId bucket = s_.values[value.index()].bucket;
    return bucket ? s_.buckets[bucket.index()].replicas : GroupKind::Data;
  }
  bool is_over_replicas(const Op& op) const {
    return op.group && !s_.is_on(op, GroupKind::Tensor) && !s_.is_on(op, GroupKind::Context);
  }

  static constexpr std::size_t number(GroupKind kind) { return static_cast<std::size_t>(kind); }

  void step(std::int32_t id, ValueId value, const Flow& flow) {
    const GroupKind replicas = replicas_of(value);
    for (const GroupKind kind : {replicas, GroupKind::Replicate}) {
      if (kind == GroupKind::Replicate && replicas != GroupKind::Shard) continue;
      if (!s_.group(kind) || flow.over[number(kind)]) continue;
      report_.add(id, [&] {
        return facts_.where(id) + " uses " + value_name(s_, value) +
               ", which has not been reduced over " + std::string(traits(kind).name);
      });
    }
    const Value& gradient = s_.values[value.index()];
    const bool tied = gradient.bucket && s_.buckets[gradient.bucket.index()].tied;
    if (s_.group(GroupKind::Embedding) && tied && !flow.over[number(GroupKind::Embedding)]) {
      report_.add(id, [&] {
        return facts_.where(id) + " uses " + value_name(s_, value) +
               ", which has not been added to that of the other use (group embed)";
      });
    }
    if (flow.last_sum >= 0 && !facts_.before(flow.last_sum, id)) {
      report_.add(id, [&] {
        return facts_.where(id) + " does not wait for " + facts_.where(flow.last_sum) +
               ", the last that adds to " + value_name(s_, value);
      });
    }
  }

  const Facts& facts_;
  const Schedule& s_;
  Report& report_;
  std::vector<Contributions> sums_;
  std::vector<std::vector<std::size_t>> of_bucket_;  // indices into sums_
};

}  // namespace

bool check_gathers(const Facts& facts, Report& report) {
  return facts.has_values() ? check_gathers_of_buckets(facts, report)
                            : check_gathers_of_stages(facts, report);
}

bool check_gradients(const Facts& facts, Report& report) {
  return facts.has_values() ? Sums(facts, report).run() : check_reductions_of_stages(facts, report);
}

}  // namespace rehearse
