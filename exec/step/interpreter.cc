// SPDX-License-Identifier: Apache-2.0
#include "exec/step/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "exec/step/scheduler.h"
#include "exec/step/trials.h"
#include "exec/weights/hugging_face.h"
#include "schedules/ranks/unfold.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse::exec {
namespace {

Error diverged(std::int64_t step, const std::string& why) {
  return {.message = "diverged at step " + std::to_string(step + 1) + ": " + why,
          .infeasible = true};
}

}  // namespace

Interpreter::Interpreter(LocalRanks local) : local_(std::move(local)) {}
Interpreter::~Interpreter() = default;

Result<std::unique_ptr<Interpreter>> Interpreter::create(const Layout& layout,
                                                         const Schedule& schedule,
                                                         const Backend& backend,
                                                         const InterpreterOptions& options) {
  const Plan& plan = layout.plan;
  if (!backend.device->computes_in(plan.precision.compute)) {
    return Error{"plan.precision: " + std::string(backend.device->name()) +
                 " was not opened for products in " + std::string(name_of(plan.precision.compute))};
  }
  if (layout.model.experts.count > 0 && backend.device->asynchronous() &&
      plan.expert_parallel > 1 && plan.expert_dispatch != ExpertDispatch::AllGather &&
      !plan.expert_slots) {
    return Error{"plan.expert_slots: must be true on " + std::string(backend.device->name()) +
                 ": its host reads no counts inside a step"};
  }
  const Transformer& model = layout.model;
  const std::int64_t head = std::max(model.head_dim, model.latent.v_head_dim);
  if (head > backend.device->widest_head()) {
    return Error{"model.head_dim: heads of " + std::to_string(head) + " columns: attention on " +
                 std::string(backend.device->name()) + " takes up to " +
                 std::to_string(backend.device->widest_head())};
  }
  if (schedule.group(GroupKind::Other) && backend.device->asynchronous()) {
    return Error{
        "plan.schedule: collectives of groups of its own are performed on the CPU only, not on " +
        std::string(backend.device->name())};
  }
  if (!schedule.nvme_bytes.empty() && backend.device->asynchronous()) {
    return Error{"plan.offload_to: nvme is performed on the CPU only, not on " +
                 std::string(backend.device->name())};
  }
  Result<std::vector<std::int64_t>> peaks = count_arenas(schedule);
  if (!peaks) return peaks.error();
  std::unique_ptr<Interpreter> made(new Interpreter({.layout = layout,
                                                     .model = layout.model,
                                                     .plan = layout.plan,
                                                     .schedule = schedule,
                                                     .device = *backend.device,
                                                     .kernels = *backend.kernels,
                                                     .mesh = Mesh(plan),
                                                     .places = place_tensors(layout, schedule)}));
  made->peak_ = std::move(peaks).value();
  LocalRanks& local = made->local_;
  for (const auto& stage : schedule.segments) {
    for (const SegmentInfo& segment : stage) {
      local.slots += norm_slots(layout, segment);
    }
  }
  const std::int32_t processes =
      options.communicator == nullptr ? 1 : options.communicator->processes();
  const std::int32_t count = local.mesh.ranks() / processes;
  local.first = options.communicator == nullptr ? 0 : options.communicator->process() * count;
  const std::vector<RankClass> row_of_rank = rows_of_ranks(plan, schedule);
  for (std::int32_t r = local.first; r < local.first + count; ++r) {
    auto rank = std::make_unique<RankState>();
    rank->rank = {r};
    rank->at = local.mesh.coordinates({r});
    rank->folded = local.mesh.folded(rank->at);
    rank->replica = local.mesh.replica(rank->at);
    rank->row = row_of_rank[static_cast<std::size_t>(r)];
    const Result<std::byte*> arena =
        backend.device->allocate(r, schedule.arena_bytes[rank->row.index()].value);
    if (!arena) return arena.error();
    rank->arena = arena.value();
    if (const Bytes held = schedule.host_bytes[rank->row.index()]; held.value > 0) {
      const Result<std::byte*> host = backend.device->allocate_host(r, held.value);
      if (!host) return host.error();
      rank->host = host.value();
    }
    const std::int64_t away =
        schedule.nvme_bytes.empty() ? 0 : schedule.nvme_bytes[rank->row.index()].value;
    if (away > 0) {
      Result<OffloadFile> file = OffloadFile::open(options.drives, away);
      if (!file) return file.error();
      rank->drives = std::move(file).value();
    }
    const std::int64_t layers = layout.model.layers, experts = layers * layout.model.experts.count;
    if (experts > 0) {
      const std::int64_t counts = (plan.expert_drop > 0 ? 2 : 1) * experts;
      const auto kept = static_cast<std::int64_t>(kExpertLimits + 1) * layers;
      const Result<std::byte*> counted = backend.device->allocate(r, 8 * (counts + kept));
      if (!counted) return counted.error();
      auto* rows = reinterpret_cast<double*>(counted.value());
      rank->expert_rows = {rows, static_cast<std::size_t>(counts)};
      rank->expert_counts = {
          .rows = rows,
          .dropped = plan.expert_drop > 0 ? rows + experts : nullptr,
          .most = rows + counts,
          .lost = rows + counts + static_cast<std::int64_t>(kExpertLimits) * layers};
    }
    if (layout.model.experts.correction_bias) {
      const Result<std::byte*> correction = backend.device->allocate(r, 4 * experts);
      if (!correction) return correction.error();
      rank->correction = correction.value();
      local.correction.assign(static_cast<std::size_t>(experts), 0);
    }
    rank->norms.assign(static_cast<std::size_t>(local.slots) + rank->expert_rows.size(), 0);
    resolve_addresses(local, *rank);
    local.ranks.push_back(std::move(rank));
  }
  const std::size_t tokens = static_cast<std::size_t>(plan.microbatches() * plan.sequence_slices) *
                             static_cast<std::size_t>(layout.shape.batch_tokens());
  local.inputs.resize(static_cast<std::size_t>(plan.replicas()));
  for (const auto& rank : local.ranks) {
    // Through one GPU its process has the batch of all, the others none.
    const bool server = plan.has_parameter_server();
    for (std::int32_t replica = 0; replica < plan.replicas(); ++replica) {
      const bool has = server ? rank->replica == 0 : replica == rank->replica;
      if (has) local.inputs[static_cast<std::size_t>(replica)].resize(tokens);
    }
  }
  local.targets = local.inputs;
  bring_exchanges(local);
  made->runner_ = std::make_unique<BodyRunner>(local.layout);
  made->scheduler_ = std::make_unique<Scheduler>(local, *made->runner_, options.communicator,
                                                 options.observer, options.workers);
  return made;
}

