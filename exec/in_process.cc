#include "exec/in_process.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "exec/collectives.h"
#include "exec/optimizer.h"
#include "exec/rank_state.h"
#include "schedules/listing.h"

namespace rehearse::exec {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the ranks of one instance of a group bring to the collective that they are in.
struct Meeting {
  std::vector<std::int32_t> ranks;        // members by coordinate
  std::vector<Contribution> brought;      // by member
  std::vector<std::int32_t> queues;       // who waits, by member
  std::size_t arrived = 0;
};

enum class Head : std::uint8_t { Idle, Running, Waiting, Resumable };

struct Queue {  // one stream of one rank
  std::int32_t rank = 0;
  std::vector<std::int32_t> ops;  // of the schedule, in order
  std::size_t next = 0;
  Head head = Head::Idle;
  std::size_t half = 0;           // of an OVERLAP pair
  std::optional<OpCursor> cursor;
};

}  // namespace

// Runs one step over all queues with any number of workers.
struct InProcess::Scheduler {
  InProcess& p;
  int workers;
  std::vector<Queue> queues;                               // rank * kNumStreams + stream
  std::vector<std::vector<std::uint8_t>> ended;            // per rank, per op of its row
  std::vector<std::vector<std::int32_t>> meeting_of;       // [group][rank]: index, -1 none
  std::vector<std::vector<std::int32_t>> member_of;        // [group][rank]: place in the meeting
  std::vector<Meeting> meetings;
  std::vector<std::int32_t> transfers;                     // [match * columns + column]: queue, -1
  std::int32_t columns = 1;                                // ranks of a position
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t open = 0;                                    // ops not ended
  int running = 0;
  std::string failure;
  StepOptions options;
  std::int64_t began = 0;

  explicit Scheduler(InProcess& process, int count) : p(process), workers(count) { build(); }

  void build();
  void add_group(const Group& group);
  Result<> run();
  void work();
  Queue* pick();
  bool ready(const Queue& queue) const;
  // Performs the head of a queue as far as it goes. Called without the lock.
  void perform(Queue& queue, std::unique_lock<std::mutex>& lock);
  void meet(Queue& queue, std::size_t meeting, std::size_t member, Contribution brought,
            const std::function<void(std::span<const Contribution>)>& performed,
            std::unique_lock<std::mutex>& lock);
  void finish(Queue& queue);
  void local(const Op& op, std::int32_t id, RankState& rank);
  void collective(Queue& queue, const Op& op, std::int32_t id, std::unique_lock<std::mutex>& lock);
  void transfer(Queue& queue, const Op& op, std::int32_t id, std::unique_lock<std::mutex>& lock);

  RankState& state(const Queue& queue) { return *p.ranks_[static_cast<std::size_t>(queue.rank)]; }
  std::int32_t first_op(const RankState& rank) const { return p.s_.row_begin[rank.row.index()]; }
  bool reports(const RankState& rank) const {  // the first rank of its row gives the row its times
    return rank.at.tensor == 0 && rank.replica == p.s_.rows[rank.row.index()].data_begin;
  }
};

