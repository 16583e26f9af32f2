// SPDX-License-Identifier: Apache-2.0
#include "exec/step/scheduler.h"

#include <algorithm>
#include <chrono>

#include "exec/body/gathered_loss.h"
#include "exec/step/exchanges/quantized_gather.h"
#include "schedules/ir/listing.h"
#include "schedules/ir/payload.h"
#include "schedules/ranks/group_key.h"

namespace rehearse::exec {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Scheduler::Scheduler(LocalRanks& local, const BodyRunner& runner, Communicator* communicator,
                     Observer* observer, int workers)
    : local_(local),
      s_(local.schedule),
      runner_(runner),
      communicator_(communicator),
      observer_(observer),
      workers_(local.device.asynchronous() ? 1 : std::max(workers, 1)),
      groups_(local.schedule, local.mesh) {
  for (const auto& members : groups_.ranks) {
    Rendezvous instance;
    instance.brought.resize(members.size());
    instance.lanes.resize(members.size());
    for (const std::int32_t rank : members) instance.here += local_.holds(rank) ? 1U : 0U;
    instance.everybody = instance.here == members.size();
    instance.queues.reserve(instance.here);
    rendezvous_.push_back(std::move(instance));
  }
  std::int32_t matches = 0;
  for (const Op& op : s_.ops) matches = std::max(matches, op.match.value + 1);
  columns_ = local_.mesh.ranks() / local_.plan.pipeline_parallel;
  transfers_.assign(static_cast<std::size_t>(matches) * static_cast<std::size_t>(columns_), -1);

  std::size_t times = 0;
  for (std::size_t k = 0; k < local_.ranks.size(); ++k) {
    const RankState& rank = *local_.ranks[k];
    for (std::size_t stream = 0; stream < kNumStreams; ++stream) {
      const Lane lane{rank.rank.value, static_cast<Stream>(stream)};
      const auto cursor = [&] {
        return OpCursor(runner, local_.device, local_.kernels, lane, rank.at);
      };
      queues_.emplace_back(static_cast<std::int32_t>(k), lane,
                           OpTurns(cursor(), cursor(), local_.plan.overlap_pair));
    }
    const std::int32_t first = s_.row_begin[rank.row.index()],
                       last = s_.row_begin[rank.row.index() + 1];
    for (std::int32_t i = first; i < last; ++i) {
      const auto stream = static_cast<std::size_t>(s_.ops[static_cast<std::size_t>(i)].stream);
      queues_[k * kNumStreams + stream].ops.push_back(i);
    }
    ended_.emplace_back(static_cast<std::size_t>(last - first), std::uint8_t{0});
    if (communicator != nullptr && local.device.asynchronous()) tracks_.emplace_back(s_, rank.row);
    first_time_.push_back(times);
    times += static_cast<std::size_t>(last - first);
  }
  start.resize(times);
  end.resize(times);
  for (int w = 1; w < workers_; ++w) threads_.emplace_back([this] { workers_loop(); });
}

Scheduler::~Scheduler() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Scheduler::fail(const std::string& message) {
  {
    const std::scoped_lock lock(mutex_);
    if (failure_.empty()) failure_ = message;
  }
  changed_.notify_all();
}

float Scheduler::loss_scale(const Plan& plan) const {
  const float mean = 1.0F / static_cast<float>(plan.global_batch * plan.sequence_length);
  return options_.loss_scale > 0 ? mean * static_cast<float>(options_.loss_scale) : mean;
}

bool Scheduler::ready(const Queue& queue) const {
  if (queue.head == Head::Resumable) return true;
  if (queue.head != Head::Idle || queue.next >= queue.ops.size()) return false;
  const auto& done = ended_[static_cast<std::size_t>(queue.rank)];
  const std::int32_t first = first_op(queue);
  return std::ranges::all_of(s_.waits_of(head(queue)), [&](OpId wait) {
    return done[static_cast<std::size_t>(wait.value - first)] != 0;
  });
}

// Takes the ready queue whose head has the smallest key. Where a worker is busy for as long as an
// op takes, what others may wait for goes first: a transfer behind the next forward would come a
// forward late. To a device ops are issued in the schedule's order.
Scheduler::Queue* Scheduler::pick() {
  Queue* best = nullptr;
  std::pair<bool, std::int64_t> best_key;
  for (Queue& queue : queues_) {
    if (!ready(queue)) continue;
    const Op& op = s_.ops[head(queue).index()];
    const OpClass kind = traits(op.kind).op_class;
    const bool alone = kind != OpClass::Transfer && kind != OpClass::Collective;
    const std::pair key{alone && !local_.device.asynchronous(), op.key};
    if (best == nullptr || key < best_key) {
      best = &queue;
      best_key = key;
    }
  }
  return best;
}

void Scheduler::waits_for(const Queue& queue, std::int32_t peer) {
  if (observer_ != nullptr) observer_->op_waits(queue.lane.rank, queue.lane.stream, peer);
}

void Scheduler::begin_on_device(const Queue& queue) {
  const OpId id = head(queue);
  if (tracks_.empty()) return local_.device.begin(queue.lane, id, s_.waits_of(id));
  if (const OpId behind = tracks(queue).behind(id)) {
    local_.device.begin_behind(lane(queue), behind);
  }
  local_.device.begin(lane(queue), id, tracks(queue).waits(id));
}

void Scheduler::finish(Queue& queue) {
  const OpId id = head(queue);
  local_.device.end(lane(queue), id);
  const auto rank = static_cast<std::size_t>(queue.rank);
  ended_[rank][static_cast<std::size_t>(id.value - first_op(queue))] = 1;
  end[time_of(queue, id)] = {now_ns() - began_ns};
  if (observer_ != nullptr) observer_->op_ended(queue.lane.rank, queue.lane.stream);
  queue.head = Head::Idle;
  queue.layer = -1;
  ++queue.next;
  --open_;
}

// Called from a thread of the communicator, or from the caller's own before it returns. Wakes with
// the lock held: with the last exchange ended, run() returns and the scheduler may be gone.
Communicator::Done Scheduler::resume(std::vector<std::int32_t> queues) {
  return [this, queues = std::move(queues)](const Result<>& result) {
    const std::scoped_lock lock(mutex_);
    --posted_;
    if (!result && failure_.empty()) failure_ = result.error().message;
    for (const std::int32_t k : queues) came_back(k);
    changed_.notify_all();
  };
}

// What the queue's op asked for has ended; whoever waits for it may go on.
void Scheduler::came_back(std::int32_t queue) {
  Queue& back = queues_[static_cast<std::size_t>(queue)];
  back.meets = false;
  if (back.head == Head::Waiting) back.head = Head::Resumable;
}

// Called without the lock, left with it. The last to arrive performs it for all. It may be under
// way still: queue.meets.
void Scheduler::rendezvous(Queue& queue, Lane lane, std::int32_t group, Contribution brought,
                           Exchange exchange, std::unique_lock<std::mutex>& lock) {
  const auto rank = static_cast<std::size_t>(queue.lane.rank);
  const GroupInstances::Place place = groups_.of[static_cast<std::size_t>(group)][rank];
  lock.lock();
  Rendezvous& at = rendezvous_[static_cast<std::size_t>(place.instance)];
  at.brought[static_cast<std::size_t>(place.member)] = brought;
  at.lanes[static_cast<std::size_t>(place.member)] = lane;
  at.queues.push_back(static_cast<std::int32_t>(&queue - queues_.data()));
  queue.meets = true;
  if (at.queues.size() < at.here) return;
  exchange.instance = place.instance;
  exchange.sequence = at.sequence++;
  exchange.ranks = groups_.ranks[static_cast<std::size_t>(place.instance)];
  exchange.contributions = at.brought;
  exchange.lanes = at.lanes;
  exchanged.add(s_.groups[static_cast<std::size_t>(group)].kind, exchange);
  std::vector<std::int32_t> waiting = at.queues;
  at.queues.clear();
  if (!at.everybody) ++posted_;
  lock.unlock();
  if (!at.everybody) {
    communicator_->collective(exchange, resume(std::move(waiting)));
    lock.lock();
    return;
  }
  local_.device.exchange(exchange);
  lock.lock();
  for (const std::int32_t k : waiting) came_back(k);
  changed_.notify_all();
}

// An exchange of arrays as they lie: of a file's own group (numbers in fp32), or of a batch through
// one rank.
// What a root sends to all is its own already, and what it scatters, its own part first.
void Scheduler::array_exchange(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock) {
  const Op& op = s_.ops[id.index()];
  Contribution brought;
  for (const Operand& operand : s_.operands_of(id)) {
    void*& brings = operand.access == Access::Read ? brought.in : brought.out;
    brings = address_of(queue, op, operand);
  }
  const bool sends = op.kind == OpKind::Broadcast || op.kind == OpKind::Scatter;
  if (sends && brought.out == nullptr) brought.out = brought.in;
  const Carried carried = payload_of(s_, id);
  rendezvous(queue, queue.lane, op.group.value, brought,
             {.kind = op.kind,
              .type = carried.element_bytes == 2 ? ElementType::BFloat16 : ElementType::Float32,
              .elements = carried.elements,
              .root = std::max(op.peer.value, 0)},
             lock);
  put_back(queue);
}

// Tokens and targets lie there for the whole step, or for the op's micro-batch.
std::byte* Scheduler::address_of(const Queue& queue, const Op& op, const Operand& operand) const {
  const Value& value = s_.values[operand.value.index()];
  std::byte* const at = local_.address(state(queue), operand.value);
  const bool whole = value.kind == ValueKind::Input && !value.microbatch;
  return whole ? at + op.microbatch.value * (value.bytes.value / local_.plan.microbatches()) : at;
}

// The root's, of what it has gathered.
void Scheduler::loss(const Queue& queue, OpId id) {
  const Op& op = s_.ops[id.index()];
  GatheredLoss found;
  for (const Operand& operand : s_.operands_of(id)) {
    std::byte* const at = address_of(queue, op, operand);
    switch (s_.values[operand.value.index()].kind) {
      case ValueKind::ActivationGradient:
        found.logits = at;
        break;
      case ValueKind::Input:
        found.targets = reinterpret_cast<const std::int32_t*>(at);
        break;
      case ValueKind::Workspace:
        found.workspace = at;
        break;
      default:
        found.loss = reinterpret_cast<float*>(at);
        if (operand.access == Access::Write) local_.device.clear(queue.lane, at, sizeof(float));
        break;
    }
  }
  exec::perform(found, local_.layout, local_.kernels, queue.lane, loss_scale(local_.plan));
}

void Scheduler::collective(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock) {
  const Op& op = s_.ops[id.index()];
  if (s_.is_on(op, GroupKind::Other) || op.stage) return array_exchange(queue, id, lock);
  const RankState& rank = state(queue);
  const auto operands = s_.operands_of(id);
  const auto value = [&](std::size_t k) -> const Value& {
    return s_.values[operands[k].value.index()];
  };
  const Value& first = value(0);
  std::byte* in = local_.address(rank, operands[0].value);
  if (first.kind == ValueKind::Metrics) {  // the vector of norms, fp64
    rendezvous(queue, queue.lane, op.group.value, {in, in},
               {.kind = OpKind::AllReduce,
                .type = ElementType::Float64,
                .elements = payload_of(s_, id).elements},
               lock);
    return put_back(queue);
  }
  const Bucket& bucket = s_.buckets[op.bucket.index()];
  const bool has_out = operands.size() > 1 && operands[1].access == Access::Write;
  std::byte* out = has_out ? local_.address(rank, operands[1].value) : in;
  const GroupKind group = s_.group_of(op).kind;
  ElementType type = local_.type_of(first);
  const std::int64_t elements = payload_of(s_, id).elements;
  const std::int32_t shard = local_.shard(rank, bucket);
  if (op.kind == OpKind::AllReduce && group != bucket.replicas && group != GroupKind::Tensor &&
      local_.sharded(bucket)) {
    // After a reduce-scatter over the replicas only the own shard is whole.
    if (!first.shard) in = out = in + shard * elements * bytes_of(type);
  } else if (has_out && (op.kind == OpKind::AllGather || op.kind == OpKind::Unshard) &&
             local_.type_of(value(1)) != type) {
    // fp32 shards, gathered in the compute type: the own part is cast in place.
    type = local_.type_of(value(1));
    const std::int64_t part = bucket.padded / local_.shards(bucket);
    local_.kernels.cast(queue.lane, part, reinterpret_cast<const float*>(in),
                        out + shard * part * bytes_of(type));
    in = out;
  }
  if (const ValueId room = op.kind == OpKind::Unshard ? quantized_room(s_, id) : ValueId{}) {
    // Bytes, as numbers that nobody reads.
    pack_shard(local_, rank, id, member_of(queue, op), s_.group_of(op).size);
    in = out = local_.address(rank, room);
    rendezvous(queue, queue.lane, op.group.value, {in, out},
               {.kind = op.kind, .elements = elements / 4}, lock);
    return put_back(queue);
  }
  rendezvous(queue, queue.lane, op.group.value, {in, out},
             {.kind = op.kind, .type = type, .elements = elements}, lock);
  put_back(queue);
}

std::int32_t Scheduler::member_of(const Queue& queue, const Op& op) const {
  return groups_.of[op.group.index()][static_cast<std::size_t>(queue.lane.rank)].member;
}

// What is left to do where an UNSHARD has gathered: shards that came in 8 bit become the whole, of
// which a second copy (Plan::secondary_shard_group) keeps this rank's part among its neighbours.
void Scheduler::end_gather(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock) {
  const Op& op = s_.ops[id.index()];
  if (op.kind != OpKind::Unshard || !op.bucket) return;
  const auto operands = s_.operands_of(id);
  const auto copy = std::ranges::find_if(operands, [&](const Operand& operand) {
    return operand.access == Access::Write &&
           s_.values[operand.value.index()].kind == ValueKind::ParameterShard;
  });
  const bool quantized = static_cast<bool>(quantized_room(s_, id));
  if (copy == operands.end() && !quantized) return;
  const RankState& rank = state(queue);
  lock.unlock();
  if (quantized) unpack_shards(local_, rank, id, s_.group_of(op).size);
  if (copy != operands.end()) {
    const std::int64_t bytes = s_.values[copy->value.index()].bytes.value;
    const std::int32_t part = rank.replica % local_.mesh.shards();
    local_.device.transfer(queue.lane, local_.address(rank, operands[1].value) + part * bytes,
                           queue.lane, local_.address(rank, copy->value), bytes);
  }
  lock.lock();
}

// Both ends are heads: the second to come copies. Where the other end is in another process, the
// communicator carries it.
void Scheduler::transfer(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock) {
  const Op& op = s_.ops[id.index()];
  const RankState& rank = state(queue);
  const Value& mine = s_.values[s_.operands_of(id)[0].value.index()];
  std::byte* here = rank.arena + mine.offset.value;
  const bool send = op.kind == OpKind::Send;
  const std::int32_t column = local_.mesh.column(rank.at);
  const std::size_t channel =
      op.match.index() * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(column);
  Coordinates other_at = rank.at;
  other_at.pipeline = op.peer.value;
  const std::int32_t other_rank = local_.mesh.rank(other_at).value;
  const auto self = static_cast<std::int32_t>(&queue - queues_.data());
  lock.lock();
  queue.head = Head::Waiting;
  waits_for(queue, other_rank);
  if (!local_.holds(other_rank)) {
    ++posted_;
    lock.unlock();
    const auto bytes = static_cast<std::size_t>(mine.bytes.value);
    if (send) {
      communicator_->send(lane(queue), other_rank, channel, {here, bytes}, resume({self}));
    } else {
      communicator_->receive(lane(queue), other_rank, channel, {here, bytes}, resume({self}));
    }
    lock.lock();
    return;
  }
  std::int32_t& other = transfers_[channel];
  if (other < 0) {
    other = self;
    return;
  }
  Queue& partner = queues_[static_cast<std::size_t>(other)];
  other = -1;
  const Value& theirs = s_.values[s_.operands_of(head(partner))[0].value.index()];
  std::byte* there = state(partner).arena + theirs.offset.value;
  lock.unlock();
  if (send) {
    local_.device.transfer(queue.lane, here, partner.lane, there, mine.bytes.value);
  } else {
    local_.device.transfer(partner.lane, there, queue.lane, here, mine.bytes.value);
  }
  lock.lock();
  partner.head = queue.head = Head::Resumable;
}

// Left with the lock: the op goes on when its collective has ended.
void Scheduler::put_back(Queue& queue) {
  queue.head = queue.meets ? Head::Waiting : Head::Resumable;
  if (queue.meets) waits_for(queue, waits_in_layer(queue.layer));
}

// Issues a compute op from where it is, lock free. False: it is put back, or failed, lock held.
bool Scheduler::run_turns(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock) {
  const auto& halves = state(queue).compute[static_cast<std::size_t>(id.value - first_op(queue))];
  const Lane second = queue.lane.on(Track::Second);
  // The halves of a pair run side by side where one has something to wait for.
  const bool beside =
      halves.size() > 1 && local_.plan.overlap_pair != PairOverlap::None &&
      std::ranges::any_of(halves, [&](const ComputeOp& half) { return runner_.meets(half); });
  if (!queue.turns.started()) {
    for (const ComputeOp& half : halves) {
      for (const auto& [memory, bytes] : half.clear) local_.device.clear(queue.lane, memory, bytes);
    }
    const TrainOptions& train = options_.train;
    queue.turns.start(halves,
                      {.seed = train.seed,
                       .step = options_.step,
                       .loss_scale = loss_scale(local_.plan),
                       .losses = {train.router_auxiliary_loss, train.router_z_loss},
                       .expert_counts = state(queue).expert_counts,
                       .correction = reinterpret_cast<const float*>(state(queue).correction)},
                      beside);
    if (beside) local_.device.order(queue.lane, second);
  }
  while (true) {
    CollectiveRequest request;
    switch (queue.turns.run(&request)) {
      case Progress::Done:
        if (beside) local_.device.order(second, queue.lane);
        return true;
      case Progress::Failed:
        lock.lock();
        if (failure_.empty()) failure_ = queue.turns.failure();
        return false;
      case Progress::Collective:
        queue.layer = request.layer;
        rendezvous(queue, request.lane, groups_.group(kind_along(request.axis)),
                   {request.in, request.out, request.sends, request.receives},
                   {.kind = request.kind,
                    .type = request.type,
                    .maximum = request.maximum,
                    .elements = request.elements,
                    .pitch = request.pitch,
                    .root = request.root},
                   lock);
        break;
      case Progress::Waits:
        lock.lock();
        if (!failure_.empty()) return false;  // what it waited for may never have come
        if (queue.meets) {
          put_back(queue);
          return false;
        }
        queue.turns.met();
        break;
    }
    lock.unlock();
  }
}

void Scheduler::compute(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock) {
  const auto& halves = state(queue).compute[static_cast<std::size_t>(id.value - first_op(queue))];
  const bool fresh = !queue.turns.started();
  const bool repeats =
      fresh && local_.device.asynchronous() &&
      std::ranges::all_of(halves, [&](const ComputeOp& half) { return runner_.alone(half); });
  if (!repeats || !local_.device.launch_graph(queue.lane, id)) {
    if (!run_turns(queue, id, lock)) return;
    if (repeats && local_.device.capture_failed(queue.lane, id)) run_turns(queue, id, lock);
  }
  lock.lock();
  finish(queue);
}

void Scheduler::perform(Queue& queue, std::unique_lock<std::mutex>& lock) {
  const OpId id = head(queue);
  const OpClass kind = traits(s_.ops[id.index()].kind).op_class;
  const bool resumed = queue.head == Head::Resumable;
  queue.head = Head::Running;
  if (!resumed) {
    start[time_of(queue, id)] = {now_ns() - began_ns};
    if (observer_ != nullptr) {
      observer_->op_began(queue.lane.rank, options_.step, id, queue.lane.stream);
    }
    begin_on_device(queue);
  } else {
    waits_for(queue, kWaitsForNobody);
  }
  if (resumed && kind != OpClass::Compute) {
    if (kind == OpClass::Collective) end_gather(queue, id, lock);
    return finish(queue);
  }
  lock.unlock();
  switch (kind) {
    case OpClass::Transfer:
      return transfer(queue, id, lock);
    case OpClass::Collective:
      return collective(queue, id, lock);
    case OpClass::Compute:
      return compute(queue, id, lock);
    case OpClass::Copy:
    case OpClass::Local:
    case OpClass::Text:
      break;
  }
  if (s_.ops[id.index()].kind == OpKind::Loss) {
    loss(queue, id);
  } else {
    perform_local(local_, state(queue), id, options_);
  }
  lock.lock();
  finish(queue);
}

// Nothing runs, nothing is under way elsewhere, and yet ops are open: a deadlock, which the
// schedule's proof excludes.
void Scheduler::stuck() {
  for (const Queue& queue : queues_) {
    if (queue.next >= queue.ops.size()) continue;
    failure_ = "rank " + std::to_string(queue.lane.rank) + " waits in " +
               op_label(s_, head(queue)) + " and nothing else can run";
    return;
  }
}

void Scheduler::work(std::unique_lock<std::mutex>& lock) {
  while (open_ > 0 && failure_.empty()) {
    Queue* queue = pick();
    if (queue == nullptr) {
      if (running_ == 0 && posted_ == 0) {
        stuck();
        break;
      }
      changed_.wait(lock);
      continue;
    }
    ++running_;
    perform(*queue, lock);
    --running_;
    changed_.notify_all();
  }
  changed_.notify_all();
}

void Scheduler::workers_loop() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    work(lock);
  }
}

