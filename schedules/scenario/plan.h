// SPDX-License-Identifier: Apache-2.0
// The layout of a training step: how the model is split and in which precision it runs.
// All defaults are filled in (resolve_plan); meaning and checks: the plan table of
// docs/scenario.md.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/base/units.h"
#include "schedules/model/measured_routing.h"
#include "schedules/model/model.h"
#include "schedules/model/optimizer.h"
#include "schedules/runtime/recompute.h"
#include "schedules/runtime/runtime.h"
#include "schedules/timing/compute_timing.h"

namespace rehearse {

// What lies in the memory of the host, or on its disk, meanwhile.
struct Offload {
  bool optimizer = false, activations = false, parameters = false;
  bool any() const { return optimizer || activations || parameters; }
  bool operator==(const Offload&) const = default;
};
enum class OffloadTarget : std::uint8_t { Host, Nvme };
// Which activations leave: all that are kept; the inputs of recomputed layers; as many as leave
// and come back for nothing.
enum class OffloadedActivations : std::uint8_t { All, Checkpoints, Chosen };
// Products run in this type. From Fp8 on they run in it alone: all else stays in 16 bit. Mxfp8 and
// Nvfp4 have a scale for every block of values (OCP microscaling; NVIDIA's 4-bit format).
enum class ComputeType : std::uint8_t { Fp32, Fp16, Bf16, Fp8, Mxfp8, Nvfp4 };
constexpr bool is_quantized(ComputeType type) {
  return type >= ComputeType::Fp8;
}
constexpr bool is_block_scaled(ComputeType type) {
  return type >= ComputeType::Mxfp8;
}
// How Chimera takes more micro-batches than positions (arXiv 2107.06925, section 3.5).
enum class ChimeraScaling : std::uint8_t { None, ForwardDoubling, BackwardHalving };
// What trains an indexer that picks the keys of attention: its scores held against attention's own,
// over the keys that it picked or over all (arXiv 2512.02556, section 2.1).
enum class IndexerLoss : std::uint8_t { None, Sparse, Dense };
// Ranks of a product by SUMMA: both operands cut in rows and columns. 0 x 0: not. Of the t ranks
// of tp the one at place i columns + j is in row i and column j.
struct TensorGrid {
  std::int32_t rows = 0, columns = 0;
  bool any() const { return rows > 0; }
  std::int32_t ranks() const { return rows * columns; }
  // Into how many panels the dimension that a product sums over is cut: of each one rank of a row
  // has the columns of one operand, and one of a column the rows of the other.
  std::int32_t panels() const { return std::lcm(rows, columns); }
  bool operator==(const TensorGrid&) const = default;
};
enum class TensorOverlap : std::uint8_t { Default, Off, Chunked };  // absent, false, true
// Order and form of the transfers between stages. The first three are orders of transfers that run
// beside compute.
enum class TransferForm : std::uint8_t {
  TimeSorted,     // what can begin first goes first
  ProducerOrder,  // as what they carry is made: one that must wait holds up those behind it
  ConsumerOrder,  // as what they carry is taken
  Grouped,        // what two stages send each other between the same ops begins and ends together
  Serial,         // compute waits for every one, and for what goes the other way behind it
};
enum class DataParallelAlgorithm : std::uint8_t { AllReduce, ParameterServer };
// The mesh, and what collectives span that is no axis of it: of experts (ExpertBlock is Expert and
// ExpertTensor together), of a grid of tensor parallel ranks along a row and along a column, and
// the two parts of Context where heads are exchanged inside a ring.
enum class Axis : std::uint8_t {
  Tensor,
  Context,
  Expert,
  Data,
  Pipeline,
  ExpertTensor,
  ExpertBlock,
  TensorRow,
  TensorColumn,
  ContextHeads,
  ContextRing,
};
inline constexpr std::size_t kNumAxes = 11;
// How tokens come to their experts and back.
enum class ExpertDispatch : std::uint8_t {
  AllToAll,      // one copy per expert chosen
  AllGather,     // all tokens to all ranks
  Deduplicated,  // one copy per rank, and per node over NICs
};
// How far the busiest rank's rows lie above the mean.
enum class ExpertRouting : std::uint8_t { Balanced, Uniform, Factor, Measured };
// What runs beside dispatch and combine: the shared expert, or a forward beside a backward.
enum class ExpertOverlap : std::uint8_t { None, Shared, Pair };
// Over which tokens an auxiliary loss of routers balances what they choose.
enum class RouterBalance : std::uint8_t { None, MicroBatch, Sequence };

// Bytes per parameter; `optimizer` includes the fp32 master copy where there is one.
struct Precision {
  std::string name = "bf16";  // "custom" for an object
  std::int32_t parameters = 2, gradients = 4, optimizer = 12;
  ComputeType compute = ComputeType::Bf16;
  bool operator==(const Precision&) const = default;
};

struct Plan {
  std::int32_t tensor_parallel = 1, pipeline_parallel = 1, context_parallel = 1;
  std::int32_t expert_parallel = 1, data_parallel = 1, expert_tensor_parallel = 1;
  bool sequence_parallel = false;
  std::int32_t zero_stage = 0;
  std::int32_t shard_group = 0;  // ZeRO shards over that many neighbouring replicas; 0: over all
  // ZeRO-3 keeps a second 16-bit copy of parameters in shards over that many neighbours, from which
  // backwards gather (hpZ of ZeRO++, arXiv 2306.10209); 0: none.
  std::int32_t secondary_shard_group = 0;
  std::int32_t quantized_gather = 16;  // bits of a value in ZeRO-3's gathers: 16 or 8
  DataParallelAlgorithm data_parallel_algorithm = DataParallelAlgorithm::AllReduce;
  std::string schedule = "none";  // canonical name of the registry, or "file:PATH"
  // The order that was taken for a planned schedule, a name of the registry. Empty: not
  // chosen (schedules/passes/planned/plan_order.h), or no planned schedule. Not a key of files.
  std::string order;
  // What a planned schedule is planned for, where somebody has priced it: F, I, W of every stage
  // and a transfer. Empty: estimates by FLOPs. Not a key of files.
  std::vector<StageTimes> planned_stages;
  Nanoseconds planned_transfer{0};
  // Whether its order places recomputations into bubbles, as ops of their own (key
  // recompute_in_advance; of a planned schedule, whether the order that was taken does).
  bool places_recompute = false;
  // The key said false: planned orders of a runtime that performs it are not tried with it.
  bool recomputes_in_place = false;
  std::int32_t virtual_stages = 1;         // chunks per position
  std::vector<std::int32_t> stage_layers;  // layers per chunk in model order, resolved
  // The chunk with the layers that predict further tokens, behind its other layers, and how many
  // they are; -1: the last chunk, as many as the model has.
  std::int32_t prediction_stage = -1, prediction_layers = 0;
  std::int32_t microbatch_group_size = 0;  // N, resolved for interleaved orders, else 0
  std::int32_t extra_warmup = 0, sequence_slices = 1;
  // `auto` may choose these, since the file leaves them out: orders of two chunks (neither
  // virtual_stages nor stage_layers given), orders of sliced sequences.
  bool chunks_open = false, slices_open = false;
  double memory_limit = 0;        // planned schedules; 0: their default
  std::int32_t micro_batch = 1;   // samples per micro-batch and replica
  bool micro_batch_auto = false;  // left to the caller: micro_batch is not yet chosen
  std::int64_t global_batch = 1;  // samples per step over all replicas
  std::int64_t sequence_length = 0;
  Recompute recompute;
  std::int32_t recompute_layers = 0;  // the first layers of every chunk alone; 0: all of them
  // Layers whose residual streams are made again together; 0: those of a chunk.
  std::int32_t recompute_stream_layers = 0;
  std::int32_t loss_chunks = 1;  // the head and its loss go over a micro-batch's tokens in pieces
  Precision precision;
  Optimizer optimizer = Optimizer::AdamW;
  double document_length = 0;  // mean, of documents packed into a sequence [tokens]; 0: whole ones
  std::int64_t document_maximum = 0;  // the longest of them [tokens]; 0: not said
  bool flash_attention = true;
  AttentionKernel attention_kernel = AttentionKernel::Flash2;
  double dropout = 0;  // of the residual; 0 where that is open
  // The plan's rate at every place, else the file's. -1, open: time takes 0, memory the profile's.
  DropoutRates dropouts{};
  std::int64_t padded_vocabulary = 0;  // V', resolved
  std::int64_t pad_vocabulary_to = 1;  // V' is a multiple of it times t
  Offload offload;
  OffloadTarget offload_to = OffloadTarget::Host;
  OffloadedActivations offload_activations = OffloadedActivations::All;
  std::vector<Axis> rank_order;  // fastest-varying first; expert lies within context and data
  bool overlap_gradient_reduce = false, overlap_parameter_gather = false;
  TensorOverlap overlap_tensor_parallel = TensorOverlap::Default;
  std::int32_t tensor_parallel_chunks = 4;  // pieces of a product and its collective, where Chunked
  ContextParallelAlgorithm context_parallel_algorithm = ContextParallelAlgorithm::Ring;
  // With AllToAllAndRing: how many neighbours exchange heads, inside of what goes round the ring;
  // else 0.
  std::int32_t head_exchange_group = 0;
  TensorGrid tensor_parallel_2d;
  ChimeraScaling chimera_scaling = ChimeraScaling::None;
  IndexerLoss indexer_loss = IndexerLoss::None;
  PairOverlap overlap_pair = PairOverlap::Full;
  ExpertDispatch expert_dispatch = ExpertDispatch::AllToAll;
  ExpertRouting expert_routing = ExpertRouting::Uniform;
  double expert_factor = 1;         // of ExpertRouting::Factor, >= 1
  MeasuredRouting expert_measured;  // of ExpertRouting::Measured
  bool fp8_dispatch = false;        // a forward's tokens travel to their experts in 8 bit
  // all_to_all by slots of as many rows for every pair of ranks: no host reads counts
  bool expert_slots = false;
  double expert_capacity = 0;  // most rows of a rank over the mean; more are dropped. 0: none are
  // Most copies that an expert takes from a rank over their mean; of more those with the least
  // weights are dropped. 0: none are. Not beside expert_capacity.
  double expert_drop = 0;
  // The routers' auxiliary loss (TrainOptions), for which backwards count. Not a key of files.
  RouterBalance router_balance = RouterBalance::None;
  ExpertOverlap overlap_expert_parallel = ExpertOverlap::None;
  bool overlap_pipeline = true;  // transfers between stages run beside compute
  TransferForm transfers = TransferForm::TimeSorted;
  bool transfers_open = true;  // the plan does not say: as overlap_pipeline and the runtime have it
  std::int64_t bucket_bytes = 0;  // 0: one bucket per position
  std::int32_t prefetch = 1;      // ZeRO-3: parts gathered ahead
  RuntimeTraits runtime;          // with what the plan's own keys say of it