void InProcess::Scheduler::add_group(const Group& group) {
  std::vector<std::int32_t> meeting(p.ranks_.size(), -1), member(p.ranks_.size(), -1);
  std::map<std::array<std::int32_t, 3>, std::int32_t> known;
  const Placement& placement = p.s_.placement;
  for (const auto& rank : p.ranks_) {
    const Coordinates& at = rank->at;
    std::array<std::int32_t, 3> instance{};
    if (group.name == "tp") {
      instance = {rank->replica, at.pipeline, 0};
    } else if (group.name == "cp") {
      instance = {at.tensor, at.data, at.pipeline};
    } else if (group.name == "dp") {
      instance = {at.tensor, at.pipeline, 0};
    } else if (group.name == "embed") {
      const bool end = Position{at.pipeline} == placement.down.front() ||
                       Position{at.pipeline} == placement.down.back();
      if (!end) continue;
      instance = {at.tensor, rank->replica, 0};
    } else if (group.name == "mirror") {
      instance = {at.tensor, rank->replica,
                  std::min(at.pipeline, placement.positions - 1 - at.pipeline)};
    } else if (group.name != "world") {
      continue;  // pp: transfers
    }
    const auto [found, fresh] = known.try_emplace(instance, static_cast<std::int32_t>(meetings.size()));
    if (fresh) meetings.emplace_back();
    Meeting& of = meetings[static_cast<std::size_t>(found->second)];
    const auto r = static_cast<std::size_t>(rank->rank.value);
    meeting[r] = found->second;
    member[r] = static_cast<std::int32_t>(of.ranks.size());
    of.ranks.push_back(rank->rank.value);
  }
  meeting_of.push_back(std::move(meeting));
  member_of.push_back(std::move(member));
}

void InProcess::Scheduler::build() {
  // Members in order of their coordinate: dp members by replica, so that shard k is member k's.
  for (const Group& group : p.s_.groups) add_group(group);
  for (std::size_t g = 0; g < p.s_.groups.size(); ++g) {
    if (p.s_.groups[g].name != "dp") continue;
    for (const auto& rank : p.ranks_) {
      member_of[g][static_cast<std::size_t>(rank->rank.value)] = rank->replica;
    }
  }
  for (Meeting& meeting : meetings) {
    meeting.brought.resize(meeting.ranks.size());
    meeting.queues.resize(meeting.ranks.size());
  }
  queues.resize(p.ranks_.size() * kNumStreams);
  std::int32_t matches = 0;
  for (const Op& op : p.s_.ops) matches = std::max(matches, op.match.value + 1);
  columns = static_cast<std::int32_t>(p.ranks_.size()) / p.plan_.pipeline_parallel;
  transfers.assign(static_cast<std::size_t>(matches) * static_cast<std::size_t>(columns), -1);
  for (const auto& rank : p.ranks_) {
    for (std::size_t stream = 0; stream < kNumStreams; ++stream) {
      queues[static_cast<std::size_t>(rank->rank.value) * kNumStreams + stream].rank = rank->rank.value;
    }
    for (std::int32_t i = first_op(*rank); i < p.s_.row_begin[rank->row.index() + 1]; ++i) {
      const auto stream = static_cast<std::size_t>(p.s_.ops[static_cast<std::size_t>(i)].stream);
      queues[static_cast<std::size_t>(rank->rank.value) * kNumStreams + stream].ops.push_back(i);
    }
    ended.emplace_back(static_cast<std::size_t>(p.s_.row_begin[rank->row.index() + 1] - first_op(*rank)), 0);
  }
}

bool InProcess::Scheduler::ready(const Queue& queue) const {
  if (queue.head == Head::Resumable) return true;
  if (queue.head != Head::Idle || queue.next >= queue.ops.size()) return false;
  const OpId id{queue.ops[queue.next]};
  const auto& done = ended[static_cast<std::size_t>(queue.rank)];
  const std::int32_t first = p.s_.row_begin[p.ranks_[static_cast<std::size_t>(queue.rank)]->row.index()];
  for (const OpId wait : p.s_.waits_of(id)) {
    if (done[static_cast<std::size_t>(wait.value - first)] == 0) return false;
  }
  return true;
}

Queue* InProcess::Scheduler::pick() {
  Queue* best = nullptr;
  std::int64_t best_key = 0;
  for (Queue& queue : queues) {
    if (!ready(queue)) continue;
    const std::int64_t key = p.s_.ops[static_cast<std::size_t>(queue.ops[queue.next])].key;
    if (best == nullptr || key < best_key) {
      best = &queue;
      best_key = key;
    }
  }
  return best;
}

