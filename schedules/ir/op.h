// SPDX-License-Identifier: Apache-2.0
// The op: one thing that one rank does on one of its streams, at L0 and at L1.
//
// An op says *what* is done, never how long it takes and never on which device. What is true of a
// kind is one row of kOpTraits. Operands, values and waits are columns of Schedule.
#pragma once

#include <array>
#include <string_view>
#include <type_traits>

#include "schedules/base/units.h"

namespace rehearse {

enum class OpKind : std::uint8_t {
  Forward,         // F: activations in, activations out; keeps what the backward needs
  Backward,        // B = I + W: gradients of the input and of the weights
  InputGradient,   // I: the half of B that the previous stage waits for
  WeightGradient,  // W: the half that nobody waits for
  // R: what the backward computes again, where a schedule places it apart (placed_recompute.h)
  Recompute,
  Overlap,  // two compute ops that may run at the same time (DualPipe): Schedule::children
  Send,     // to `peer`; the k-th Send of a channel meets the k-th Recv
  Recv,     // from `peer`
  // hand-over to the next stage on the same rank (V placements): no bytes on a link
  Pass,
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  AllToAll,
  Unshard,     // ZeRO-3: gather full parameters from shards
  Reshard,     // text form only: end of life of an unsharded parameter
  ReduceGrad,  // L0's word for the gradient synchronisation of a stage; collectives in L1
  Add,         // accumulate one value into another
  GradNorm,    // sums of squares per tensor, and the loss, into one vector
  Offload,     // device to host
  Fetch,       // host to device
  OptimizerStep,
  Free,  // text form only: end of life is a bit on an operand
  // of outputs that one rank has gathered from all replicas (DataParallel): adds to the loss of the
  // step, and leaves the gradient of the outputs in their place
  Loss,
};
inline constexpr std::size_t kNumOpKinds = 27;

enum class Stream : std::uint8_t { Compute, P2p, Dp, H2d, D2h };
inline constexpr std::size_t kNumStreams = 5;

// What travels: the letter after SEND_/RECV_ in the text form.
enum class Payload : std::uint8_t { None, Activation, Gradient };

enum class OpClass : std::uint8_t {
  Compute,     // work on a stage: F B I W R OVERLAP
  Transfer,    // one of two ends: SEND RECV
  Collective,  // all members of a group
  Copy,        // a copy engine: OFFLOAD FETCH
  Local,       // on this rank alone, on no link: PASS ADD LOSS GRAD_NORM OPTIMIZER_STEP
  Text,        // exists in files and L0 only: RESHARD REDUCE_GRAD FREE
};

// Everything that is true of a kind, in one place. A new kind is one enumerator and one row.
struct OpTraits {
  std::string_view name;  // as in files, torch's words where torch has one
  OpClass op_class;
  Stream stream;  // where L1 issues it unless the op says otherwise
};

inline constexpr std::array<OpTraits, kNumOpKinds> kOpTraits{{
    {"F", OpClass::Compute, Stream::Compute},
    {"B", OpClass::Compute, Stream::Compute},
    {"I", OpClass::Compute, Stream::Compute},
    {"W", OpClass::Compute, Stream::Compute},
    {"R", OpClass::Compute, Stream::Compute},
    {"OVERLAP_F_B", OpClass::Compute, Stream::Compute},
    {"SEND", OpClass::Transfer, Stream::P2p},
    {"RECV", OpClass::Transfer, Stream::P2p},
    {"PASS", OpClass::Local, Stream::Compute},
    {"ALL_REDUCE", OpClass::Collective, Stream::Dp},
    {"REDUCE_SCATTER", OpClass::Collective, Stream::Dp},
    {"ALL_GATHER", OpClass::Collective, Stream::Dp},
    {"BROADCAST", OpClass::Collective, Stream::Dp},
    {"REDUCE", OpClass::Collective, Stream::Dp},
    {"GATHER", OpClass::Collective, Stream::Dp},
    {"SCATTER", OpClass::Collective, Stream::Dp},
    {"ALL_TO_ALL", OpClass::Collective, Stream::Dp},
    {"UNSHARD", OpClass::Collective, Stream::Dp},
    {"RESHARD", OpClass::Text, Stream::Compute},
    {"REDUCE_GRAD", OpClass::Text, Stream::Compute},
    {"ADD", OpClass::Local, Stream::Dp},
    {"GRAD_NORM", OpClass::Local, Stream::Compute},
    {"OFFLOAD", OpClass::Copy, Stream::D2h},
    {"FETCH", OpClass::Copy, Stream::H2d},
    {"OPTIMIZER_STEP", OpClass::Local, Stream::Compute},
    {"FREE", OpClass::Text, Stream::Compute},
    {"LOSS", OpClass::Local, Stream::Compute},
}};

constexpr const OpTraits& traits(OpKind kind) {
  return kOpTraits[static_cast<std::size_t>(kind)];
}

struct Op {
  OpKind kind{};
  Stream stream{};
  Payload payload{};               // Send, Recv, Pass: what travels
  std::int8_t slice = -1;          // sequence slice (seq_1f1b); -1: the whole sequence
  Stage stage{};                   // compute: of which layers; Send, Recv: the stage that issues it
  Microbatch microbatch{};         // on which data; none for a whole-step op
  std::int16_t segment_begin = 0;  // compute: the run of segments of its stage that it covers,
  std::int16_t segment_end = -1;   //   [begin, end); end -1: the whole stage (never cut)
  Position peer{};                 // Send, Recv: on the pp axis; own groups: the root's place
  GroupId group{};                 // collectives
  MatchId match{};                 // Send, Recv, collectives: ops of equal match happen together
  BucketId bucket{};        // parameters, gradients or state of which bucket; none: not about one
  std::int32_t child = -1;  // Overlap: index of the first of its two ops in Schedule::children
  // Unshard: k-th gather of the bucket; gradient ops: whose micro-batch; of own groups: its number;
  // Send, Recv: neighbours of equal number are one group
  std::int32_t instance = -1;
  // place in the one global order [ns of the estimate]; ties broken by pass
  std::int64_t key = 0;

  constexpr bool operator==(const Op&) const = default;
};
static_assert(sizeof(Op) == 48 && std::is_trivially_copyable_v<Op>);

constexpr bool is_compute(OpKind kind) {
  return traits(kind).op_class == OpClass::Compute;
}
constexpr bool is_backward(OpKind kind) {  // what hands a gradient to the previous stage
  return kind == OpKind::Backward || kind == OpKind::InputGradient;
}

constexpr Op compute_op(OpKind kind, Stage stage, Microbatch microbatch) {
  return {.kind = kind, .stage = stage, .microbatch = microbatch};
}

}  // namespace rehearse
