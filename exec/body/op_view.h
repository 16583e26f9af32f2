// SPDX-License-Identifier: Apache-2.0
// Private to exec/body: what the ops of a run share, and one op as the functions of its nodes see
// it.
//
// A node of a body is performed by a function of its kernel's row (node_rows.inc). It finds in the
// view where the arrays lie, and calls the kernel. Only the walk (op_cursor.cc) moves a view on.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/body/body_runner.h"
#include "schedules/body/own/body_experts.h"
#include "schedules/body/sizes.h"

namespace rehearse::exec {

// By role: the index of its weight and of its bias in the parameter lists of a segment; -1: the
// model has none.
using RoleIndex = std::array<int, kParameterRoles>;
struct Roles {
  Roles() {
    weight.fill(-1);
    bias.fill(-1);
  }
  RoleIndex weight{}, bias{};
};

struct BodyRunner::Shared {
  Layout layout;
  const Transformer& model;  // of the layout
  const Plan& plan;
  RankShape shape;
  AttentionShape attention;      // of the rank's own tokens
  AttentionShape core;           // with which it attends: of other sizes where heads are exchanged
  std::array<Rotary, 2> rotary;  // of layers without a window, with one
  std::int64_t activation = 0;   // aligned bytes of (local, hidden)
  ExpertRoom room;
  ExpertLimits limits;
  // by slice of the sequence, and body_kind
  std::vector<std::array<std::array<Body, kDirections>, kBodyKinds>> bodies;
  std::array<Roles, kNumSegmentShapes> roles;

  std::size_t shape_of(const SegmentInfo& segment) const {
    return static_cast<std::size_t>(segment_shape(model, segment));
  }
  // `apart`: of a micro-batch that has an R.
  const Body& body(const SegmentInfo& segment, Direction direction, std::int32_t slice,
                   bool apart) const {
    const std::size_t kind = body_kind(layout, segment, apart && reads_kept(direction));
    return bodies[static_cast<std::size_t>(std::max(slice, 0))][kind]
                 [static_cast<std::size_t>(direction)];
  }
  // Has the body a collective?
  bool meets(const SegmentInfo& segment, const ComputeOp& op) const {
    const Body& of = body(segment, direction_of(op.kind), op.slice, op.apart);
    return std::ranges::any_of(
        of.nodes, [](const Node& node) { return collective_kind(node.kind()) != OpKind::Forward; });
  }
};

// What a node leaves to those behind it in its op.
struct Carry {
  std::size_t next = 0;    // the node of the segment that comes next
  std::int64_t chunk = 0;  // head: tokens of the loss's chunks that are done
  SumNorm sum;             // whose norm is the next node; rows 0: there is none
  bool gelu = false;       // the product before it has done the next one
  std::string failure;     // why the op cannot go on; empty: it can
};

// One op on one rank, at one of its segments. Functions of nodes see it const: what it refers to
// changes, where that lies does not.
struct OpView {
  const BodyRunner::Shared& shared;
  Device& device;
  Kernels& kernels;
  Lane lane;
  std::int32_t coordinate;  // of the rank, on tp
  std::int32_t context;     // on cp
  Folded folded;            // among the experts
  Carry& carry;
  StepFacts facts;
  const ComputeOp* compute = nullptr;
  // The segment at hand: its place among the op's, its body, and where the body's tensors lie.
  std::size_t segment = 0;
  const Body* body = nullptr;
  std::vector<std::byte*> tensors;

  const SegmentInfo& info() const { return compute->segments[segment]; }
  // Counted over the model; the ends of the model count as the first.
  std::int64_t layer() const { return std::max(info().layer, 0); }
  // The first of this rank's key heads, of which it has one, where ranks share them.
  std::int64_t key_head() const { return coordinate / shared.layout.key_value_replicas(); }
  // Where the rank is on a grid of tensor parallel ranks.
  std::int32_t grid_row() const { return coordinate / grid_columns(); }
  std::int32_t grid_column() const { return coordinate % grid_columns(); }
  std::int32_t grid_columns() const { return std::max(shared.shape.grid.columns, 1); }
  // The body of the op's k-th segment.
  const Body& body_of(std::size_t k, Direction direction) const {
    return shared.body(compute->segments[k], direction, compute->slice, compute->apart);
  }

  // ---- arrays -----------------------------------------------------------------------------------
  const BodyTensor& tensor(std::int16_t i) const {
    return body->tensors[static_cast<std::size_t>(i)];
  }
  // What the node reads, and writes.
  std::byte* in(const Node& n, std::size_t i) const {
    return tensors[static_cast<std::size_t>(n.reads[i])];
  }
  std::byte* out(const Node& n, std::size_t i = 0) const {
    return tensors[static_cast<std::size_t>(n.writes[i])];
  }
  // Element `count` of an array of the compute type.
  std::byte* element(std::byte* array, std::int64_t count) const {
    return array + count * shared.shape.element;
  }
  // (local, width) that the node reads, hidden wide; of a row-parallel product summed over tp in
  // place, its own tokens.
  std::byte* own(const Node& n, std::size_t i) const { return own(n, i, shared.shape.hidden); }
  std::byte* own(const Node& n, std::size_t i, std::int64_t width) const {
    const std::int64_t local = shared.shape.local * width;
    const bool whole = tensor(n.reads[i]).bytes > local * shared.shape.element;
    return whole ? element(in(n, i), coordinate * local) : in(n, i);
  }

  // ---- parameters of the segment, and their gradients; null: it has none ------------------------
  const std::byte* parameter(const Node& n) const { return parameter(n.parameter); }
  const std::byte* parameter(ParameterRole role) const {
    return entry(compute->at.parameter, roles().weight, role);
  }
  const std::byte* bias(const Node& n) const {
    return entry(compute->at.parameter, roles().bias, n.parameter);
  }
  float* gradient(const Node& n) const { return gradient(n.parameter); }
  float* gradient(ParameterRole role) const {
    return entry(compute->at.gradient, roles().weight, role);
  }
  float* bias_gradient(const Node& n) const {
    return entry(compute->at.gradient, roles().bias, n.parameter);
  }
  const Roles& roles() const { return shared.roles[shared.shape_of(info())]; }
  // What the role has in this segment, of lists by segment.
  template <class T>
  T* entry(const std::vector<std::vector<T*>>& lists, const RoleIndex& index,
           ParameterRole role) const {
    if (role == ParameterRole::None) return nullptr;
    const int k = index[static_cast<std::size_t>(role)];
    return k < 0 ? nullptr : lists[segment][static_cast<std::size_t>(k)];
  }
};

inline float* floats(std::byte* data) {
  return reinterpret_cast<float*>(data);
}
inline std::int32_t* ints(std::byte* data) {
  return reinterpret_cast<std::int32_t*>(data);
}

// Moves the view to a segment of its op (addresses.cc).
void enter(OpView& op, std::size_t segment);

}  // namespace rehearse::exec
