// SPDX-License-Identifier: Apache-2.0
// What a framework keeps, copies and holds, as data: the memory part of a runtime's file
// (schedules/runtime/runtime_file.h).
//
// A profile lists, per kind of segment and direction, which tensors are allocated and freed in
// which order. Sizes are formulas in the letters below, so that one profile serves every model and
// plan; memory_script.h turns them into bytes. Nothing here knows a model or an allocator.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// Letters of a size formula, per rank and micro-batch (docs/memory.md).
enum class SizeLetter : std::uint8_t {
  Element,        // e: bytes of the compute type
  Tokens,         // n
  Local,          // l: n/t under sequence parallelism, else n
  Hidden,         // h
  Query,          // q: a d / t
  KeyValue,       // k: kv d / t
  Qkv,            // qkv: (a + 2 kv) d / t
  Ffn,            // f: MLP width / t; with experts the width that one token sees
  Up,             // u: f, or 2f where gated
  Vocabulary,     // V: padded vocabulary / t; where logits are gathered, all of it
  Heads,          // a: heads / t
  Scores,         // S: elements of the attention square, b (a/t) (s/c) s
  ExpertTokens,   // x: rows that the experts of a rank compute, even routing
  Latent,         // m: width of the compressed queries and keys (multi-head latent attention)
  Operand,        // o: bytes of what a product keeps for its weight gradient: 1 in 8 bit, else e
  ExpertWidth,    // i: width of one expert / its tensor-parallel ranks
  Shared,         // w: width of all shared experts / t
  GroupTokens,    // g: tokens that the ranks which share a set of experts bring together
  TravelledRows,  // y: rows that reach a rank: x, or tokens once per rank where deduplicated
  RowWidth,       // r: columns of a routed row: h, or the latent ones
  GateColumns,    // z: of attention's gate / t; 0: none
  Streams,        // j: residual streams, 1 but under hyper-connections
  ContextRanks,   // c: that share a sequence
  LossTokens,     // p: of one chunk of the loss
  ExchangedKeys,  // K: k, its heads repeated for the ranks that read them where heads are exchanged
};
inline constexpr std::size_t kNumSizeLetters = 25;

// A sum of products: every term is a factor times the letters with their powers.
struct SizeTerm {
  std::int64_t factor = 1;
  std::array<std::uint8_t, kNumSizeLetters> power{};
};
using SizeFormula = std::vector<SizeTerm>;

// What a row or tensor depends on; a condition names flags that must hold and that must not.
enum class Flag : std::uint8_t {
  Dropout,  // of what the two blocks give
  Flash,
  Unfused,
  Gated,
  Rope,
  Learned,
  LayerNorm,
  SequenceParallel,
  Experts,
  Latent,
  TensorParallel,
  FusedLoss,  // also of the software generation that attention_kernel flash1 stands for
  KeptGathers,
  EagerRope,
  EagerActivation,
  Fp8Operands,  // products keep their inputs in 8 bit
  EagerAttention,
  EagerNorm,
  GroupedExperts,  // of the model: it has experts, and their products are one launch
  // Parts that the backward makes again (Plan::recompute), as the layer has them.
  NormAgain,
  LatentAgain,
  ActivationAgain,  // of a dense layer's MLP, of the routed experts
  MlpAgain,         // whole: a dense layer's, or the experts' with the shared ones
  SharedAgain,
  Fp8Dispatch,   // tokens come to their experts in 8 bit
  NormBehind,    // norms of what the two blocks give
  QueryKeyNorm,  // and of queries and keys
  SoftCap,       // of the logits
  AttentionDropout,
  EmbeddingDropout,
  NormBefore,        // norms of what the two blocks read
  ParallelResidual,  // both blocks read the layer's input
  AttentionSoftCap,  // of the scores
  GathersTokens,     // experts take theirs out of the tokens of all ranks that share a set
  NoAttention,       // another kind stands in its place, or nothing
  NoMixer,           // nothing does
  NoMlp,             // nor do an MLP or experts behind it
  OneNorm,           // before both blocks
  ContextGather,     // ranks that share a sequence gather its keys and values,
  ContextExchange,   // or exchange heads
  ChunkedLoss,       // of whose logits one chunk's are there at a time
};
inline constexpr std::size_t kNumFlags = 41;
using Flags = std::uint64_t;  // bit i: Flag i
constexpr Flags bit_of(Flag flag) {
  return Flags{1} << static_cast<unsigned>(flag);
}
// A row of a backward that needs one of these makes again what its forward has dropped.
inline constexpr Flags kMakesAgain = bit_of(Flag::NormAgain) | bit_of(Flag::LatentAgain) |
                                     bit_of(Flag::ActivationAgain) | bit_of(Flag::MlpAgain) |
                                     bit_of(Flag::SharedAgain);