void InProcess::Scheduler::finish(Queue& queue) {
  const std::int32_t id = queue.ops[queue.next];
  RankState& rank = state(queue);
  ended[static_cast<std::size_t>(queue.rank)][static_cast<std::size_t>(id - first_op(rank))] = 1;
  if (reports(rank)) p.end_[static_cast<std::size_t>(id)] = {now_ns() - began};
  queue.head = Head::Idle;
  queue.half = 0;
  queue.cursor.reset();
  ++queue.next;
  --open;
}

// The last to arrive performs it for all; then every member may go on.
void InProcess::Scheduler::meet(
    Queue& queue, std::size_t meeting, std::size_t member, Contribution brought,
    const std::function<void(std::span<const Contribution>)>& performed,
    std::unique_lock<std::mutex>& lock) {
  lock.lock();
  Meeting& at = meetings[meeting];
  at.brought[member] = brought;
  at.queues[member] = static_cast<std::int32_t>(&queue - queues.data());
  if (++at.arrived < at.ranks.size()) {
    queue.head = Head::Waiting;
    return;
  }
  lock.unlock();
  performed(at.brought);
  lock.lock();
  at.arrived = 0;
  for (const std::int32_t other : at.queues) queues[static_cast<std::size_t>(other)].head = Head::Resumable;
}

void InProcess::Scheduler::collective(Queue& queue, const Op& op, std::int32_t id,
                                      std::unique_lock<std::mutex>& lock) {
  const auto g = op.group.index();
  const auto r = static_cast<std::size_t>(queue.rank);
  RankState& rank = state(queue);
  const auto operands = p.s_.operands_of({id});
  const Value& first = p.s_.values[operands[0].value.index()];
  const auto meeting = static_cast<std::size_t>(meeting_of[g][r]);
  const auto member = static_cast<std::size_t>(member_of[g][r]);
  const std::string_view group = p.s_.groups[g].name;
  if (first.kind == ValueKind::Metrics) {  // the vector of norms, fp64
    auto* norms = reinterpret_cast<float*>(rank.arena.get() + first.offset.value);
    const std::int64_t slots = first.bytes.value / 8;
    meet(queue, meeting, member, {norms, norms},
         [slots](std::span<const Contribution> members) {
           std::vector<double*> all;
           for (const Contribution& m : members) all.push_back(reinterpret_cast<double*>(m.in));
           all_reduce(all, slots);
         },
         lock);
    return;
  }
  const Bucket& bucket = p.s_.buckets[op.bucket.index()];
  float* in = rank.floats(p.s_, operands[0].value);
  float* out = operands.size() > 1 && operands[1].access == Access::Write
                   ? rank.floats(p.s_, operands[1].value)
                   : in;
  const std::int64_t shards = p.plan_.data_parallel * p.plan_.context_parallel;
  std::int64_t elements = bucket.padded;
  std::function<void(std::span<const Contribution>)> performed;
  switch (op.kind) {
    case OpKind::AllReduce: {
      if (group == "tp") elements = bucket.partial;
      // After a reduce-scatter over dp only the own shard is whole.
      if (group != "tp" && group != "dp" && p.plan_.zero_stage >= 1 && shards > 1) {
        elements = bucket.padded / shards;
        const bool shard = first.shard;
        if (!shard) in = out = in + rank.replica * elements;
      }
      performed = [elements](std::span<const Contribution> m) { all_reduce(m, elements, false); };
      break;
    }
    case OpKind::ReduceScatter:
      performed = [elements](std::span<const Contribution> m) { reduce_scatter(m, elements); };
      break;
    case OpKind::AllGather:
    case OpKind::Unshard:
      performed = [elements](std::span<const Contribution> m) { all_gather(m, elements); };
      break;
    case OpKind::Broadcast:
      performed = [elements](std::span<const Contribution> m) { broadcast(m, elements, 0); };
      break;
    case OpKind::Reduce:
      performed = [elements](std::span<const Contribution> m) { reduce(m, elements, 0); };
      break;
    default: break;
  }
  meet(queue, meeting, member, {in, out}, performed, lock);
}