Result<> Interpreter::try_kernels() {
  for (const auto& rank : local_.ranks) {
    const Result<> tried = exec::try_kernels(local_, *rank, *runner_);
    if (!tried) return tried;
  }
  return {};
}

const std::vector<Nanoseconds>& Interpreter::start() const {
  return scheduler_->start;
}
const std::vector<Nanoseconds>& Interpreter::end() const {
  return scheduler_->end;
}
std::vector<CollectiveCount> Interpreter::collectives() const {
  return scheduler_->exchanged.busiest();
}
std::int64_t Interpreter::began_ns() const {
  return scheduler_->began_ns;
}
void Interpreter::fail(const std::string& message) {
  scheduler_->fail(message);
}

std::vector<StoredBucket> Interpreter::stored() const {
  const Schedule& s = local_.schedule;
  std::vector<StoredBucket> all;
  for (const auto& rank : local_.ranks) {
    std::vector<StoredBucket> by_bucket(s.buckets.size());
    for (std::size_t v = 0; v < s.values.size(); ++v) {
      const Value& value = s.values[v];
      if (value.row != rank->row || !value.bucket || !value.persistent) continue;
      StoredBucket& stored = by_bucket[value.bucket.index()];
      const OwnRange own = own_range(local_, *rank, s.buckets[value.bucket.index()]);
      const std::int64_t count = own.end - own.begin;
      std::byte* at = local_.address(*rank, {static_cast<std::int32_t>(v)});
      stored.own_first = own.begin;
      stored.own_last = own.end;
      if (value.kind == ValueKind::FullParameter || value.kind == ValueKind::ParameterShard) {
        const bool whole = value.kind == ValueKind::FullParameter;
        stored.rank = rank->rank.value;
        stored.bucket = value.bucket;
        stored.first = whole ? 0 : own.begin;
        stored.last = whole ? s.buckets[value.bucket.index()].padded : own.end;
        stored.parameter = at;
        stored.type = local_.type_of(value);
      } else if (value.kind == ValueKind::OptimizerState) {
        auto* state = reinterpret_cast<float*>(at);
        const StateArrays arrays =
            state_arrays(state, value.bytes.value, count, row_of(local_.layout.plan.optimizer));
        stored.master = arrays.master;
        stored.moments = arrays.moments;
      }
    }
    for (const StoredBucket& stored : by_bucket) {
      if (stored.parameter != nullptr) all.push_back(stored);
    }
  }
  return all;
}