Result<> Scheduler::run(const StepOptions& options) {
  std::unique_lock lock(mutex_);
  if (!failure_.empty()) return Error{failure_};
  // What the loss carries is part of its kernels' arguments.
  if (options.loss_scale != options_.loss_scale) local_.device.forget_graphs();
  options_ = options;
  open_ = 0;
  for (Queue& queue : queues_) {
    queue.next = 0;
    queue.head = Head::Idle;
    open_ += queue.ops.size();
  }
  for (auto& row : ended_) std::fill(row.begin(), row.end(), std::uint8_t{0});
  exchanged.clear();
  began_ns = now_ns();
  if (observer_ != nullptr) {
    for (const auto& rank : local_.ranks) observer_->step_began(rank->rank.value, options.step);
  }
  local_.device.begin_step();
  ++generation_;
  changed_.notify_all();
  work(lock);
  // Data of exchanges that are under way lies in the arena: they end (or time out) first.
  changed_.wait(lock, [&] { return running_ == 0 && posted_ == 0; });
  if (!failure_.empty()) return Error{failure_};
  lock.unlock();
  const Result<> device = local_.device.end_step();
  if (!device) return device;
  wall_ns = now_ns() - began_ns;
  for (std::size_t k = 0; k < local_.ranks.size(); ++k) {
    const std::size_t row = local_.ranks[k]->row.index();
    std::size_t at = first_time_[k];
    for (std::int32_t i = s_.row_begin[row]; i < s_.row_begin[row + 1]; ++i, ++at) {
      if (!local_.device.times(local_.ranks[k]->rank.value, {i}, &start[at], &end[at])) break;
    }
  }
  return {};
}

}  // namespace rehearse::exec