// Both ends are heads: the second to come copies.
void InProcess::Scheduler::transfer(Queue& queue, const Op& op, std::int32_t id,
                                    std::unique_lock<std::mutex>& lock) {
  RankState& rank = state(queue);
  const std::int32_t column = rank.replica * p.plan_.tensor_parallel + rank.at.tensor;
  lock.lock();
  std::int32_t& other = transfers[op.match.index() * static_cast<std::size_t>(columns) +
                                  static_cast<std::size_t>(column)];
  if (other < 0) {
    other = static_cast<std::int32_t>(&queue - queues.data());
    queue.head = Head::Waiting;
    return;
  }
  Queue& partner = queues[static_cast<std::size_t>(other)];
  other = -1;
  const OpId their{partner.ops[partner.next]};
  const Value& mine = p.s_.values[p.s_.operands_of({id})[0].value.index()];
  const Value& theirs = p.s_.values[p.s_.operands_of(their)[0].value.index()];
  std::byte* here = rank.arena.get() + mine.offset.value;
  std::byte* there = state(partner).arena.get() + theirs.offset.value;
  const bool send = op.kind == OpKind::Send;
  lock.unlock();
  std::memcpy(send ? there : here, send ? here : there, static_cast<std::size_t>(mine.bytes.value));
  lock.lock();
  partner.head = queue.head = Head::Resumable;
}

void InProcess::Scheduler::local(const Op& op, std::int32_t id, RankState& rank) {
  const auto operands = p.s_.operands_of({id});
  const auto data = [&](std::size_t k) { return rank.floats(p.s_, operands[k].value); };
  const std::int64_t shards = p.plan_.data_parallel * p.plan_.context_parallel;
  const bool sharded = p.plan_.zero_stage >= 1 && shards > 1;
  // Elements [first, last) of a bucket that this rank updates, and where they are in a gradient.
  const auto own = [&](const Bucket& bucket) {
    const std::int64_t part = bucket.padded / (sharded ? shards : 1);
    const std::int64_t first = sharded ? rank.replica * part : 0;
    return std::pair{first, std::min(first + part, bucket.padded)};
  };
  switch (op.kind) {
    case OpKind::Fetch: {
      const auto& tokens = (op.instance == 1 ? p.targets_ : p.inputs_)[static_cast<std::size_t>(rank.replica)];
      std::memcpy(data(1), tokens.data(), tokens.size() * sizeof(std::int32_t));
      break;
    }
    case OpKind::Offload:
      std::memcpy(rank.norms.data(), data(0), rank.norms.size() * sizeof(double));
      break;
    case OpKind::Add: {
      const std::int64_t count = p.s_.values[operands[0].value.index()].bytes.value / 4;
      const bool whole = !p.s_.values[operands[0].value.index()].shard && sharded;
      const auto [first, last] = own(p.s_.buckets[op.bucket.index()]);
      const std::int64_t begin = whole ? first : 0, end = whole ? last : count;
      float* to = data(1);
      const float* from = data(0);
      for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
      break;
    }
    case OpKind::GradNorm: {
      std::size_t last_operand = operands.size() - 1;
      auto* norms = reinterpret_cast<double*>(data(last_operand));
      const std::size_t slots = rank.norms.size();
      std::fill_n(norms, slots, 0.0);
      for (std::size_t k = 0; k < last_operand; ++k) {
        const Value& value = p.s_.values[operands[k].value.index()];
        if (value.kind == ValueKind::Metrics) {
          if (rank.at.tensor == 0) norms[slots - 1] = static_cast<double>(*data(k));
          continue;
        }
        if (!sharded && rank.replica != 0) continue;
        const auto [first, last] = own(p.s_.buckets[value.bucket.index()]);
        const float* gradient = data(k) - (value.shard ? first : 0);
        for (const TensorPlace& place : p.places_) {
          if (place.bucket != value.bucket) continue;
          if (place.what.replicated && rank.at.tensor != 0) continue;
          const Stage owner = place.what.table && p.model_.tied_embedding ? Stage{0} : place.stage;
          if (p.s_.placement.down[owner.index()] != p.s_.position_of(rank.row)) continue;
          const std::int64_t begin = std::max(first, place.offset);
          const std::int64_t end = std::min(last, place.offset + place.what.elements);
          if (begin >= end) continue;
          norms[place.slot] += sum_of_squares(
              {gradient + begin, static_cast<std::size_t>(end - begin)});
        }
      }
      break;
    }
    case OpKind::OptimizerStep: {
      const Bucket& bucket = p.s_.buckets[op.bucket.index()];
      const Value& gradient = p.s_.values[operands[0].value.index()];
      const Value& parameter = p.s_.values[operands[3].value.index()];
      const auto [first, last] = own(bucket);
      const auto count = static_cast<std::size_t>(last - first);
      const auto* norms = reinterpret_cast<const double*>(data(1));
      double squares = 0;
      for (std::size_t k = 0; k + 1 < rank.norms.size(); ++k) squares += norms[k];
      const float scale = clip_factor(std::sqrt(squares), options.train.clip_norm);
      const float* g = data(0) + (gradient.shard ? 0 : first);
      float* w = data(3) + (parameter.kind == ValueKind::ParameterShard ? 0 : first);
      float *m = data(2), *v = data(2) + count;
      const auto update = [&](std::int64_t begin, std::int64_t end, double decay) {
        const auto at = static_cast<std::size_t>(begin - first);
        const auto n = static_cast<std::size_t>(end - begin);
        adamw({w + at, n}, {g + at, n}, {m + at, n}, {v + at, n}, options.train,
              options.learning_rate, decay, options.step, scale);
      };
      for (const TensorPlace& place : p.places_) {
        if (place.bucket != op.bucket) continue;
        const std::int64_t begin = std::max(first, place.offset);
        const std::int64_t end = std::min(last, place.offset + place.what.elements);
        const bool decays = place.what.matrix || !options.train.weight_decay_matrices_only;
        if (begin < end) update(begin, end, decays ? options.train.weight_decay : 0.0);
      }
      break;
    }
    default: break;
  }
}

