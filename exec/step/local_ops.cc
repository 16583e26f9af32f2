// SPDX-License-Identifier: Apache-2.0
// Ops that need nobody else, from operands to backend calls.
#include <algorithm>

#include "exec/step/rank_state.h"
#include "exec/weights/stored_bucket.h"

namespace rehearse::exec {
namespace {

class LocalOp {
 public:
  LocalOp(const LocalRanks& local, RankState& rank, OpId id)
      : local_(local),
        s_(local.schedule),
        rank_(rank),
        op_(s_.ops[id.index()]),
        operands_(s_.operands_of(id)),
        lane_{rank.rank.value, op_.stream} {}

  void fetch() const {
    if (value(0).kind != ValueKind::Input) {
      return each_pair([&](std::byte* from, std::byte* to, std::int64_t bytes) {
        local_.device.from_host(lane_, to, from, bytes);
      });
    }
    const auto& tokens =
        (op_.instance == 1 ? local_.targets
                           : local_.inputs)[static_cast<std::size_t>(rank_.replica)];
    if (local_.plan.has_parameter_server()) return fetch_batch();
    local_.device.fetch(lane_, data(1), tokens.data(),
                        static_cast<std::int64_t>(tokens.size() * sizeof(std::int32_t)));
  }

  // Tokens or targets of all replicas, micro-batch by micro-batch.
  void fetch_batch() const {
    const auto& all = op_.instance == 1 ? local_.targets : local_.inputs;
    const std::int64_t units = local_.plan.microbatches();
    const auto each = static_cast<std::int64_t>(all.front().size()) / units;
    float* to = data(1);
    for (std::int64_t unit = 0; unit < units; ++unit) {
      for (const std::vector<std::int32_t>& tokens : all) {
        local_.device.fetch(lane_, to, tokens.data() + unit * each, 4 * each);
        to += each;
      }
    }
  }

  void offload() const {
    if (value(0).kind != ValueKind::Metrics) {
      return each_pair([&](std::byte* from, std::byte* to, std::int64_t bytes) {
        local_.device.to_host(lane_, to, from, bytes);
      });
    }
    local_.device.offload(lane_, rank_.norms.data(), data(0),
                          8 * static_cast<std::int64_t>(rank_.norms.size()));
  }

  void add() const {
    const Value& from = value(0);
    const Bucket& bucket = s_.buckets[op_.bucket.index()];
    const OwnRange own = own_range(local_, rank_, bucket);
    const bool part = !from.shard && local_.sharded(bucket);  // after a reduce-scatter
    const std::int64_t begin = part ? own.begin : 0, end = part ? own.end : from.bytes.value / 4;
    local_.kernels.add(lane_, end - begin, data(0) + begin, data(1) + begin);
  }

  // Every element of the model counts once: over tp as counted_elements says, tied tables where the
  // embedding is, equal shards and unsharded gradients at one replica.
  void norms() const {
    std::vector<NormRange> ranges;
    const float* loss = nullptr;
    const std::size_t last = operands_.size() - 1;
    for (std::size_t k = 0; k < last; ++k) {
      if (value(k).kind == ValueKind::Metrics) {
        // Every row of a grid has the loss of its own samples.
        if (local_.mesh.grid_column(rank_.at) == 0) loss = data(k);
        continue;
      }
      const Bucket& bucket = s_.buckets[value(k).bucket.index()];
      if (!local_.stands_for_all(rank_, bucket)) continue;
      const OwnRange own = own_range(local_, rank_, bucket);
      const float* gradient = data(k) - (value(k).shard ? own.begin : 0);
      for (const TensorPlace& place : local_.places) {
        if (place.bucket != value(k).bucket) continue;
        const Stage owner =
            place.what.table && local_.model.tied_embedding ? Stage{0} : place.stage;
        if (s_.placement.down[owner.index()] != s_.position_of(rank_.row)) continue;
        for (const NormPart& part : norm_parts(local_.layout, place, local_.part(rank_, bucket))) {
          const std::int64_t begin = std::max(own.begin, place.offset + part.begin);
          const std::int64_t end = std::min(own.end, place.offset + part.end);
          if (begin < end) ranges.push_back({gradient + begin, end - begin, part.slot});
        }
      }
    }
    auto* norms = reinterpret_cast<double*>(data(last));
    local_.kernels.norms(lane_, ranges, loss, local_.slots, norms);
    if (rank_.expert_rows.empty()) return;
    const auto bytes = static_cast<std::int64_t>(rank_.expert_rows.size_bytes());
    local_.device.transfer(lane_, rank_.expert_rows.data(), lane_, norms + local_.slots, bytes);
    local_.device.clear(lane_, rank_.expert_rows.data(), bytes);  // for the next step
  }

