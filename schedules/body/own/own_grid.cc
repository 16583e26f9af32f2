// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_grid.h"

#include <algorithm>
#include <initializer_list>

#include "schedules/model/parts.h"

namespace rehearse::own {
namespace {

using H = TensorHome;
using K = Kernel;
using P = ParameterRole;

constexpr std::int64_t kFp32 = 4;

bool has_bias(const Transformer& model, P role) {
  const auto is_bias = [&](const ModelPart& part) { return part.bias && part.role == role; };
  return std::ranges::any_of(layer_parts(model, 0), is_bias) ||
         std::ranges::any_of(head_parts(model), is_bias);
}

// Along an axis of the grid: how many ranks, and how many panels each of them has.
struct Along {
  Axis axis{};
  std::int64_t ranks = 1, each = 1;
};
Along along_row(const Context& c) {
  return {Axis::TensorRow, c.s.grid.columns, c.s.grid.panels() / c.s.grid.columns};
}
Along along_column(const Context& c) {
  return {Axis::TensorColumn, c.s.grid.rows, c.s.grid.panels() / c.s.grid.rows};
}

// The node is about panel `number`: who has it along the axis, and which of its panels it is.
void about(Node& node, const Along& along, std::int64_t number) {
  node.axis = along.axis;
  node.owner = static_cast<std::int16_t>(number / along.each);
  node.panel = static_cast<std::int16_t>(number % along.each);
}

// Columns of an array that the ranks of a row share: the panel, at all of them.
T send_columns(BodyBuilder& b, const Context& c, const GridColumns& from, std::int64_t number,
               NodePhase phase) {
  const Along along = along_row(c);
  const std::int64_t bytes = c.s.element * c.s.tokens * from.width;
  const T panel = b.tensor("panel of columns", H::Workspace, bytes);
  const bool whole = from.stride == from.width;  // the rank's own array is one panel
  if (!whole || along.ranks == 1) {
    Node& take = b.node(K::TakePanel, "take panel", {from.array}, {panel}, phase);
    about(take, along, number);
    take.m = c.s.tokens;
    take.n = from.width;
    take.k = from.stride;
    take.bytes = 2 * bytes;
  }
  if (along.ranks == 1) return panel;
  about(b.collective(K::BroadcastPanel, "broadcast along the row", bytes,
                     whole ? from.array : panel, panel, phase),
        along, number);
  return panel;
}

// A panel of a parameter that the ranks of a column share, at all of them.
T send_parameter(BodyBuilder& b, const Context& c, P role, std::int64_t elements,
                 std::int64_t number, NodePhase phase) {
  const Along along = along_column(c);
  const std::int64_t bytes = c.s.element * elements;
  const T panel = b.tensor("panel of a parameter", H::Workspace, bytes);
  if (along.ranks > 1) {
    Node& sent =
        b.collective(K::BroadcastPanel, "broadcast along the column", bytes, kNone, panel, phase);
    about(sent, along, number);
    sent.parameter = role;
    sent.n = elements;
    return panel;
  }
  Node& take = b.node(K::TakePanel, "take panel", {}, {panel}, phase);
  about(take, along, number);
  take.parameter = role;
  take.m = 1;
  take.n = take.k = elements;
  take.bytes = 2 * bytes;
  return panel;
}

// Sums of a row's ranks to who has the panel, among its columns.
void sum_columns(BodyBuilder& b, const Context& c, T partial, const GridColumns& to,
                 std::int64_t number, NodePhase phase) {
  const Along along = along_row(c);
  const std::int64_t bytes = c.s.element * c.s.tokens * to.width;
  if (along.ranks > 1) {
    about(b.collective(K::ReducePanel, "reduce along the row", bytes, partial, partial, phase),
          along, number);
  }
  Node& store = b.node(K::StorePanel, "store panel", {partial}, {to.array}, phase);
  about(store, along, number);
  store.m = c.s.tokens;
  store.n = to.width;
  store.k = to.stride;
  store.bytes = 2 * bytes;
}

// Likewise of a column's ranks (fp32), to the gradient of the parameter.
void sum_parameter(BodyBuilder& b, const Context& c, P role, T partial, std::int64_t elements,
                   std::int64_t number, NodePhase phase) {
  const Along along = along_column(c);
  if (along.ranks > 1) {
    Node& sum = b.collective(K::ReducePanel, "reduce along the column", kFp32 * elements, partial,
                             partial, phase);
    about(sum, along, number);
    sum.fp32 = true;
  }
  Node& add = b.node(K::AddShard, "add panel to the gradient", {partial}, {}, phase);
  about(add, along, number);
  add.parameter = role;
  add.n = elements;
  add.bytes = 3 * kFp32 * elements;
}

// A product of one panel, (tokens, k) -> (tokens, n), which adds to what those before it gave.
struct PanelProduct {
  K kernel{};
  P role{};
  std::string_view name;
  std::int64_t n = 0, k = 0;
  std::initializer_list<T> reads;
};
void add_product(BodyBuilder& b, const Context& c, const PanelProduct& product, T out, bool first,
                 NodePhase phase) {
  const std::int64_t bytes = c.s.element * c.s.tokens * product.n;
  const T part = first ? out : b.tensor("part of a sum", H::Workspace, bytes);
  b.gemm(product.kernel, product.role, product.name, c.s.tokens, product.n, product.k,
         product.reads, {part}, phase);
  if (first) return;
  Node& add = b.node(K::AddPanel, "add to the panels before", {out, part}, {out}, phase);
  add.m = c.s.tokens;
  add.n = product.n;
  add.bytes = 3 * bytes;
}

// The vocabulary in panels, as `logits` has a rank's.
GridColumns columns_of(const Context& c, T logits) {
  return {logits, c.s.logit_columns, c.s.logits * c.s.grid.columns / c.s.grid.panels()};
}

}  // namespace

void grid_product(BodyBuilder& b, const Context& c, const Product& product, T x, NodePhase phase) {
  const std::int64_t panels = c.s.grid.panels(), width = product.k * c.s.grid.columns / panels;
  const T bias = has_bias(c.model, product.weight)
                     ? gather_vector(b, c, product.weight, true, product.n, phase)
                     : kNone;
  for (std::int64_t l = 0; l < panels; ++l) {
    const T columns = send_columns(b, c, {x, product.k, width}, l, phase);
    const T weight = send_parameter(b, c, product.weight, product.n * width, l, phase);
    add_product(b, c,
                {K::PanelLinear,
                 product.weight,
                 product.name,
                 product.n,
                 width,
                 {columns, weight, l == 0 ? bias : kNone}},
                product.out, l == 0, phase);
  }
}

void grid_input_gradient(BodyBuilder& b, const Context& c, const Product& product, T dy,
                         NodePhase phase) {
  const std::int64_t panels = c.s.grid.panels(), width = product.n * c.s.grid.columns / panels;
  for (std::int64_t l = 0; l < panels; ++l) {
    const T weight = send_parameter(b, c, product.weight, product.k * width, l, phase);
    const T partial =
        b.tensor("gradient of a panel", H::Workspace, c.s.element * c.s.tokens * width);
    add_product(b, c, {K::PanelInput, product.weight, product.name, width, product.k, {dy, weight}},
                partial, true, phase);
    sum_columns(b, c, partial, {product.out, product.n, width}, l, phase);
  }
}

void grid_weight_gradient(BodyBuilder& b, const Context& c, P role, std::string_view name,
                          std::int64_t in, std::int64_t out, T dy, T x) {
  const NodePhase late = NodePhase::Weight;
  const std::int64_t panels = c.s.grid.panels(), width = in * c.s.grid.columns / panels;
  for (std::int64_t l = 0; l < panels; ++l) {
    const T columns = send_columns(b, c, {x, in, width}, l, late);
    const T partial = b.tensor("gradient of a panel", H::Workspace, kFp32 * out * width);
    b.gemm(K::PanelWeight, role, name, width, out, c.s.tokens, {dy, columns}, {partial}, late);
    sum_parameter(b, c, role, partial, out * width, l, late);
  }
  if (!has_bias(c.model, role)) return;
  const T sums = b.tensor("sums of columns", H::Workspace, kFp32 * out);
  Node& add = b.node(K::ColumnSums, "bias gradient", {dy}, {sums}, late);
  add.m = c.s.tokens;
  add.n = out;
  scatter_vector(b, c, role, true, out, sums, late);
}

void grid_logits(BodyBuilder& b, const Context& c, P table, T x, T logits) {
  const GridColumns to = columns_of(c, logits);
  const NodePhase phase = NodePhase::Main;
  for (std::int64_t l = 0; l < c.s.grid.panels(); ++l) {
    const T rows = send_parameter(b, c, table, to.width * c.s.hidden, l, phase);
    const T partial =
        b.tensor("logits of a panel", H::Workspace, c.s.element * c.s.tokens * to.width);
    add_product(b, c, {K::PanelLinear, table, "gemm logits", to.width, c.s.hidden, {x, rows}},
                partial, true, phase);
    sum_columns(b, c, partial, to, l, phase);
  }
}

void grid_logits_input(BodyBuilder& b, const Context& c, P table, T logits, T dx) {
  const GridColumns from = columns_of(c, logits);
  const NodePhase phase = NodePhase::Main;
  for (std::int64_t l = 0; l < c.s.grid.panels(); ++l) {
    const T columns = send_columns(b, c, from, l, phase);
    const T rows = send_parameter(b, c, table, from.width * c.s.hidden, l, phase);
    add_product(b, c,
                {K::PanelInput, table, "gemm d_input", c.s.hidden, from.width, {columns, rows}}, dx,
                l == 0, phase);
  }
}

void grid_logits_weight(BodyBuilder& b, const Context& c, P table, T logits, T x) {
  const GridColumns from = columns_of(c, logits);
  const NodePhase phase = NodePhase::Main;
  for (std::int64_t l = 0; l < c.s.grid.panels(); ++l) {
    const T columns = send_columns(b, c, from, l, phase);
    const T partial =
        b.tensor("gradient of a panel", H::Workspace, kFp32 * from.width * c.s.hidden);
    b.gemm(K::PanelWeight, table, "gemm d_table", c.s.hidden, from.width, c.s.tokens, {columns, x},
           {partial}, phase);
    sum_parameter(b, c, table, partial, from.width * c.s.hidden, l, phase);
  }
}

void grid_norm(BodyBuilder& b, const Context& c, P norm, std::string_view name, T x, T y,
               T statistics, NodePhase phase) {
  const std::int64_t h = c.s.hidden;
  b.node(K::RowMoments, "sums of values and squares", {x}, {statistics}, phase);
  if (c.s.grid.columns > 1) {
    Node& sum = b.collective(K::AllReduce, "all_reduce along the row", c.statistics, statistics,
                             statistics, phase);
    sum.axis = Axis::TensorRow;
    sum.fp32 = true;
  }
  const T weight = gather_vector(b, c, norm, false, h, phase);
  const T bias = has_bias(c.model, norm) ? gather_vector(b, c, norm, true, h, phase) : kNone;
  b.node(K::SharedNorm, name, {x, weight, bias}, {y, statistics}, phase);
}

void grid_norm_backward(BodyBuilder& b, const Context& c, P norm, std::string_view name, T dy, T x,
                        T statistics, T residual, T dx, NodePhase phase) {
  const std::int64_t h = c.s.hidden;
  const bool biased = has_bias(c.model, norm);
  const T weight = gather_vector(b, c, norm, false, h, phase);
  const T sums = b.tensor("sums of gradients", H::Workspace, c.statistics);
  b.node(K::RowProducts, "sums of gradients", {dy, x, statistics, weight}, {sums}, phase);
  if (c.s.grid.columns > 1) {
    Node& sum =
        b.collective(K::AllReduce, "all_reduce along the row", c.statistics, sums, sums, phase);
    sum.axis = Axis::TensorRow;
    sum.fp32 = true;
  }
  const T d_weight = b.tensor("gradient of the weight", H::Workspace, kFp32 * h);
  const T d_bias = biased ? b.tensor("gradient of the bias", H::Workspace, kFp32 * h) : kNone;
  Node& node = b.node(K::SharedNormBackward, name, {dy, x, statistics, sums, weight, residual},
                      {dx, d_weight, d_bias}, phase);
  node.of_bias = biased;
  scatter_vector(b, c, norm, false, h, d_weight, phase);
  if (biased) scatter_vector(b, c, norm, true, h, d_bias, phase);
}

T gather_vector(BodyBuilder& b, const Context& c, P role, bool bias, std::int64_t elements,
                NodePhase phase) {
  const std::int64_t bytes = c.s.element * elements;
  const T whole = b.tensor("vector", H::Workspace, bytes);
  if (c.s.grid.rows > 1) {
    Node& gather =
        b.collective(K::GatherVector, "all_gather along the column", bytes, kNone, whole, phase);
    gather.axis = Axis::TensorColumn;
    gather.parameter = role;
    gather.of_bias = bias;
    return whole;
  }
  Node& take = b.node(K::TakePanel, "take vector", {}, {whole}, phase);
  take.axis = Axis::TensorColumn;
  take.parameter = role;
  take.of_bias = bias;
  take.m = 1;
  take.n = take.k = elements;
  take.bytes = 2 * bytes;
  return whole;
}

void scatter_vector(BodyBuilder& b, const Context& c, P role, bool bias, std::int64_t elements,
                    T sums, NodePhase phase) {
  const std::int64_t rows = c.s.grid.rows, own = elements / rows;
  T part = sums;
  if (rows > 1) {
    part = b.tensor("own part", H::Workspace, kFp32 * own);
    Node& scatter = b.collective(K::ReduceScatter, "reduce_scatter along the column",
                                 kFp32 * elements, sums, part, phase);
    scatter.axis = Axis::TensorColumn;
    scatter.fp32 = true;
  }
  Node& add = b.node(K::AddShard, "add to the gradient", {part}, {}, phase);
  add.parameter = role;
  add.of_bias = bias;
  add.n = own;
  add.bytes = 3 * kFp32 * own;
}

}  // namespace rehearse::own