// Called with the lock held; returns with it held.
void InProcess::Scheduler::perform(Queue& queue, std::unique_lock<std::mutex>& lock) {
  const std::int32_t id = queue.ops[queue.next];
  const Op& op = p.s_.ops[static_cast<std::size_t>(id)];
  RankState& rank = state(queue);
  const bool resumed = queue.head == Head::Resumable;
  queue.head = Head::Running;
  if (!resumed && reports(rank)) p.start_[static_cast<std::size_t>(id)] = {now_ns() - began};
  switch (traits(op.kind).op_class) {
    case OpClass::Transfer:
      if (resumed) return finish(queue);
      lock.unlock();
      return transfer(queue, op, id, lock);
    case OpClass::Collective:
      if (resumed) return finish(queue);
      lock.unlock();
      return collective(queue, op, id, lock);
    case OpClass::Copy:
    case OpClass::Local:
    case OpClass::Text:
      lock.unlock();
      local(op, id, rank);
      lock.lock();
      return finish(queue);
    case OpClass::Compute: break;
  }
  auto& halves = rank.compute[static_cast<std::size_t>(id - first_op(rank))];
  lock.unlock();
  const float scale = 1.0F / static_cast<float>(p.plan_.global_batch * p.plan_.sequence_length);
  while (queue.half < halves.size()) {
    ComputeOp& work = halves[queue.half];
    if (!queue.cursor) {
      for (const auto& [memory, bytes] : work.clear) std::memset(memory, 0, bytes);
      queue.cursor.emplace(*p.runner_, work.kind, work.segments, work.at, rank.at.tensor, scale);
    }
    CollectiveRequest request;
    if (queue.cursor->run(&request) == Progress::Collective) {
      const auto r = static_cast<std::size_t>(queue.rank);
      for (std::size_t g = 0; g < p.s_.groups.size(); ++g) {
        if (p.s_.groups[g].name != "tp") continue;
        meet(queue, static_cast<std::size_t>(meeting_of[g][r]), static_cast<std::size_t>(member_of[g][r]),
             {request.in, request.out},
             [request](std::span<const Contribution> members) {
               if (request.kind == NodeKind::AllReduce) {
                 all_reduce(members, request.elements, request.maximum);
               } else if (request.kind == NodeKind::AllGather) {
                 all_gather(members, request.elements);
               } else {
                 reduce_scatter(members, request.elements);
               }
             },
             lock);
        return;
      }
    }
    queue.cursor.reset();
    ++queue.half;
  }
  lock.lock();
  finish(queue);
}