namespace {

using ValueOf = std::function<double(const std::string&, std::int64_t)>;

// Elements [begin, end) of one part of a bucket; those that no tensor has are zero.
void fill(const LocalRanks& local, BucketId bucket, std::int32_t part, std::int64_t begin,
          std::int64_t end, ValueOf value_of, float* values) {
  std::fill_n(values, end - begin, 0.0F);
  for (const TensorPlace& place : local.places) {
    if (place.bucket != bucket) continue;
    const std::int64_t to = std::min(end, place.offset + place.what.elements);
    for (std::int64_t at = std::max(begin, place.offset); at < to; ++at) {
      const std::int64_t whole = whole_element(local.layout, place, part, at - place.offset);
      if (whole >= 0) values[at - begin] = static_cast<float>(value_of(place.name, whole));
    }
  }
}

}  // namespace

void Interpreter::initialise(const ValueOf& value_of, int threads) {
  const std::vector<StoredBucket> all = stored();
  const auto part_of = [&](const StoredBucket& one) {
    return local_.part(*local_.ranks[static_cast<std::size_t>(one.rank - local_.first)],
                       local_.schedule.buckets[one.bucket.index()]);
  };
  std::vector<std::uint8_t> done(all.size(), 0);
  std::vector<float> values;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (done[k] != 0) continue;
    // Replicas have the same values, whole or their shards: each is made once.
    std::vector<const StoredBucket*> holders;
    std::int64_t first = all[k].first, last = all[k].last;
    for (std::size_t i = k; i < all.size(); ++i) {
      if (all[i].bucket != all[k].bucket || part_of(all[i]) != part_of(all[k])) continue;
      done[i] = 1;
      holders.push_back(&all[i]);
      first = std::min(first, all[i].first);
      last = std::max(last, all[i].last);
    }
    const std::int64_t together = threads * kPartElements;
    for (std::int64_t begin = first; begin < last; begin += together) {
      const std::int64_t end = std::min(begin + together, last);
      values.resize(static_cast<std::size_t>(end - begin));
      std::vector<std::thread> others;
      for_each_part(begin, end, [&](std::int64_t from, std::int64_t to) {
        const auto work = [&, from, to] {
          fill(local_, all[k].bucket, part_of(all[k]), from, to, value_of,
               values.data() + (from - begin));
        };
        if (to == end) return work();
        others.emplace_back(work);
      });
      for (std::thread& other : others) other.join();
      for (const StoredBucket* holder : holders) {
        const std::int64_t from = std::max(begin, holder->first), to = std::min(end, holder->last);
        if (from >= to) continue;
        write_parameters(local_.device, *holder, from,
                         std::span(values).subspan(static_cast<std::size_t>(from - begin),
                                                   static_cast<std::size_t>(to - from)));
      }
    }
    for (const StoredBucket* holder : holders) {
      clear_state(local_.device, *holder);
      rest(*holder);
    }
  }
  std::vector<float> correction = local_.correction;
  const std::int64_t experts = local_.model.experts.count;
  for (const CorrectionTensor& tensor : correction_tensors(local_.model)) {
    for (std::int64_t e = 0; e < experts; ++e) {
      correction[static_cast<std::size_t>(tensor.layer * experts + e)] =
          static_cast<float>(value_of(tensor.name, e));
    }
  }
  set_correction(std::move(correction));
}

void Interpreter::rest(const StoredBucket& stored) {
  OffloadFile& drives = local_.ranks[static_cast<std::size_t>(stored.rank - local_.first)]->drives;
  drives.release(stored.parameter, (stored.last - stored.first) * bytes_of(stored.type));
  const std::int64_t own = 4 * (stored.own_last - stored.own_first);
  for (const float* state : {stored.master, stored.moments[0], stored.moments[1]}) {
    drives.release(reinterpret_cast<const std::byte*>(state), own);
  }
}