struct Condition {
  Flags all = 0, none = 0;
  bool holds(Flags flags) const { return (flags & all) == all && (flags & none) == 0; }
};

enum class Keep : std::uint8_t {
  No,       // freed inside the forward
  Always,   // kept for the backward
  Drop,     // kept, but selective recomputation drops it and makes it again
  Saved,    // kept only under selective recomputation, else freed inside the forward
  Cheap,    // as Drop, and where nothing is recomputed a compiled program makes it again all the
            // same, at its last use: its kernel is fused with that
  Streams,  // kept; where residual streams are computed again, dropped when the forward of its
            // block of layers ends, and made again before the backward of the block's last
};

struct ScriptRow {
  enum class Act : std::uint8_t {
    Allocate,
    Free,       // in a forward: its last use there, ignored where the tensor is kept; of a tensor
                // that is not there (its condition does not hold): nothing
    Recompute,  // here a backward makes again what selective recomputation dropped (all of the
                // forward, or the dropped tensors alone)
    Mixer,      // here stand the rows of a kind in attention's place, or beside it
  };
  Act act{};
  std::string tensor;
  SizeFormula size;
  Keep keep = Keep::No;
  Condition condition;
  bool weight_phase = false;   // freed by W where the backward is split
  bool whole_forward = false;  // Recompute: temporaries too
  std::uint8_t block = 0;      // of a layer, whose tensor it is (ModelPart::block)
  // Backward, Allocate: the forward has dropped the tensor, which is made again here; with any of
  // the conditions kMakesAgain it is so, too.
  bool again = false;
};

// Tensors "input", "output", "input_gradient" and "output_gradient" are handed between segments.
struct SegmentScript {
  std::vector<ScriptRow> forward, backward;
};

// A value that changed with the GPU generation: what holds from a compute capability on, ascending.
struct ByCapability {
  struct Step {
    std::int32_t from = 0;
    std::int64_t value = 0;
  };
  std::vector<Step> steps;
  std::int64_t of(std::int32_t compute_capability) const {
    std::int64_t value = 0;
    for (const Step& step : steps) {
      if (step.from <= compute_capability) value = step.value;
    }
    return value;
  }
};

// A library's workspace: inside the allocator, kept for good.
struct Workspace {
  ByCapability bytes;
  Condition condition;
};

struct MemoryProfile {
  SegmentScript embedding, layer, head;
  SegmentScript prediction;  // what stands before the layer of a prediction layer; may be empty
  std::vector<Workspace> workspaces;
  ByCapability context;               // CUDA context, outside of it
  std::int64_t communicator = 0;      // one communicator's buffers, outside of it
  std::int32_t transfer_buffers = 0;  // hand-over tensors in flight during a pipelined step
  std::int32_t stale_transfers_per_chunk = 0;  // held from one pipelined step to the next
  // [us/GB] what it takes to give cached memory back to the driver and to map as much anew
  std::int32_t remap_us_per_gb = 0;
  bool contiguous_gradients = false;            // one buffer for all gradients, alive all the time
  bool reduction_buckets = false;               // without it: replicas sum copies of all gradients
  std::int32_t contiguous_parameters_from = 9;  // ZeRO stage from which parameters are one buffer
  bool flattened_on_host = false;               // which is made in host memory
  // Where units are gathered: tensor by tensor, the next one as long as fewer elements than this
  // are there. 0: a whole unit at once.
  std::int64_t gathered_elements = 0;
  bool fp32_gradients_at_step = false;  // 16-bit gradients are copied to fp32 for the optimizer
  Condition optimizer_list;             // where it holds: the update makes a list of 4-byte copies
  bool moments_at_first_step = false;   // they then lie where activations were: fragmentation
  double default_dropout = 0;           // where neither model nor plan says, for LayerNorm models
};

// The profile of a framework's runtime, as a plan names it. Errors: one line, "FILE:LINE: KEY: what
// is wrong".
Result<MemoryProfile> read_memory_profile(const std::string& runtime);

}  // namespace rehearse::sim