void InProcess::Scheduler::work() {
  std::unique_lock lock(mutex);
  while (open > 0 && failure.empty()) {
    Queue* queue = pick();
    if (queue == nullptr) {
      if (running == 0) {
        for (const Queue& stuck : queues) {
          if (stuck.next >= stuck.ops.size()) continue;
          failure = "rank " + std::to_string(stuck.rank) + " waits in " +
                    op_label(p.s_, {stuck.ops[stuck.next]}) + " and nothing else can run";
          break;
        }
        changed.notify_all();
        return;
      }
      changed.wait(lock);
      continue;
    }
    ++running;
    perform(*queue, lock);
    --running;
    changed.notify_all();
  }
  changed.notify_all();
}

Result<> InProcess::Scheduler::run() {
  open = 0;
  failure.clear();
  for (Queue& queue : queues) {
    queue.next = 0;
    queue.head = Head::Idle;
    open += queue.ops.size();
  }
  for (auto& row : ended) std::fill(row.begin(), row.end(), std::uint8_t{0});
  began = now_ns();
  std::vector<std::thread> others;
  for (int w = 1; w < workers; ++w) others.emplace_back([this] { work(); });
  work();
  for (std::thread& thread : others) thread.join();
  if (!failure.empty()) return Error{failure};
  return {};
}

InProcess::InProcess(const Transformer& model, const Plan& plan, const Schedule& schedule)
    : model_(model), plan_(plan), s_(schedule), mesh_(plan),
      places_(place_tensors(model, plan, schedule)) {}
InProcess::~InProcess() = default;

