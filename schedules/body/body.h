// SPDX-License-Identifier: Apache-2.0
// L2: what is inside a compute op: the nodes of a segment kind and direction, as one template.
//
// A body is built once per distinct shape and shared by all ops that run it; an op over several
// segments runs their bodies in order. Bodies differ by runtime: `rehearse` is what our executor
// runs (tensors, slabs and workspace to the byte), `megatron` and `fsdp` are what those frameworks
// launch (dropout kernels, unfused attention, unfused loss). Nodes hold counts, never times.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/body/kernel.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"

namespace rehearse {

// Recompute: what backwards compute again, apart from them.
enum class Direction : std::uint8_t {
  Forward,
  Backward,
  InputGradient,
  WeightGradient,
  Recompute,
};
inline constexpr std::size_t kDirections = 5;
// Reads what a forward has kept, or what was computed again: B, I, W.
constexpr bool reads_kept(Direction direction) {
  return direction != Direction::Forward && direction != Direction::Recompute;
}

enum class NodePhase : std::uint8_t {
  Main,       // F, or the I half of a backward
  Weight,     // the W half
  Recompute,  // a forward node run again, inside the backward or in an R
};

// Segments with different insides.
enum class SegmentShape : std::uint8_t {
  Embedding,
  DenseLayer,
  ExpertLayer,
  Head,
  PredictionLayer,
};
inline constexpr std::size_t kNumSegmentShapes = 5;

constexpr SegmentKind kind_of(SegmentShape shape) {
  return shape == SegmentShape::Embedding ? SegmentKind::Embedding
         : shape == SegmentShape::Head    ? SegmentKind::Head
                                          : SegmentKind::Layer;
}

// The direction of a compute op's kind.
constexpr Direction direction_of(OpKind kind) {
  switch (kind) {
    case OpKind::Backward:
      return Direction::Backward;
    case OpKind::InputGradient:
      return Direction::InputGradient;
    case OpKind::WeightGradient:
      return Direction::WeightGradient;
    case OpKind::Recompute:
      return Direction::Recompute;
    default:
      return Direction::Forward;
  }
}
// The op that a node amounts to; RingExchange: Send; Forward: no collective.
constexpr OpKind collective_kind(NodeKind kind) {
  switch (kind) {
    case NodeKind::AllReduce:
      return OpKind::AllReduce;
    case NodeKind::AllGather:
      return OpKind::AllGather;
    case NodeKind::ReduceScatter:
      return OpKind::ReduceScatter;
    case NodeKind::AllToAll:
    case NodeKind::Dispatch:
    case NodeKind::Combine:
      return OpKind::AllToAll;
    case NodeKind::Broadcast:
      return OpKind::Broadcast;
    case NodeKind::Reduce:
      return OpKind::Reduce;
    case NodeKind::RingExchange:
      return OpKind::Send;
    default:
      return OpKind::Forward;
  }
}

// A part of a layer whose kernels may be captured as a graph (plan key cuda_graphs).
enum class GraphPart : std::uint8_t { None, Attention, Router, Preprocess, Mlp };

struct Node {
  Kernel kernel{};
  ParameterRole parameter = ParameterRole::None;  // its weight, and the bias that goes with it
  NodePhase phase = NodePhase::Main;
  Axis axis = Axis::Tensor;      // collectives: over which axis of the mesh
  bool fp8 = false;              // Gemm: operands in 8 bit where precision.compute is fp8
  bool overlapped = false;       // collective that the runtime hides behind its neighbours
  bool routed = false;           // on rows that the router sends here: the busiest rank has more
  bool fp32 = false;             // collective on fp32 numbers, whatever the compute type
  bool orders_sequence = false;  // a copy beside a whole collective: none where it goes in pieces
  GraphPart part = GraphPart::None;
  // Gemm, [elements]; n: also of a row of the loss; k: also of key heads in rows whose heads are
  // exchanged
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  double flops = 0;           // Gemm, Attention: multiply-adds x 2 that really run
  std::int64_t bytes = 0;     // HBM traffic; collectives: payload, the whole array
  std::int64_t parallel = 0;  // Attention: independent tiles of 128 query rows (wave factor)
  // Attention in parts, one per block of keys: the last tensor that it reads.
  std::int32_t step = -1;   // steps that they came round the ring; -1: no parts
  std::int32_t slice = -1;  // the earlier slice whose keys they are; -1: the own
  bool first = false;       // of the parts
  // Collective of our executor: the nodes before this one may run while it is under way; -1: none.
  std::int32_t until = -1;
  std::int64_t serial = 0;  // Scan: steps that follow one another, each with its own delay
  double rate = 1;          // and the share of the architecture's rate of scans that it reaches
  // Which of so many pieces it is: of a product its rows, of a collective a part of every shard.
  std::int16_t piece = 0, pieces = 1;
  // On a grid of tensor parallel ranks: along `axis`, the place of who has a panel; and which of
  // its panels it is.
  std::int16_t owner = 0, panel = 0;
  bool of_bias = false;           // the parameter is the bias of its role
  std::int32_t launches = 1;      // kernels the host issues
  float run_by = 1;               // the share of layers that run it, where it stands for their mean
  std::int32_t expert_calls = 0;  // beside them: its calls for one expert, or part of a list, each
  bool drains = false;  // the host waits for the device before it goes on: what follows begins idle
  std::string_view name;                    // for people, static: "gemm qkv + bias"
  std::vector<std::int16_t> reads, writes;  // indices into Body::tensors (rehearse runtime)

