// SPDX-License-Identifier: Apache-2.0
// Causal attention and its gradient as cuDNN's graphs, in the patterns that its fused engines know
// (NVIDIA/cudnn-frontend, node/scaled_dot_product_flash_attention.h, softmax.h and
// diagonal_band_mask.h of commit 3929da2, their forms before cuDNN 9.21, which later ones take).
//
// A query sees keys up to its own, and where the form has a window, only its last ones. Arrays lie
// as our kernels have them: q, k and v of a token in one row, o in rows of all heads, lse (heads,
// tokens).
#pragma once

#include "exec/cuda/calls/kernels.h"
#include "exec/cuda/cudnn/graph.h"

namespace rehearse::exec::cuda::cudnn {

// Where in a graph the arrays and numbers are.
struct AttentionTensors {
  Graph::Tensor q{}, k{}, v{}, o{}, lse{};
  Graph::Tensor scale{}, hidden{}, window{};                 // hidden: minus infinity
  Graph::Tensor d_o{}, delta{}, d_q{}, d_k{}, d_v{}, one{};  // of the gradient
};

AttentionTensors forward_graph(Graph& graph, Type type, const AttentionShape& shape);
// dQ is summed in one order where cuDNN has an engine for that: no array of fp32 between.
AttentionTensors backward_graph(Graph& graph, Type type, const AttentionShape& shape);

}  // namespace rehearse::exec::cuda::cudnn