Result<std::unique_ptr<InProcess>> InProcess::create(const Transformer& model, const Plan& plan,
                                                     const Schedule& schedule, int workers) {
  if (plan.precision.compute != ComputeType::Fp32) return Error{"plan.precision: the CPU runs fp32"};
  if (plan.context_parallel > 1) return Error{"plan.context_parallel: not executed yet"};
  if (plan.sequence_slices > 1) return Error{"plan.sequence_slices: not executed yet"};
  if (plan.offload != OffloadMode::None) return Error{"plan.offload: not executed yet"};
  if (model.experts.count > 0 || model.latent.kv_lora_rank > 0) {
    return Error{"model: experts and latent attention are not executed yet"};
  }
  if (model.kv_heads % plan.tensor_parallel != 0) {
    return Error{"plan.tensor_parallel: replicated key/value heads are not executed yet"};
  }
  std::unique_ptr<InProcess> made(new InProcess(model, plan, schedule));
  made->runner_ = std::make_unique<BodyRunner>(model, plan);
  std::size_t slots = 1;
  for (const auto& stage : schedule.segments) {
    for (const SegmentInfo& segment : stage) {
      slots += segment_parameters(model, plan, segment.kind, segment.layer).size();
    }
  }
  const std::int32_t replicas = plan.data_parallel * plan.context_parallel;
  for (std::int32_t r = 0; r < made->mesh_.ranks(); ++r) {
    auto rank = std::make_unique<RankState>();
    rank->rank = {r};
    rank->at = made->mesh_.coordinates({r});
    rank->replica = rank->at.data * plan.context_parallel + rank->at.context;
    for (std::size_t row = 0; row < schedule.rows.size(); ++row) {
      const RowInfo& info = schedule.rows[row];
      if (info.position.value == rank->at.pipeline && rank->replica >= info.data_begin &&
          rank->replica < info.data_end) {
        rank->row = {static_cast<std::int32_t>(row)};
      }
    }
    const auto bytes = static_cast<std::size_t>(aligned(std::max<std::int64_t>(
        schedule.arena_bytes[rank->row.index()].value, 1)));
    rank->arena.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
    if (rank->arena == nullptr) {
      return Error{"no memory for the arena of rank " + std::to_string(r) + ": " +
                   std::to_string(bytes) + " bytes"};
    }
    std::memset(rank->arena.get(), 0, bytes);
    rank->norms.assign(slots, 0);
    resolve_addresses(model, plan, schedule, made->places_, *rank);
    made->ranks_.push_back(std::move(rank));
  }
  const std::size_t tokens = static_cast<std::size_t>(plan.microbatches()) *
                             static_cast<std::size_t>(rank_shape(model, plan).tokens);
  made->inputs_.assign(static_cast<std::size_t>(replicas), std::vector<std::int32_t>(tokens));
  made->targets_ = made->inputs_;
  made->start_.resize(schedule.ops.size());
  made->end_.resize(schedule.ops.size());
  const Result<> checked = made->check_arenas();
  if (!checked) return checked.error();
  made->scheduler_ = std::make_unique<Scheduler>(*made, std::max(workers, 1));
  return made;
}

// Counts what is alive from op to op over the addresses that ops use, and that none overlap.
Result<> InProcess::check_arenas() {
  for (std::int32_t r = 0; r < s_.num_rows(); ++r) {
    std::map<std::int64_t, std::int64_t> alive;  // begin -> end
    std::int64_t sum = 0, peak = 0;
    const auto add = [&](const Value& value) {
      const std::int64_t begin = value.offset.value, end = begin + aligned(value.bytes.value);
      const auto after = alive.lower_bound(begin);
      const bool clash = (after != alive.end() && after->first < end) ||
                         (after != alive.begin() && std::prev(after)->second > begin);
      alive[begin] = end;
      peak = std::max(peak, sum += end - begin);
      return !clash && end <= s_.arena_bytes[static_cast<std::size_t>(r)].value;
    };
    std::vector<std::vector<std::int32_t>> begins, ends;
    const std::int32_t first = s_.row_begin[static_cast<std::size_t>(r)];
    const std::int32_t last = s_.row_begin[static_cast<std::size_t>(r) + 1];
    begins.resize(static_cast<std::size_t>(last - first));
    ends.resize(begins.size());
    for (std::size_t v = 0; v < s_.values.size(); ++v) {
      const Value& value = s_.values[v];
      if (value.row.value != r || value.home == Home::Host || value.bytes.value == 0) continue;
      if (!value.define) {
        if (!add(value)) return Error{value_name(s_, {static_cast<std::int32_t>(v)}) + " overlaps"};
      } else {
        begins[static_cast<std::size_t>(value.define.value - first)].push_back(static_cast<std::int32_t>(v));
      }
      if (value.hold_until) {
        ends[static_cast<std::size_t>(value.hold_until.value - first)].push_back(static_cast<std::int32_t>(v));
      }
    }
    for (std::size_t i = 0; i < begins.size(); ++i) {
      for (const std::int32_t v : begins[i]) {
        if (!add(s_.values[static_cast<std::size_t>(v)])) return Error{value_name(s_, {v}) + " overlaps"};
      }
      for (const std::int32_t v : ends[i]) {
        const Value& value = s_.values[static_cast<std::size_t>(v)];
        alive.erase(value.offset.value);
        sum -= aligned(value.bytes.value);
      }
    }
    peak_.push_back(peak);
  }
  return {};
}