  double issued() const { return static_cast<double>(run_by) * launches; }  // in the mean
  NodeKind kind() const { return traits_of(kernel).kind; }
  GemmRole role() const { return traits_of(kernel).role; }
};

enum class TensorHome : std::uint8_t {
  Input,
  Output,
  OutputGradient,
  InputGradient,
  SavedForDgrad,
  SavedForWgrad,
  LeftForWgrad,
  RemadeForDgrad,
  RemadeForWgrad,
  Workspace,
  Parameter,
  Gradient,
  Tokens,
  Loss,
  KeyValueGradient,  // of a sliced sequence: dK, dV, to which later slices add
};
struct BodyTensor {
  std::string_view name;
  TensorHome home{};
  std::int64_t bytes = 0;
  std::int64_t offset = -1;  // inside its slab or workspace, multiples of 256
  std::int32_t slice = -1;   // in the slab of an earlier slice, where the op's own lies in its own
};

struct Body {
  SegmentKind segment{};
  Direction direction{};
  std::vector<Node> nodes;
  std::vector<BodyTensor> tensors;
  // Slabs [B].
  std::int64_t saved_for_dgrad = 0, saved_for_wgrad = 0, left_for_wgrad = 0;
  std::int64_t remade_for_dgrad = 0, remade_for_wgrad = 0;  // what an R makes again
  std::int64_t key_value_gradient = 0;
  std::int64_t workspace = 0;  // [B]
  // false: an embedding's backward, every W, an R of attention alone (gathers nothing)
  bool reads_parameters = true;
  double flops() const;  // of all Gemm and Attention nodes
};

// Shape of a body: equal shapes give equal bodies.
struct BodyShape {
  SegmentKind segment{};
  bool experts = false;  // a layer with experts
  Direction direction{};
  std::int32_t slice = -1;  // of the sequence; -1: the mean of all slices, as one block of keys
  bool prediction = false;  // a layer that predicts a further token
  std::optional<Reach> reach{};  // of the layer; none: the mean over the layers
  bool rotates = true;           // its queries and keys; false: where other layers' do, not its
  std::int32_t variant = -1;     // of a mixed model's layers; -1: the model itself
  bool keeps = false;  // what its forward makes, where the plan computes other layers again
  bool apart = false;  // a backward whose micro-batch has an R of its own
  auto operator<=>(const BodyShape&) const = default;
};
// A segment of the model. Prediction layers are segments behind its last layer: the i-th is
// layer L + i, alike to the last one.
// `apart`: the op's micro-batch has an R (schedules/ir/placed_recompute.h).
BodyShape body_shape(const Layout& layout, const SegmentInfo& segment, Direction direction,
                     std::int32_t slice = -1, bool apart = false);
SegmentShape segment_shape(const Transformer& model, const SegmentInfo& segment);
// Bodies of our executor by number: of every shape, computed again or not; behind them those of
// layers that keep what others compute again; and those of backwards that an R has gone before.
inline constexpr std::size_t kBodyKinds = 3 * kNumSegmentShapes;
std::size_t body_kind(const Layout& layout, const SegmentInfo& segment, bool apart = false);
// The shape of that number; none: the plan has no such body, or frameworks alone have it.
std::optional<BodyShape> shape_of_kind(const Layout& layout, std::size_t kind, Direction direction,
                                       std::int32_t slice);
// Segments that are alike have one class: their shape, or behind the shapes one for each variant of
// a mixed model's layers. Layers that do not rotate are not told apart.
std::size_t segment_class(const Transformer& model, const SegmentInfo& segment);
std::size_t segment_classes(const Transformer& model);
// A segment of the class; none: the model has no such segment.
std::optional<SegmentInfo> segment_of_class(const Transformer& model, std::size_t index);
// The first layer of every class that has any, and how many it has; of those that are computed
// again and those that are not, where the plan has both.
std::vector<std::pair<SegmentInfo, std::int64_t>> layers_by_class(const Layout& layout);
// Where plan.recompute_layers leaves out layers: the plan as those have it, nothing computed again.
Plan plan_of_kept_layers(const Plan& plan);
// False: a layer whose queries and keys do not rotate, in a model where those of others do.
bool rotates(const Transformer& model, const SegmentInfo& segment);

// The body that `plan.runtime` runs; body.cc dispatches on it (body_rehearse.cc,
// body_framework.cc).
Body make_body(const Layout& layout, const BodyShape& shape);

}  // namespace rehearse
