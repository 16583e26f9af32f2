// SPDX-License-Identifier: Apache-2.0
// Products, with the biases and the GELU that the backends fuse into them.
#include "exec/body/body_state.h"

#include <algorithm>
#include <string_view>

namespace rehearse::exec {

void OpCursor::State::gemm(const Node& n) {
  const Roles& p = roles();
  const std::string_view name = n.name;
  if (name == "gemm logits") {
    device.logits(lane, n.m, n.n, n.k, element(r(n, 0), chunk * n.k), parameter(p.table),
                  floats(w(n)));
  } else if (n.role == GemmRole::Forward) {
    const bool qkv = name.starts_with("gemm qkv"), up = name.starts_with("gemm fc1");
    const int role = qkv ? p.qkv : up ? p.up : name == "gemm proj" ? p.projection : p.down;
    // The bias of a row-parallel product is added after the sum over tp.
    const int bias = qkv ? p.qkv_bias : up ? p.up_bias : -1;
    if (up && !gated()) {  // with the GELU that is the next node
      const Node& activation = body->nodes[node++];
      return device.linear_gelu(lane, n.m, n.n, n.k, r(n, 0), parameter(role), parameter(bias),
                                w(n), w(activation));
    }
    device.linear(lane, n.m, n.n, n.k, r(n, 0), parameter(role), parameter(bias), w(n));
  } else if (name == "gemm d_fc2 input" && !gated()) {  // with the GELU's gradient: in place
    const auto follows = [](const Node& next) { return next.kind == NodeKind::ActivationBackward; };
    const auto activation = std::find_if(body->nodes.begin() + static_cast<std::ptrdiff_t>(node),
                                         body->nodes.end(), follows);
    device.linear_input_gelu(lane, n.m, n.k, n.n, r(n, 0), parameter(p.down), r(*activation, 1),
                             w(n));
  } else if (n.role == GemmRole::InputGradient) {
    const int role = name == "gemm d_fc2 input"    ? p.down
                     : name == "gemm d_fc1 input"  ? p.up
                     : name == "gemm d_proj input" ? p.projection
                     : name == "gemm d_qkv input"  ? p.qkv
                                                   : p.table;
    std::byte* to = name == "gemm d_input" ? element(w(n), chunk * n.n) : w(n);
    device.linear_input(lane, n.m, n.k, n.n, r(n, 0), parameter(role), to);
  } else if (name == "gemm d_table") {  // ends the chunk
    device.linear_weight(lane, n.k, n.n, n.m, r(n, 0), element(r(n, 1), chunk * n.m),
                         gradient(p.table));
    chunk += n.k;
  } else if (name.starts_with("gemm d_fc2") || name.starts_with("gemm d_proj")) {
    // y = x w^T is row-parallel: reads (gathered dy, x, own dy).
    const bool down = name.starts_with("gemm d_fc2");
    device.linear_weight(lane, n.k, n.n, n.m, r(n, 0), r(n, 1),
                         gradient(down ? p.down : p.projection));
    const int bias = down ? p.down_bias : p.projection_bias;
    if (bias >= 0) device.add_column_sums(lane, shared.shape.local, n.n, r(n, 2), gradient(bias));
  } else {  // column-parallel: (dy, gathered x)
    const bool up = name.starts_with("gemm d_fc1");
    device.linear_weight(lane, n.k, n.n, n.m, r(n, 0), r(n, 1), gradient(up ? p.up : p.qkv));
    const int bias = up ? p.up_bias : p.qkv_bias;
    if (bias >= 0) device.add_column_sums(lane, n.k, n.n, r(n, 0), gradient(bias));
  }
}

}  // namespace rehearse::exec
