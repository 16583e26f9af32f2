// SPDX-License-Identifier: Apache-2.0
// The order of a step: every (rank, stream) is an in-order queue of ops; who may go on, and with
// whom.
//
// An op may start when its waits have ended. Workers take the ready op with the smallest place in
// the global order; no worker blocks inside an op: where all that is left of it needs a collective,
// the op is put back until that has ended. Its last member to arrive performs it for all (or hands
// it to the communicator where members live in other processes). So every layout runs with one
// worker. On an asynchronous backend "ended" means issued, and the backend's lanes keep the order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exec/backend/communicator.h"
#include "exec/step/exchanges/exchange_counts.h"
#include "exec/step/exchanges/group_instances.h"
#include "exec/step/observer.h"
#include "exec/step/op_turns.h"
#include "exec/step/rank_state.h"
#include "exec/step/transfer_tracks.h"

namespace rehearse::exec {

class Scheduler {
 public:
  // `communicator`: null where all ranks are in this process. All must outlive the scheduler.
  // `observer`: null where nobody watches.
  Scheduler(LocalRanks& local, const BodyRunner& runner, Communicator* communicator,
            Observer* observer, int workers);
  ~Scheduler();

  // One step. Error: what the communicator or the backend says, or a deadlock (ours).
  Result<> run(const StepOptions& options);
  // Ends the step under way with this error; from any thread.
  void fail(const std::string& message);

  // When the ops of the last step ran [ns since it began]: of every rank here, rank after rank.
  std::vector<Nanoseconds> start, end;
  std::int64_t began_ns = 0;  // on the steady clock
  std::int64_t wall_ns = 0;   // of the whole step
  ExchangeCounts exchanged;   // of the last step

 private:
  enum class Head : std::uint8_t { Idle, Running, Waiting, Resumable };
  struct Queue {            // one stream of one rank
    std::int32_t rank = 0;  // index into local_.ranks
    Lane lane;
    std::vector<std::int32_t> ops;  // of the schedule, in order
    std::size_t next = 0;
    Head head = Head::Idle;
    bool meets = false;       // a collective of its op is under way,
    std::int32_t layer = -1;  // inside it: of this layer
    OpTurns turns;            // of a compute op
    Queue(std::int32_t r, Lane l, OpTurns t) : rank(r), lane(l), turns(std::move(t)) {}
  };
  // One collective of an instance of a group: who has come, and what it brings.
  struct Rendezvous {
    std::vector<Contribution> brought;  // by member
    std::vector<Lane> lanes;            // by member
    std::vector<std::int32_t> queues;   // who waits here, in order of arrival
    std::size_t here = 0;               // members in this process
    bool everybody = true;              // all members are in this process
    std::int64_t sequence = 0;
  };

  void work(std::unique_lock<std::mutex>& lock);
  void workers_loop();
  Queue* pick();
  // What the loss of this step and its gradients carry (StepFacts).
  float loss_scale(const Plan& plan) const;
  bool ready(const Queue& queue) const;
  // Performs the head of a queue as far as it goes. Called and left with the lock held.
  void perform(Queue& queue, std::unique_lock<std::mutex>& lock);
  void compute(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock);
  bool run_turns(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock);
  void collective(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock);
  void array_exchange(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock);
  void loss(const Queue& queue, OpId id);
  std::byte* address_of(const Queue& queue, const Op& op, const Operand& operand) const;
  std::int32_t member_of(const Queue& queue, const Op& op) const;
  void end_gather(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock);
  void transfer(Queue& queue, OpId id, std::unique_lock<std::mutex>& lock);
  // `lane`: the queue's, on the track on which the collective is issued.
  void rendezvous(Queue& queue, Lane lane, std::int32_t group, Contribution brought,
                  Exchange exchange, std::unique_lock<std::mutex>& lock);
  void put_back(Queue& queue);
  void finish(Queue& queue);
  void waits_for(const Queue& queue, std::int32_t peer);
  void came_back(std::int32_t queue);
  Communicator::Done resume(std::vector<std::int32_t> queues);
  void stuck();

  OpId head(const Queue& queue) const { return {queue.ops[queue.next]}; }
  // Of its op.
  Lane lane(const Queue& queue) const {
    return tracks_.empty() ? queue.lane : queue.lane.on(tracks(queue).of(head(queue)));
  }
  const TransferTracks& tracks(const Queue& queue) const {
    return tracks_[static_cast<std::size_t>(queue.rank)];
  }
  void begin_on_device(const Queue& queue);
  RankState& state(const Queue& queue) const {
    return *local_.ranks[static_cast<std::size_t>(queue.rank)];
  }
  std::size_t time_of(const Queue& queue, OpId id) const {
    return first_time_[static_cast<std::size_t>(queue.rank)] +
           static_cast<std::size_t>(id.value - first_op(queue));
  }
  std::int32_t first_op(const Queue& queue) const {
    return local_.schedule.row_begin[state(queue).row.index()];
  }

  LocalRanks& local_;
  const Schedule& s_;
  const BodyRunner& runner_;
  Communicator* communicator_;
  Observer* observer_;
  const int workers_;
  const GroupInstances groups_;
  std::vector<Queue> queues_;                     // rank * kNumStreams + stream
  std::vector<std::vector<std::uint8_t>> ended_;  // per rank here, per op of its row
  std::vector<std::size_t> first_time_;           // per rank here: where its times begin
  std::vector<Rendezvous> rendezvous_;            // by instance
  std::vector<std::int32_t> transfers_;           // [match * columns + column]: queue, -1
  std::vector<TransferTracks> tracks_;            // per rank here; empty: one lane of transfers
  std::int32_t columns_ = 1;                      // ranks of a position
  StepOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  std::uint64_t generation_ = 0;  // steps begun
  bool stopping_ = false;
  std::size_t open_ = 0;  // ops not ended
  int running_ = 0;       // workers inside an op
  int posted_ = 0;        // exchanges with other processes under way
  std::string failure_;
};

}  // namespace rehearse::exec
