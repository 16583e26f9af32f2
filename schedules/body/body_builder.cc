// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body_builder.h"

#include <algorithm>

#include "schedules/body/arena.h"
#include "schedules/body/sizes.h"

namespace rehearse {
namespace {

// Tensors of one slab at fixed offsets, in the order in which they were declared.
std::int64_t pack(std::vector<BodyTensor>& tensors, TensorHome home) {
  std::int64_t bytes = 0;
  for (BodyTensor& tensor : tensors) {
    if (tensor.home != home || tensor.slice >= 0) continue;
    tensor.offset = bytes;
    bytes += aligned(tensor.bytes);
  }
  return bytes;
}

bool uses(const std::vector<std::int16_t>& list, std::int16_t tensor) {
  return std::ranges::find(list, tensor) != list.end();
}

// What an R makes for the backward behind it lies in slabs: for W what a node of the weight half
// reads, for I the rest. REQUIRES: the nodes of both halves and of recomputation.
void hand_over_remade(Body& body) {
  for (std::size_t i = 0; i < body.tensors.size(); ++i) {
    TensorHome& home = body.tensors[i].home;
    if (home != TensorHome::Workspace && home != TensorHome::LeftForWgrad) continue;
    bool remade = false, for_input = false, for_weight = false;
    for (const Node& node : body.nodes) {
      const auto tensor = static_cast<std::int16_t>(i);
      remade |= node.phase == NodePhase::Recompute && uses(node.writes, tensor);
      for_input |= node.phase == NodePhase::Main && uses(node.reads, tensor);
      for_weight |= node.phase == NodePhase::Weight && uses(node.reads, tensor);
    }
    if (!remade || !(for_input || for_weight)) continue;
    home = for_weight ? TensorHome::RemadeForWgrad : TensorHome::RemadeForDgrad;
  }
}

// How far the cursor may run while each collective that others run beside is under way.
void find_ends(std::vector<Node>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Node& sent = nodes[i];
    if (sent.until < 0) continue;
    const auto waits = [&](const Node& node) {
      const auto any = [](const std::vector<std::int16_t>& list, const auto& of) {
        return std::ranges::any_of(list, of);
      };
      const bool other_rows = node.pieces > 1 && sent.pieces > 1 && node.piece != sent.piece;
      if (other_rows && collective_kind(node.kind()) == OpKind::Forward) return false;
      return collective_kind(node.kind()) != OpKind::Forward ||
             any(sent.writes,
                 [&](std::int16_t t) { return uses(node.reads, t) || uses(node.writes, t); }) ||
             any(sent.reads, [&](std::int16_t t) { return uses(node.writes, t); });
    };
    std::size_t end = i + 1;
    while (end < nodes.size() && !waits(nodes[end])) ++end;
    sent.until = static_cast<std::int32_t>(end);
  }
}

// The workspace of a body: one arena over its nodes, by the code that plans the rank's arena.
std::int64_t plan_workspace(Body& body) {
  std::vector<ArenaBlock> blocks;
  std::vector<std::size_t> owner;
  for (std::size_t i = 0; i < body.tensors.size(); ++i) {
    if (body.tensors[i].home != TensorHome::Workspace) continue;
    std::int32_t first = -1, last = -1;
    for (std::size_t n = 0; n < body.nodes.size(); ++n) {
      const Node& node = body.nodes[n];
      const auto tensor = static_cast<std::int16_t>(i);
      if (!uses(node.reads, tensor) && !uses(node.writes, tensor)) continue;
      if (first < 0) first = static_cast<std::int32_t>(n);
      // What a collective under way touches is not given to the nodes beside it.
      last = std::max({last, static_cast<std::int32_t>(n), node.until - 1});
    }
    if (first < 0) continue;  // belongs to the other half of a split backward
    blocks.push_back({body.tensors[i].bytes, first, last});
    owner.push_back(i);
  }
  const ArenaPlan plan = plan_arena(blocks);
  for (std::size_t b = 0; b < owner.size(); ++b) body.tensors[owner[b]].offset = plan.offset[b];
  return plan.bytes;
}

}  // namespace

double Body::flops() const {
  double sum = 0;
  for (const Node& node : nodes) sum += node.flops;
  return sum;
}

