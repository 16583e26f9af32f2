// SPDX-License-Identifier: Apache-2.0
// Whether a schedule can hang, and how: rendezvous on in-order queues, as a graph without cycles.
//
// Idea. A SEND completes only together with its RECV, a collective only with all of its members
// (rendezvous; what NCCL promises, small messages aside). Merge the ops that meet into one node.
// Edges: order inside each queue, and the waits. If this quotient graph has no cycle, the schedule
// runs to its end whatever the durations are; if it has one, every run stops in it. The cycle is
// the explanation, and on the way the longest path gives the makespan. Cost: O(ops + edges).
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse {

// Which transfers of a row share an in-order queue. Compute, data-parallel and copy ops always have
// the queue of their stream.
enum class StreamModel : std::uint8_t {
  One,            // all in one queue
  Peer,           // one queue per peer
  PeerDirection,  // one per peer, direction and payload
  Host,           // blocking calls: in the compute queue, in program order
  Fuse,           // one queue; transfers that stand together in the program are one group
  Payload,        // one for activations, one for gradients
};
struct StreamModelInfo {
  std::string_view name;  // `--streams`
  StreamModel model;
  std::string_view what;
};
inline constexpr std::array<StreamModelInfo, 6> kStreamModels{{
    {"one", StreamModel::One, "one in-order transfer stream per rank"},
    {"peer", StreamModel::Peer, "one transfer stream per peer"},
    {"peerdir", StreamModel::PeerDirection, "one transfer stream per peer, direction and payload"},
    {"host", StreamModel::Host, "blocking transfers in program order"},
    {"fuse", StreamModel::Fuse, "one transfer stream, adjacent transfers grouped"},
    {"fb", StreamModel::Payload, "one stream for activations, one for gradients"},
}};
std::optional<StreamModel> find_stream_model(std::string_view name);
constexpr const StreamModelInfo& info(StreamModel model) {
  return kStreamModels[static_cast<std::size_t>(model)];
}

// Transfers of a row that a file lists as one group (equal Op::instance, standing together) are a
// group in every model, in the row's one transfer queue (host: the compute queue). Members of a
// group become ready together, once what its SENDs carry is there; each completes with its own
// partner; the queue goes on when all have.

// Durations of ops. By op where `per_op` is given, else by kind.
struct OpDurations {
  std::span<const Nanoseconds> per_op;  // one per op; of a transfer the SEND's counts
  Nanoseconds forward{1}, input_gradient{1}, weight_gradient{1};  // of one stage-chunk; B = I + W
  Nanoseconds pair{-1};     // an OVERLAP op; -1: the sum of its children
  Nanoseconds transfer{0};  // SEND with its RECV; at L0 the delay between positions
  Nanoseconds other{0};     // all else
};

enum class WaitReason : std::uint8_t {
  Order,    // `other` comes before it in the same queue of the same row
  Data,     // it needs what `other` makes
  Partner,  // it meets `other`, which its row has not reached
  Group,    // it is issued in one group with `other`, which cannot start yet
};
struct CycleStep {
  OpId op{}, other{};
  WaitReason reason{};
};

struct DeadlockProof {
  bool complete = false;            // every op finishes: no deadlock
  std::vector<CycleStep> cycle;     // each step's `other` is the next one's `op`, the last one's
                                    // the first's; empty where nothing hangs or `lonely` does
  std::vector<OpId> lonely;         // transfers without partner that something waits behind
  std::vector<Nanoseconds> finish;  // per op; negative where it never finishes
  Nanoseconds makespan{};           // longest path, of what finishes
};

// REQUIRES: Level::Full: match and waits are there (link_transfers). Level::Compute: dependencies
//           between positions are taken from stages and micro-batches; the model does not matter.
DeadlockProof prove_no_deadlock(const Schedule& schedule, StreamModel model,
                                const OpDurations& durations = {});

// The verdict and the cycle alone: `finish` is empty, `makespan` 0. What the validator asks.
DeadlockProof prove_no_deadlock_untimed(const Schedule& schedule, StreamModel model);

// One line per step: "rank 0: 0SEND_F3 meets 1RECV_F3 on rank 1, which is not reached".
std::vector<std::string> explain(const Schedule& schedule, const DeadlockProof& proof);
// Where a cycle of one step or more is said in one line, for lists of violations.
std::string cycle_in_one_line(const Schedule& schedule, const DeadlockProof& proof);

}  // namespace rehearse