InProcess::Stored InProcess::stored(const RankState& rank, BucketId bucket) const {
  const std::int64_t shards = plan_.data_parallel * plan_.context_parallel;
  for (std::size_t v = 0; v < s_.values.size(); ++v) {
    const Value& value = s_.values[v];
    if (value.row != rank.row || value.bucket != bucket || !value.persistent) continue;
    float* data = rank.floats(s_, {static_cast<std::int32_t>(v)});
    const std::int64_t padded = s_.buckets[bucket.index()].padded;
    if (value.kind == ValueKind::FullParameter) return {data, 0, padded};
    if (value.kind == ValueKind::ParameterShard) {
      const std::int64_t part = padded / shards;
      return {data, rank.replica * part, (rank.replica + 1) * part};
    }
  }
  return {};
}

void InProcess::initialise(
    const std::function<double(const std::string&, std::int64_t)>& value_of) {
  for (const auto& rank : ranks_) {
    for (const TensorPlace& place : places_) {
      if (s_.buckets[place.bucket.index()].position != s_.position_of(rank->row)) continue;
      const Stored at = stored(*rank, place.bucket);
      for (std::int64_t i = 0; i < place.what.elements; ++i) {
        const std::int64_t element = place.offset + i;
        if (element < at.first || element >= at.last) continue;
        const std::int64_t whole = whole_element(model_, plan_, place, rank->at.tensor, i);
        at.data[element - at.first] =
            whole < 0 ? 0.0F : static_cast<float>(value_of(place.name, whole));
      }
    }
    for (std::size_t v = 0; v < s_.values.size(); ++v) {
      const Value& value = s_.values[v];
      if (value.row != rank->row || value.kind != ValueKind::OptimizerState) continue;
      std::memset(rank->arena.get() + value.offset.value, 0, static_cast<std::size_t>(value.bytes.value));
    }
  }
}

Result<StepResult> InProcess::run(const StepOptions& options) {
  scheduler_->options = options;
  const std::int64_t begin = now_ns();
  const Result<> done = scheduler_->run();
  if (!done) return done.error();
  StepResult result;
  result.wall_ns = now_ns() - begin;
  const std::vector<double>& norms = ranks_[0]->norms;
  double squares = 0;
  for (std::size_t k = 0; k + 1 < norms.size(); ++k) squares += norms[k];
  result.grad_norm = std::sqrt(squares);
  result.loss = norms.back();
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    return Error{.message = "diverged at step " + std::to_string(options.step + 1) + ": the " +
                     (std::isfinite(result.loss) ? "gradient norm" : "loss") + " is not a number",
                 .infeasible = true};
  }
  return result;
}

std::vector<float> InProcess::parameter(const std::string& name) const {
  std::vector<float> whole;
  for (const TensorPlace& place : places_) {
    if (place.name != name) continue;
    const WholeShape shape = whole_shape(model_, plan_, place);
    whole.resize(static_cast<std::size_t>(shape.rows * shape.cols));
    for (const auto& rank : ranks_) {
      if (s_.buckets[place.bucket.index()].position != s_.position_of(rank->row)) continue;
      const Stored at = stored(*rank, place.bucket);
      // Of a sharded optimizer's parameters only the own part is sure to be new.
      const std::int64_t shards = plan_.zero_stage >= 1 ? plan_.data_parallel * plan_.context_parallel : 1;
      const std::int64_t part = s_.buckets[place.bucket.index()].padded / shards;
      const std::int64_t own = shards > 1 ? rank->replica * part : 0;
      for (std::int64_t i = 0; i < place.what.elements; ++i) {
        const std::int64_t element = place.offset + i;
        if (element < own || element >= own + part) continue;
        const std::int64_t to = whole_element(model_, plan_, place, rank->at.tensor, i);
        if (to >= 0) whole[static_cast<std::size_t>(to)] = at.data[element - at.first];
      }
    }
  }
  return whole;
}

}  // namespace rehearse::exec
