// SPDX-License-Identifier: Apache-2.0
// Kernels: what a node of a body runs. One row of traits each; a kernel without a row does not
// compile, nor does one without a row of the executor (exec/body/node_rows.inc).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "schedules/model/parameter_role.h"

namespace rehearse {

// What a node costs by.
enum class NodeKind : std::uint8_t {
  Gemm,       // C[m,n] += A[m,k] B[k,n], `batch` times
  Attention,  // fused (flash) core, forward; flops and bytes given, causal already counted
  AttentionBackward,
  Norm,
  NormBackward,
  Activation,
  ActivationBackward,  // GELU, SwiGLU
  Elementwise,         // residual adds, casts, transpositions, bias sums
  Dropout,
  Rope,
  Softmax,  // unfused attention, both directions
  Embedding,
  EmbeddingBackward,
  CrossEntropy,  // row maxima, sums, loss and gradient of logits
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,     // of a grid of tensor parallel ranks: a panel to the others of a row or column
  Reduce,        // and sums of one, to who has it
  RingExchange,  // context parallel: K/V block to the next rank while attention runs
  Permute,       // rows in another order, to experts and back
  Dispatch,      // rows to the ranks of their experts: an all-to-all by what the router says
  Combine,       // and back
  Scan,          // of a state over the sequence, chunk by chunk
  Convolution,   // of a few tokens, each column for itself
};
enum class GemmRole : std::uint8_t { None, Forward, InputGradient, WeightGradient };

enum class Kernel : std::uint8_t {
  // Products; which parameter is theirs says the node's ParameterRole.
  Product,  // of two activations: unfused attention
  Linear,   // y = x w^T (+ bias where the product is column-parallel)
  LinearInput,
  LinearWeight,   // adds the bias's gradient too
  GroupedLinear,  // the same of several experts at once, each with rows of its own
  GroupedLinearInput,
  GroupedLinearWeight,
  Logits,  // of a chunk of the loss
  LogitsInput,
  LogitsWeight,  // ends the chunk
  // Attention and what brings q, k, v where they are read.
  Attention,
  AttentionBackward,
  Rope,
  RopeBackward,
  SplitLatent,  // compressed keys and values, and the rotary key, out of one product
  JoinLatent,   // their gradients
  JoinHeads,    // latent attention: qkv out of what is widened and the rotary key
  SplitHeads,   // its gradients
  PackKeys,     // k, v out of qkv into a block that goes round the ring
  PackHeads,    // a rank's rows of q, k, v or of o, by the ranks that get their heads
  JoinTokens,   // what came of the own heads, in the order of the sequence
  SplitTokens,  // and back: by the ranks whose tokens they are
  UnpackHeads,  // what came of the own tokens, in its columns; shared key heads summed
  StoreOutput,  // fp32 sums of the parts into o
  AddKeyGradients,
  StoreGradients,  // fp32 dq, dk, dv into dqkv
  SpreadHeads,     // dk, dv of this rank's heads among zeros for all heads
  TakeHeads,
  QueryKeyNorm,  // of q and k inside qkv; keeps them as they were
  QueryKeyNormBackward,
  Scores,  // softmax of unfused attention
  // Memory-bound.
  Norm,
  NormBackward,  // with the residual's gradient, where it reads one
  Gelu,          // by tanh, with its product
  GeluBackward,
  Swiglu,
  SwigluBackward,
  Activation,  // of other kinds, plain
  ActivationBackward,
  GatedActivation,  // and gated
  GatedActivationBackward,
  Dropout,
  DropoutBackward,
  AddResidual,  // and the bias of the row-parallel product before; of two gradients
  Copy,
  AddPositions,
  Elementwise,  // casts, copies and sums of frameworks
  Route,        // scores of the experts, the chosen ones, their counts
  RouteBackward,
  CountChosen,    // by a router, of every expert
  Permute,        // copies of tokens to the order of their experts, and sums back
  DropCopies,     // beyond an expert's capacity
  SortCopies,     // of tokens: which row is whose, by expert
  SortRows,       // that came from several ranks: which row is whose, by expert
  SortVisits,     // of tokens: which row is whose, by the ranks that have experts of it
  GatherRows,     // in the order of an index
  ScatterRows,    // back
  GatherWeights,  // the router's, or their gradients, likewise
  WeighCopies,    // a token's copies, each times the router's weight, summed
  WeighBackward,  // gradients of the copies and of the weights
  SumCopies,      // a token's copies summed
  SpreadCopies,   // a token's copies, each times the router's weight
  SpreadWeights,  // and the weights' gradients behind them
  AddOutputs,     // what two branches give, or the gradients of what both read
  Gate,           // rows times the sigmoid of a number each
  GateBackward,
  // The model's ends.
  Lookup,
  PositionGradient,
  SortTokens,
  TableGradient,
  RowMaxima,
  RowSums,  // and the targets' logits
  Loss,     // and the gradient of the logits
  // Collectives; of the statistics of the loss each rank first makes its own.
  AllReduce,
  AllGather,
  ReduceScatter,
  RingKeys,
  RingKeyGradients,
  MaximaOverRanks,
  SumsOverRanks,
  QueryKeySumsOverRanks,  // of norms over all heads' columns
  QueryKeySumsOverRanksBackward,
  AllToAll,
  Dispatch,
  Combine,
  DispatchWeights,  // the router's, beside the tokens
  CombineWeights,   // their gradients back
  // On a grid of tensor parallel ranks (own_grid.h).
  TakePanel,    // of columns, out of rows that are longer: who has it
  StorePanel,   // back
  PanelLinear,  // products of one panel
  PanelInput,
  PanelWeight,
  AddPanel,  // what one panel adds to what the ones before gave
  AddShard,  // fp32 sums to the gradient of a parameter, or of a panel of it: who has it
  ColumnSums,
  PositionSums,
  RowMoments,   // of a norm over columns that a row of the grid shares: sums of values and squares
  RowProducts,  // of its gradient
  SharedNorm,
  SharedNormBackward,
  BroadcastPanel,
  ReducePanel,
  GatherVector,  // a parameter that a column of the grid shares
  // Kernels of layer kinds (schedules/model/kinds), which frameworks alone have.
  Scan,
  Convolution,
};
inline constexpr std::size_t kKernels = static_cast<std::size_t>(Kernel::Convolution) + 1;

// The pass that a GPU makes of a node and the one before it (docs/cuda.md).
enum class FusedWith : std::uint8_t {
  Nothing,
  Sum,              // a norm that follows the residual sum which it reads
  Product,          // GELU, in its product
  ProductBackward,  // its gradient, in the product's
  Maxima,           // one pass over the logits for both statistics
  Statistics,       // the second pass
};

struct KernelTraits {
  Kernel kernel{};
  NodeKind kind{};
  GemmRole role = GemmRole::None;
  FusedWith fused = FusedWith::Nothing;
  // Whose curve in a calibration (memory_bound[].op) it is timed by; empty: no kernel of its own.
  std::string_view measured = {};
};

inline constexpr std::array<KernelTraits, kKernels> kKernelTraits = [] {
  using K = Kernel;
  using N = NodeKind;
  using R = GemmRole;
  using F = FusedWith;
  return std::array<KernelTraits, kKernels>{{
      {K::Product, N::Gemm},
      {K::Linear, N::Gemm, R::Forward},
      {K::LinearInput, N::Gemm, R::InputGradient},
      {K::LinearWeight, N::Gemm, R::WeightGradient},
      {K::GroupedLinear, N::Gemm, R::Forward},
      {K::GroupedLinearInput, N::Gemm, R::InputGradient},
      {K::GroupedLinearWeight, N::Gemm, R::WeightGradient},
      {K::Logits, N::Gemm, R::Forward},
      {K::LogitsInput, N::Gemm, R::InputGradient},
      {K::LogitsWeight, N::Gemm, R::WeightGradient},
      {K::Attention, N::Attention},
      {K::AttentionBackward, N::AttentionBackward},
      {K::Rope, N::Rope, R::None, F::Nothing, "rope"},
      {K::RopeBackward, N::Rope, R::None, F::Nothing, "rope"},
      {K::SplitLatent, N::Elementwise, R::None, F::Nothing, "add"},
      {K::JoinLatent, N::Elementwise, R::None, F::Nothing, "add"},
      {K::JoinHeads, N::Elementwise, R::None, F::Nothing, "add"},
      {K::SplitHeads, N::Elementwise, R::None, F::Nothing, "add"},
      {K::PackKeys, N::Elementwise, R::None, F::Nothing, "add"},
      {K::PackHeads, N::Elementwise, R::None, F::Nothing, "add"},
      {K::JoinTokens, N::Elementwise, R::None, F::Nothing, "add"},
      {K::SplitTokens, N::Elementwise, R::None, F::Nothing, "add"},
      {K::UnpackHeads, N::Elementwise, R::None, F::Nothing, "add"},
      {K::StoreOutput, N::Elementwise, R::None, F::Nothing, "add"},
      {K::AddKeyGradients, N::Elementwise, R::None, F::Nothing, "add"},
      {K::StoreGradients, N::Elementwise, R::None, F::Nothing, "add"},
      {K::SpreadHeads, N::Elementwise, R::None, F::Nothing, "add"},
      {K::TakeHeads, N::Elementwise, R::None, F::Nothing, "add"},
      {K::QueryKeyNorm, N::Norm, R::None, F::Nothing, "norm"},
      {K::QueryKeyNormBackward, N::NormBackward, R::None, F::Nothing, "norm"},
      {K::Scores, N::Softmax, R::None, F::Nothing, "softmax"},
      {K::Norm, N::Norm, R::None, F::Sum, "norm"},
      {K::NormBackward, N::NormBackward, R::None, F::Nothing, "norm"},
      {K::Gelu, N::Activation, R::None, F::Product, "activation"},
      {K::GeluBackward, N::ActivationBackward, R::None, F::ProductBackward, "activation"},
      {K::Swiglu, N::Activation, R::None, F::Nothing, "swiglu"},
      {K::SwigluBackward, N::ActivationBackward, R::None, F::Nothing, "swiglu"},
      {K::Activation, N::Activation, R::None, F::Nothing, "activation"},
      {K::ActivationBackward, N::ActivationBackward, R::None, F::Nothing, "activation"},
      {K::GatedActivation, N::Activation, R::None, F::Nothing, "swiglu"},
      {K::GatedActivationBackward, N::ActivationBackward, R::None, F::Nothing, "swiglu"},
      {K::Dropout, N::Dropout, R::None, F::Nothing, "dropout"},
      {K::DropoutBackward, N::Dropout, R::None, F::Nothing, "dropout"},
      {K::AddResidual, N::Elementwise, R::None, F::Nothing, "add"},
      {K::Copy, N::Elementwise, R::None, F::Nothing, "add"},
      {K::AddPositions, N::Elementwise, R::None, F::Nothing, "position"},
      {K::Elementwise, N::Elementwise, R::None, F::Nothing, "add"},
      {K::Route, N::Elementwise, R::None, F::Nothing, "add"},
      {K::RouteBackward, N::Elementwise, R::None, F::Nothing, "add"},
      {K::CountChosen, N::Elementwise, R::None, F::Nothing, "add"},
      {K::Permute, N::Permute, R::None, F::Nothing, "add"},
      {K::DropCopies, N::Elementwise, R::None, F::Nothing, "add"},
      {K::SortCopies, N::Elementwise, R::None, F::Nothing, "add"},
      {K::SortRows, N::Elementwise, R::None, F::Nothing, "add"},
      {K::SortVisits, N::Elementwise, R::None, F::Nothing, "add"},
      {K::GatherRows, N::Permute, R::None, F::Nothing, "add"},
      {K::ScatterRows, N::Permute, R::None, F::Nothing, "add"},
      {K::GatherWeights, N::Elementwise, R::None, F::Nothing, "add"},
      {K::WeighCopies, N::Permute, R::None, F::Nothing, "add"},
      {K::WeighBackward, N::Permute, R::None, F::Nothing, "add"},
      {K::SumCopies, N::Permute, R::None, F::Nothing, "add"},
      {K::SpreadCopies, N::Permute, R::None, F::Nothing, "add"},
      {K::SpreadWeights, N::Permute, R::None, F::Nothing, "add"},
      {K::AddOutputs, N::Elementwise, R::None, F::Nothing, "add"},
      {K::Gate, N::Elementwise, R::None, F::Nothing, "add"},
      {K::GateBackward, N::Elementwise, R::None, F::Nothing, "add"},
      {K::Lookup, N::Embedding, R::None, F::Nothing, "embedding"},
      {K::PositionGradient, N::EmbeddingBackward, R::None, F::Nothing, "position"},
      {K::SortTokens, N::Elementwise},  // with the sums into the table
      {K::TableGradient, N::EmbeddingBackward, R::None, F::Nothing, "embedding"},
      {K::RowMaxima, N::CrossEntropy, R::None, F::Nothing, "row_maxima"},
      {K::RowSums, N::CrossEntropy, R::None, F::Maxima, "row_sums"},
      {K::Loss, N::CrossEntropy, R::None, F::Statistics, "cross_entropy"},
      {K::AllReduce, N::AllReduce},
      {K::AllGather, N::AllGather},
      {K::ReduceScatter, N::ReduceScatter},
      {K::RingKeys, N::RingExchange},
      {K::RingKeyGradients, N::RingExchange},
      {K::MaximaOverRanks, N::AllReduce, R::None, F::Nothing, "row_maxima"},
      {K::SumsOverRanks, N::AllReduce, R::None, F::Nothing, "row_sums"},
      {K::QueryKeySumsOverRanks, N::AllReduce, R::None, F::Nothing, "norm"},
      {K::QueryKeySumsOverRanksBackward, N::AllReduce, R::None, F::Nothing, "norm"},
      {K::AllToAll, N::AllToAll},
      {K::Dispatch, N::Dispatch},
      {K::Combine, N::Combine},
      {K::DispatchWeights, N::AllToAll},
      {K::CombineWeights, N::AllToAll},
      {K::TakePanel, N::Elementwise, R::None, F::Nothing, "add"},
      {K::StorePanel, N::Elementwise, R::None, F::Nothing, "add"},
      {K::PanelLinear, N::Gemm, R::Forward},
      {K::PanelInput, N::Gemm, R::InputGradient},
      {K::PanelWeight, N::Gemm, R::WeightGradient},
      {K::AddPanel, N::Elementwise, R::None, F::Nothing, "add"},
      {K::AddShard, N::Elementwise, R::None, F::Nothing, "add"},
      {K::ColumnSums, N::Elementwise, R::None, F::Nothing, "add"},
      {K::PositionSums, N::EmbeddingBackward, R::None, F::Nothing, "position"},
      {K::RowMoments, N::Elementwise, R::None, F::Nothing, "add"},
      {K::RowProducts, N::Elementwise, R::None, F::Nothing, "add"},
      {K::SharedNorm, N::Norm, R::None, F::Nothing, "norm"},
      {K::SharedNormBackward, N::NormBackward, R::None, F::Nothing, "norm"},
      {K::BroadcastPanel, N::Broadcast},
      {K::ReducePanel, N::Reduce},
      {K::GatherVector, N::AllGather},
      {K::Scan, N::Scan},
      {K::Convolution, N::Convolution},
  }};
}();
constexpr const KernelTraits& traits_of(Kernel kernel) {
  return kKernelTraits[static_cast<std::size_t>(kernel)];
}
static_assert(
    [] {
      for (std::size_t k = 0; k < kKernels; ++k) {
        if (kKernelTraits[k].kernel != static_cast<Kernel>(k)) return false;
      }
      return true;
    }(),
    "a row for every kernel, in their order");

constexpr bool is_grouped(Kernel kernel) {
  return kernel >= Kernel::GroupedLinear && kernel <= Kernel::GroupedLinearWeight;
}

inline constexpr std::size_t kParameterRoles =
    static_cast<std::size_t>(ParameterRole::SharedGate) + 1;

}  // namespace rehearse