  // Full recomputation computes every part again.
  bool recomputes(RecomputePart part) const { return recompute.has(part); }
  bool may_place_recompute() const {
    return recompute.any() && runtime.performer().places_recompute && !recomputes_in_place;
  }
  std::int32_t gpus() const {
    return tensor_parallel * pipeline_parallel * context_parallel * data_parallel;
  }
  std::int32_t microbatches() const {  // m
    return static_cast<std::int32_t>(global_batch /
                                     (static_cast<std::int64_t>(data_parallel) * micro_batch));
  }
  // Share of the pairs of a sequence's tokens that lie in one document: documents of exponential
  // lengths, cut at document_maximum and at the sequence's ends. 1: whole sequences.
  double attention_share() const;
  // l: of the exponential that, cut at document_maximum, has the mean document_length [tokens].
  double document_scale() const;
  std::int64_t microbatch_tokens() const {  // T = b s / cp of one rank's micro-batch
    return micro_batch * sequence_length / context_parallel;
  }
  // R: ranks among which heads are exchanged for tokens, of those that share a sequence; 1: none.
  std::int32_t exchanging_ranks() const {
    if (head_exchange_group > 0) return head_exchange_group;
    const bool all = context_parallel_algorithm == ContextParallelAlgorithm::AllToAll;
    return all ? context_parallel : 1;
  }
  // Ranks that compute with equal parameters.
  std::int32_t replicas() const { return data_parallel * context_parallel; }
  // The neighbours among them over whom ZeRO shards; the others hold the same shards.
  std::int32_t shards() const { return shard_group > 0 ? shard_group : replicas(); }