BodyBuilder::BodyBuilder(SegmentKind segment, Direction direction, bool apart) : apart_(apart) {
  body_.segment = segment;
  body_.direction = direction;
}

BodyBuilder::T BodyBuilder::tensor(std::string_view name, TensorHome home, std::int64_t bytes) {
  body_.tensors.push_back({name, home, bytes});
  return static_cast<T>(body_.tensors.size() - 1);
}

BodyBuilder::T BodyBuilder::earlier(std::string_view name, T own, std::int32_t slice,
                                    std::int64_t bytes) {
  const T made = tensor(name, body_.tensors[static_cast<std::size_t>(own)].home, bytes);
  body_.tensors.back().slice = slice;
  earlier_.emplace_back(made, own);
  return made;
}

Node& BodyBuilder::node(Kernel kernel, std::string_view name, std::initializer_list<T> reads,
                        std::initializer_list<T> writes, NodePhase phase) {
  Node node{.kernel = kernel, .phase = phase, .name = name};
  const auto add = [&](std::initializer_list<T> list, std::vector<std::int16_t>& to) {
    for (const T tensor : list) {
      if (tensor == kNone) continue;
      to.push_back(tensor);
      node.bytes += body_.tensors[static_cast<std::size_t>(tensor)].bytes;
    }
  };
  add(reads, node.reads);
  add(writes, node.writes);
  body_.nodes.push_back(std::move(node));
  return body_.nodes.back();
}

Node& BodyBuilder::gemm(Kernel kernel, ParameterRole weight, std::string_view name, std::int64_t m,
                        std::int64_t n, std::int64_t k, std::initializer_list<T> reads,
                        std::initializer_list<T> writes, NodePhase phase) {
  Node& added = node(kernel, name, reads, writes, phase);
  added.parameter = weight;
  added.m = m;
  added.n = n;
  added.k = k;
  added.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return added;
}

Node& BodyBuilder::collective(Kernel kernel, std::string_view name, std::int64_t bytes, T in, T out,
                              NodePhase phase) {
  Node& added = node(kernel, name, {in}, {out}, phase);
  added.bytes = bytes;
  added.axis = Axis::Tensor;
  return added;
}

Body BodyBuilder::finish() {
  const bool again = body_.direction == Direction::Recompute;
  if (again || apart_) {
    hand_over_remade(body_);
    std::erase_if(body_.nodes,
                  [&](const Node& n) { return (n.phase == NodePhase::Recompute) != again; });
  }
  if (again) {
    body_.reads_parameters = std::ranges::any_of(
        body_.nodes, [](const Node& n) { return n.parameter != ParameterRole::None; });
  }
  if (body_.direction == Direction::InputGradient || body_.direction == Direction::WeightGradient) {
    const bool weight = body_.direction == Direction::WeightGradient;
    std::erase_if(body_.nodes,
                  [&](const Node& n) { return (n.phase == NodePhase::Weight) != weight; });
    body_.reads_parameters = body_.reads_parameters && !weight;
  }
  // Gradients of weights are summed in fp32 over micro-batches: read and written.
  for (Node& node : body_.nodes) {
    if (node.role() == GemmRole::WeightGradient) node.bytes += 2 * 4 * node.m * node.n * node.batch;
  }
  find_ends(body_.nodes);
  body_.saved_for_dgrad = pack(body_.tensors, TensorHome::SavedForDgrad);
  body_.saved_for_wgrad = pack(body_.tensors, TensorHome::SavedForWgrad);
  body_.left_for_wgrad = pack(body_.tensors, TensorHome::LeftForWgrad);
  body_.remade_for_dgrad = pack(body_.tensors, TensorHome::RemadeForDgrad);
  body_.remade_for_wgrad = pack(body_.tensors, TensorHome::RemadeForWgrad);
  body_.key_value_gradient = pack(body_.tensors, TensorHome::KeyValueGradient);
  for (const auto& [tensor, own] : earlier_) {
    body_.tensors[static_cast<std::size_t>(tensor)].offset =
        body_.tensors[static_cast<std::size_t>(own)].offset;
  }
  body_.workspace = plan_workspace(body_);
  if (body_.segment == SegmentKind::Embedding && reads_kept(body_.direction)) {
    body_.reads_parameters = false;
  }
  return std::move(body_);
}

}  // namespace rehearse
