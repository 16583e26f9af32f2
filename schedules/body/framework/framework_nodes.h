// SPDX-License-Identifier: Apache-2.0
// Assembles the node list of a framework body: one call per kernel, with its counts.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "schedules/body/body.h"
#include "schedules/body/head_share.h"
#include "schedules/body/kind_plan.h"
#include "schedules/body/sizes.h"
#include "schedules/model/layer_mix.h"

namespace rehearse {

// How the runtime places a tensor-parallel collective.
enum class Hiding : std::uint8_t {
  Exposed,  // the stream waits for it
  Plain,    // beside the two products of the same linear layer (Megatron's backward)
};

// Who writes the input of a product: kernels that may write it in 8 bit, or another.
enum class WrittenBy : std::uint8_t { Other, Norm, Activation };

class FrameworkNodes {
 public:
  explicit FrameworkNodes(const Layout& layout, std::optional<Reach> reach = {}, bool turns = true)
      : model(layout.model),
        plan(layout.plan),
        s(layout.shape),
        share(head_share(layout)),
        kind_numbers(kind_plan(layout)),
        pairs(reach ? attention_pairs(*reach, plan.sequence_length)
                    : attention_pairs(model, plan.sequence_length)),
        rotates(turns) {}

  const Transformer& model;
  const Plan& plan;
  RankShape s;
  HeadShare share;
  KindPlan kind_numbers;
  double pairs;  // of a query and a key, in one sample
  bool rotates;  // the layer's queries and keys, where the model's do

  std::int64_t local_elements() const { return s.local * s.hidden; }  // e
  std::int64_t array_bytes() const { return s.element * s.tokens * s.hidden; }

  // What is added from here on belongs to this part of the layer.
  void begin(GraphPart part) { part_ = part; }
  Node& add(Kernel kernel, std::string_view name, std::int64_t bytes,
            NodePhase phase = NodePhase::Main, std::int32_t launches = 1);
  // C[m,n] += A[m,k] B[k,n]. `layer`: in 8 bit with its casts where the plan says fp8.
  Node& gemm(Kernel kernel, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
             NodePhase phase = NodePhase::Main, std::int64_t batch = 1, bool layer = true,
             WrittenBy input = WrittenBy::Other);
  // The kernel that adds a weight gradient to the sum of the micro-batches before, where there is
  // one: it reads 2 B, reads and writes the sum.
  void accumulate(std::int64_t elements);
  void norm(std::string_view name, NodePhase phase = NodePhase::Main);
  void norm_backward(std::string_view name, std::int32_t launches);
  // The same of arrays of `elements`.
  void norm_of(std::string_view name, std::int64_t elements, NodePhase phase);
  void norm_of_backward(std::string_view name, std::int64_t elements, std::int32_t launches);
  // The MLP's activation; `elements` of its output.
  Node& activation(std::int64_t elements, NodePhase phase);
  Node& activation_backward(std::int64_t elements);
  // Memory-bound operations run op by op; a compiler would make one kernel of them.
  bool eager(bool EagerKernels::*operation) const {
    return plan.runtime.eager_kernels.*operation && !plan.runtime.compiled;
  }
  // A collective over the tensor-parallel axis; nothing where t = 1.
  void collective(Kernel kernel, std::string_view name, std::int64_t bytes, Hiding hiding,
                  NodePhase phase = NodePhase::Main, std::int32_t launches = 3);
  // Sum of a row-parallel product over tp.
  void reduce_output(Hiding hiding, NodePhase phase = NodePhase::Main, std::int32_t launches = 3);
  // The whole sequence for a column-parallel product; nothing without sequence parallelism.
  // `gather_again`: the same for the backward, where the forward's was not kept.
  void gather_input(Hiding hiding, NodePhase phase = NodePhase::Main, std::int32_t launches = 3);

  void gather_again(std::int32_t launches = 3);

  std::vector<Node> take() { return std::move(nodes_); }

 private:
  std::int64_t cast_bytes(GemmRole role, std::int64_t m, std::int64_t n, std::int64_t k,
                          WrittenBy input) const;
  std::int64_t tensor_bytes(bool eight_bit) const;
  void copy_sequence(std::int64_t bytes, NodePhase phase);
  std::vector<Node> nodes_;
  GraphPart part_ = GraphPart::None;
};

// What lies between the second norm and the second residual sum of a layer with experts, in two
// parts (the second begins behind the activation); and their backward, both halves.
void experts_front(FrameworkNodes& nodes, NodePhase phase);
void experts_back(FrameworkNodes& nodes, NodePhase phase);
void experts_backward(FrameworkNodes& nodes);
// The nodes of a forward that a backward may run again alone: the routed experts' activation; the
// shared experts.
void experts_activation(FrameworkNodes& nodes, NodePhase phase);
void shared_experts(FrameworkNodes& nodes, NodePhase phase);
// Kinds that files describe: of a layer in attention's place or beside it, behind the norm and
// before the residual sum; of the embedding behind the table; of the head before its norm.
void kinds_forward(FrameworkNodes& nodes, const std::vector<BoundKind>& kinds, NodePhase phase);
void kinds_backward(FrameworkNodes& nodes, const std::vector<BoundKind>& kinds);
// The norms that RecomputePart::DeltaNormOut makes again.
void delta_norm_again(FrameworkNodes& nodes);
// What RecomputePart::LatentUp widens again.
void latent_up_again(FrameworkNodes& nodes);
// What blocks read of the streams, and the streams between them (RecomputePart::ResidualStreams).
void streams_again(FrameworkNodes& nodes);
// Nodes of a transformer layer. Backward: recomputation, then both halves (NodePhase).
std::vector<Node> framework_layer_forward(FrameworkNodes nodes, bool experts);
std::vector<Node> framework_layer_backward(FrameworkNodes nodes, bool experts);

}  // namespace rehearse