  // r: ranks of a position that hold the same experts, and sum their gradients. The experts' mesh
  // q x e x r lies on the same ranks as t x c x d (arXiv 2504.14960, "parallel folding").
  std::int32_t expert_replicas() const {
    return tensor_parallel * replicas() / (expert_parallel * expert_tensor_parallel);
  }
  // Groups of tokens in a micro-batch that an auxiliary loss of routers balances each for itself.
  std::int64_t balanced_groups() const {
    return router_balance == RouterBalance::Sequence ? micro_batch : 1;
  }
  // Whether experts lie otherwise than the dense matrices: then they have buckets of their own.
  bool folds_experts() const {
    return expert_parallel > 1 || expert_tensor_parallel != tensor_parallel;
  }

  // What ZeRO and the runtime make of a step: the rules of the lowering, of memory's replay and of
  // search's estimate, so that time and memory are those of one program.
  // Parameters lie in shards of units, which are gathered around their use.
  bool gathers_units() const { return zero_stage >= runtime.gather_units_from; }
  // The same as memory sees it: with one replica there is nothing to gather, but where the shard is
  // the master copy a unit is cast all the same.
  bool holds_shards() const {
    return gathers_units() && (shards() > 1 || runtime.shards_master_parameters);
  }
  // FSDP under a pipeline keeps parameters gathered and reduces once (torch: one gather per step).
  bool keeps_gathered() const { return runtime.gathers_once_in_pipeline && pipeline_parallel > 1; }
  // Whether a unit is dropped behind its forward and gathered again for its backward (ZeRO-3;
  // FSDP's reshard_after_forward).
  bool gathers_twice() const { return zero_stage == 3 && !keeps_gathered(); }
  bool gathers_each_microbatch() const {
    return gathers_units() && shards() > 1 && !keeps_gathered();
  }
  bool reduces_each_microbatch() const {
    return zero_stage >= 2 && shards() > 1 && !keeps_gathered();
  }
  bool has_parameter_server() const {
    return data_parallel_algorithm == DataParallelAlgorithm::ParameterServer && replicas() > 1;
  }
  // Optimizer state in host memory: it passes through the device, or the host updates.
  bool streams_state() const { return offload.optimizer && !runtime.performer().updates_on_host; }
  bool updates_on_host() const { return offload.optimizer && runtime.performer().updates_on_host; }
  // Whether a transfer goes as one part from every tensor-parallel rank: without sequence
  // parallelism each of them holds all of it.
  bool scatters_transfers() const {
    return runtime.transfer_scatter_gather && tensor_parallel > 1 && !sequence_parallel;
  }
  // Whether parameters come back from their owners tensor by tensor.
  bool updates_by_broadcast() const {
    return runtime.parameter_update == ParameterUpdate::Broadcast && zero_stage >= 1 &&
           !gathers_units();
  }
  // [B] of a gradient on its way to other replicas.
  std::int32_t gradient_wire_bytes() const {
    switch (runtime.gradient_communication) {
      case GradientCommunication::Bf16:
        return 2;
      case GradientCommunication::Fp32:
        return 4;
      case GradientCommunication::Stored:
        break;
    }
    return std::min(precision.gradients, 4);
  }
  // Whether the product of a weight gradient reads and writes the sum of the micro-batches.
  bool accumulates_in_product() const {
    return runtime.gradient_accumulation == GradientAccumulation::Fused ||
           (runtime.gradient_accumulation == GradientAccumulation::FusedFp32 &&
            precision.gradients == 4);
  }
  bool operator==(const Plan&) const = default;
};

// What a training run needs beyond the plan (scenario key `train`).
struct TrainOptions {
  std::string data = "synthetic";
  std::int64_t steps = 20;
  double learning_rate = 3e-4, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  bool weight_decay_matrices_only = false;
  double clip_norm = 1.0;
  std::int64_t warmup_steps = 0, checkpoint_every = 0;
  std::string lr_decay = "constant";
  double min_learning_rate = 0;
  std::int64_t seed = 1;
  // Coefficients of the losses of routers (schedules/body/own/body_experts.h); 0: none.
  double router_auxiliary_loss = 0, router_z_loss = 0;
  // What the first balances, in Megatron-LM's words: "aux_loss", the tokens of a micro-batch, or
  // "seq_aux_loss", those of each sequence (DeepSeek-V3, arXiv 2412.19437, eq. 17-20).
  std::string router_load_balancing = "aux_loss";
  // By how much an expert's correction bias moves in a step (Experts::correction_bias); 0: not.
  double router_bias_rate = 0;
  double loss_scale = 0;  // by which a loss in fp16 is multiplied; 0: dynamic
};

}  // namespace rehearse