  void optimizer_step(const StepOptions& options) const {
    const OwnRange own = own_range(local_, rank_, s_.buckets[op_.bucket.index()]);
    const std::int64_t count = own.end - own.begin;
    std::vector<UpdateRange> ranges;
    for (const TensorPlace& place : local_.places) {
      if (place.bucket != op_.bucket) continue;
      const std::int64_t begin = std::max(own.begin, place.offset);
      const std::int64_t end = std::min(own.end, place.offset + place.what.elements);
      const bool decays = place.what.matrix || !options.train.weight_decay_matrices_only;
      if (begin < end) {
        ranges.push_back(
            {begin - own.begin, end - own.begin, decays ? options.train.weight_decay : 0.0});
      }
    }
    const bool shard = value(3).kind == ValueKind::ParameterShard;
    const std::int64_t element = bytes_of(local_.type_of(value(3)));
    const OptimizerRow& optimizer = row_of(local_.layout.plan.optimizer);
    const StateArrays state = state_arrays(data(2), value(2).bytes.value, count, optimizer);
    local_.kernels.update(lane_, {.rule = optimizer.rule,
                                  .gradient = data(0) + (value(0).shard ? 0 : own.begin),
                                  .parameter = reinterpret_cast<std::byte*>(data(3)) +
                                               (shard ? 0 : own.begin) * element,
                                  .master = state.master,
                                  .moments = state.moments,
                                  .ranges = ranges,
                                  .norms = reinterpret_cast<const double*>(data(1)),
                                  .slots = local_.slots,
                                  .options = &options.train,
                                  .rate = options.learning_rate,
                                  .step = options.step - options.skipped,
                                  .loss_scale = options.loss_scale});
  }

 private:
  // A copy's operands: from, to, from, to, ...
  template <class Copy>
  void each_pair(Copy copy) const {
    for (std::size_t k = 0; k + 1 < operands_.size(); k += 2) {
      copy(local_.address(rank_, operands_[k].value), local_.address(rank_, operands_[k + 1].value),
           value(k).bytes.value);
      for (const std::size_t side : {k, k + 1}) {
        if (value(side).home != Home::Nvme) continue;
        rank_.drives.release(local_.address(rank_, operands_[side].value), value(side).bytes.value);
      }
    }
  }
  const Value& value(std::size_t k) const { return s_.values[operands_[k].value.index()]; }
  float* data(std::size_t k) const { return local_.floats(rank_, operands_[k].value); }

  const LocalRanks& local_;
  const Schedule& s_;
  RankState& rank_;
  const Op& op_;
  std::span<const Operand> operands_;
  Lane lane_;
};

}  // namespace

OwnRange own_range(const LocalRanks& local, const RankState& rank, const Bucket& bucket) {
  if (!local.sharded(bucket)) return {0, bucket.padded};
  const std::int64_t part = bucket.padded / local.shards(bucket);
  const std::int64_t shard = local.shard(rank, bucket);
  return {shard * part, (shard + 1) * part};
}

void perform_local(const LocalRanks& local, RankState& rank, OpId id, const StepOptions& options) {
  const LocalOp op(local, rank, id);
  switch (local.schedule.ops[id.index()].kind) {
    case OpKind::Fetch:
      return op.fetch();
    case OpKind::Offload:
      return op.offload();
    case OpKind::Add:
      return op.add();
    case OpKind::GradNorm:
      return op.norms();
    case OpKind::OptimizerStep:
      return op.optimizer_step(options);
    default:
      return;
  }
}

}  // namespace rehearse::exec