Result<> Interpreter::experts_held(std::int64_t step, bool gave_numbers) const {
  if (local_.model.experts.count == 0) return {};
  const auto layers = static_cast<std::size_t>(local_.model.layers);
  const std::size_t each = (kExpertLimits + 1) * layers;
  std::vector<double> counted(each * local_.ranks.size());
  std::vector<RankCounts> counts;
  for (const auto& rank : local_.ranks) {
    double* most = counted.data() + each * counts.size();
    local_.device.read(most, reinterpret_cast<const std::byte*>(rank->expert_counts.most),
                       static_cast<std::int64_t>(8 * each));
    counts.push_back({.rank = rank->rank.value,
                      .counts = {.most = most, .lost = most + kExpertLimits * layers}});
  }
  const std::string room = too_many_rows(counts, local_.model.layers, runner_->expert_limits());
  // A router that gave no numbers is the cause, whoever had too little room.
  const std::string lost = lost_scores(counts, local_.model.layers);
  if (!lost.empty() && (!gave_numbers || !room.empty())) return diverged(step, lost);
  if (!room.empty()) return Error{room};
  return {};
}

Result<StepResult> Interpreter::run(const StepOptions& options) {
  const Result<> done = scheduler_->run(options);
  if (!done) {
    // The CPU stops where the first rank lacks room; of a device that failed nothing can be read.
    if (!local_.device.asynchronous()) {
      if (const Result<> held = experts_held(options.step, true); !held) return held.error();
    }
    return done.error();
  }
  for (const auto& rank : local_.ranks) {
    if (const Result<> kept = rank->drives.failure(); !kept) return kept.error();
  }
  StepResult result;
  const std::span all(local_.ranks[0]->norms);
  const auto slots = static_cast<std::size_t>(local_.slots);
  const std::span<double> norms = all.first(slots);
  const std::span rows = all.subspan(slots);
  const std::size_t experts = rows.size() / (local_.plan.expert_drop > 0 ? 2 : 1);
  const std::span computed = rows.first(experts), dropped = rows.subspan(experts);
  result.expert_rows.assign(computed.begin(), computed.end());
  result.expert_dropped.assign(dropped.begin(), dropped.end());
  double squares = 0;
  for (std::size_t k = 0; k + 1 < norms.size(); ++k) squares += norms[k];
  const double unscale = options.loss_scale > 0 ? 1 / options.loss_scale : 1;
  result.grad_norm = std::sqrt(squares) * unscale;
  result.loss = norms.back() * unscale;
  result.wall_ns = scheduler_->wall_ns;
  const bool norm = std::isfinite(result.grad_norm);
  result.skipped = options.loss_scale > 0 && !norm && std::isfinite(result.loss);
  if (result.skipped) result.grad_norm = std::numeric_limits<double>::infinity();
  const bool numbers = result.skipped || (norm && std::isfinite(result.loss));
  if (const Result<> held = experts_held(options.step, numbers); !held) return held.error();
  if (!numbers) {
    const std::string which = std::isfinite(result.loss) ? "gradient norm" : "loss";
    return diverged(options.step, "the " + which + " is not a number");
  }
  if (!result.skipped) balance(options.train, result);
  return result;
}

std::vector<float> Interpreter::parameter(const std::string& name) const {
  std::vector<float> whole;
  for (const StoredBucket& stored : stored()) {
    // Beside a parameter server the others have a rounded copy alone.
    if (stored.master == nullptr && stored.type != ElementType::Float32) continue;
    const RankState& rank = *local_.ranks[static_cast<std::size_t>(stored.rank - local_.first)];
    const std::int32_t part = local_.part(rank, local_.schedule.buckets[stored.bucket.index()]);
    std::vector<float> values;
    for (const TensorPlace& place : local_.places) {
      if (place.bucket != stored.bucket || place.name != name) continue;
      if (values.empty()) {
        values = read_parameters(local_.device, stored, stored.own_first, stored.own_last);
      }
      whole.resize(static_cast<std::size_t>(place.part.elements()));
      for (std::int64_t i = 0; i < place.what.elements; ++i) {
        const std::int64_t element = place.offset + i;
        if (element < stored.own_first || element >= stored.own_last) continue;
        const std::int64_t to = whole_element(local_.layout, place, part, i);
        if (to >= 0) {
          whole[static_cast<std::size_t>(to)] =
              values[static_cast<std::size_t>(element - stored.own_first)];
        }
      }
    }
  }
  return whole;
}

}  // namespace rehearse::exec
