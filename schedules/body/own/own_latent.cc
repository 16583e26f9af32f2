// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_latent.h"

#include "schedules/model/parts.h"

namespace rehearse::own {
namespace {

using H = TensorHome;
using K = Kernel;
using P = ParameterRole;

constexpr NodePhase kLate = NodePhase::Weight;

// The widths of one layer, and its nodes in forms that occur twice: for queries, and for keys and
// values.
class Latent {
 public:
  Latent(BodyBuilder& builder, const Context& context)
      : b(builder),
        c(context),
        s(context.s),
        m(context.model.latent),
        parts(layer_parts(context.model, 0)),
        pairs(s.heads * (m.qk_nope_head_dim + m.v_head_dim)),
        queries(s.heads * s.head_dim),
        down(part(P::KeyValueDown).out),
        kv(part(P::KeyValueUp).in) {}

  bool compresses_queries() const { return m.q_lora_rank > 0; }
  bool rotates() const { return m.qk_rope_head_dim > 0; }
  T workspace(std::string_view name, std::int64_t elements) {
    return b.tensor(name, H::Workspace, s.element * elements);
  }
  // Read by the weights' gradients of a split backward too.
  T kept(std::string_view name, std::int64_t elements) {
    return b.tensor(name, c.split ? H::LeftForWgrad : H::Workspace, s.element * elements);
  }

  void norm(std::string_view name, P weight, T raw, T normed, T statistics, NodePhase phase) {
    b.node(K::Norm, name, {raw}, {normed, statistics}, phase).parameter = weight;
  }
  // (local, width) -> (tokens, width)
  T gather(T local, std::int64_t width, std::string_view name, NodePhase phase) {
    if (!s.gather) return local;
    const T whole = workspace(name, s.tokens * width);
    b.collective(K::AllGather, "all_gather tp", s.element * s.tokens * width, local, whole, phase);
    return whole;
  }
  // Every rank has the gradient of its own heads' part: (tokens, width) -> (local, width).
  T sum(T partial, std::int64_t width, std::string_view name) {
    if (s.tensor == 1) return partial;
    const std::int64_t bytes = s.element * s.tokens * width;
    if (!s.gather) {
      b.collective(K::AllReduce, "all_reduce tp", bytes, partial, partial);
      return partial;
    }
    const T own = workspace(name, s.local * width);
    b.collective(K::ReduceScatter, "reduce_scatter tp", bytes, partial, own);
    return own;
  }
  // The gradients of a product up, `out` columns of `x`(local, width): of its weight, and of x.
  T up_backward(P weight, std::string_view input_name, std::string_view weight_name, T d_out,
                std::int64_t out, T x, std::int64_t width) {
    const T whole = workspace("d compressed, partial", s.tokens * width);
    b.gemm(K::LinearInput, weight, input_name, s.tokens, width, out, {d_out}, {whole});
    const T all = gather(x, width, "compressed", kLate);
    b.gemm(K::LinearWeight, weight, weight_name, width, out, s.tokens, {d_out, all}, {}, kLate);
    return sum(whole, width, "d compressed");
  }
  // The gradients of a product down to `width` columns: of its weight, and of the hidden state.
  T down_backward(P weight, std::string_view input_name, std::string_view weight_name, T d_down,
                  std::int64_t width, T y1) {
    const T dy1 = workspace("dy1", s.local * s.hidden);
    b.gemm(K::LinearInput, weight, input_name, s.local, s.hidden, width, {d_down}, {dy1});
    b.gemm(K::LinearWeight, weight, weight_name, s.hidden, width, s.local, {d_down, y1}, {}, kLate);
    return dy1;
  }

  const ModelPart& part(P role) const { return *find_part(parts, role); }

  BodyBuilder& b;
  const Context& c;
  const RankShape& s;
  const LatentAttention& m;
  std::vector<ModelPart> parts;  // of the layer
  // Columns: of keys and values widened, of queries, of what kv down gives, of its norm.
  std::int64_t pairs, queries, down, kv;
};

}  // namespace

LatentTensors latent_tensors(BodyBuilder& b, const Context& c, TensorHome for_input,
                             TensorHome for_weight) {
  const Latent of(b, c);
  const std::int64_t rows = c.s.element * c.s.local;
  LatentTensors t;
  if (of.compresses_queries()) {
    t.q_raw = b.tensor("compressed q before its norm", for_input, rows * of.m.q_lora_rank);
    t.st_q = b.tensor("st_cq", for_input, 4 * c.s.local);
    t.q = b.tensor("compressed q", for_weight, rows * of.m.q_lora_rank);
  }
  t.kv_raw = b.tensor("compressed kv before its norm", for_input, rows * of.kv);
  t.st_kv = b.tensor("st_ckv", for_input, 4 * c.s.local);
  t.kv = b.tensor("compressed kv", for_weight, rows * of.kv);
  return t;
}

void latent_forward(BodyBuilder& b, const Context& c, const LatentTensors& t, T y1, T qkv,
                    NodePhase phase) {
  Latent of(b, c);
  const RankShape& s = c.s;
  const LatentAttention& m = of.m;
  if (of.compresses_queries()) {
    b.gemm(K::Linear, P::QueryDown, "gemm q down", s.local, m.q_lora_rank, s.hidden, {y1},
           {t.q_raw}, phase);
    of.norm("norm of compressed q", P::QueryDownNorm, t.q_raw, t.q, t.st_q, phase);
  }
  const T down = of.workspace("kv down", s.local * of.down);
  const T rotary = of.workspace("rotary key", s.local * m.qk_rope_head_dim);
  b.gemm(K::Linear, P::KeyValueDown, "gemm kv down", s.local, of.down, s.hidden, {y1}, {down},
         phase);
  b.node(K::SplitLatent, "split compressed kv, rotary key", {down}, {t.kv_raw, rotary}, phase);
  of.norm("norm of compressed kv", P::KeyValueDownNorm, t.kv_raw, t.kv, t.st_kv, phase);
  if (phase == NodePhase::Recompute && c.plan.sequence_slices > 1) return;

  const T q = of.workspace("q", s.tokens * of.queries);
  if (of.compresses_queries()) {
    const T all = of.gather(t.q, m.q_lora_rank, "compressed q of all", phase);
    b.gemm(K::Linear, P::QueryUp, "gemm q up", s.tokens, of.queries, m.q_lora_rank, {all}, {q},
           phase);
  } else {
    const T all = of.gather(y1, s.hidden, "Y1", phase);
    b.gemm(K::Linear, P::Query, "gemm q", s.tokens, of.queries, s.hidden, {all}, {q}, phase);
  }
  const T kv = of.workspace("kv up", s.tokens * of.pairs);
  const T all = of.gather(t.kv, of.kv, "compressed kv of all", phase);
  b.gemm(K::Linear, P::KeyValueUp, "gemm kv up", s.tokens, of.pairs, of.kv, {all}, {kv}, phase);
  const T key =
      of.rotates() ? of.gather(rotary, m.qk_rope_head_dim, "rotary key of all", phase) : rotary;
  b.node(K::JoinHeads, "join q, k, v", {q, kv, key}, {qkv}, phase);
  if (of.rotates()) b.node(K::Rope, "rope", {qkv}, {qkv}, phase);
}

T latent_backward(BodyBuilder& b, const Context& c, const LatentTensors& t, T y1, T dqkv) {
  Latent of(b, c);
  const RankShape& s = c.s;
  const LatentAttention& m = of.m;
  if (of.rotates()) b.node(K::RopeBackward, "rope backward", {dqkv}, {dqkv});
  const T dq = of.kept("dq", s.tokens * of.queries), dkv = of.kept("dkv", s.tokens * of.pairs);
  T d_rotary = of.workspace("d rotary key, partial", s.tokens * m.qk_rope_head_dim);
  b.node(K::SplitHeads, "split dq, dk, dv", {dqkv}, {dq, dkv, d_rotary});
  if (of.rotates()) d_rotary = of.sum(d_rotary, m.qk_rope_head_dim, "d rotary key");

  const T d_compressed = of.up_backward(P::KeyValueUp, "gemm d_kv up input", "gemm d_kv up weight",
                                        dkv, of.pairs, t.kv, of.kv);
  const T d_raw = of.workspace("d compressed kv", s.local * of.kv);
  b.node(K::NormBackward, "norm of compressed kv backward", {d_compressed, t.kv_raw, t.st_kv},
         {d_raw})
      .parameter = P::KeyValueDownNorm;
  const T d_down = of.kept("d kv down", s.local * of.down);
  b.node(K::JoinLatent, "join d compressed kv, d rotary key", {d_raw, d_rotary}, {d_down});
  const T dy1 = of.down_backward(P::KeyValueDown, "gemm d_kv down input",
                                 "gemm d_kv down weight, bias", d_down, of.down, y1);
  T by_queries;
  if (of.compresses_queries()) {
    const T d_q = of.up_backward(P::QueryUp, "gemm d_q up input", "gemm d_q up weight", dq,
                                 of.queries, t.q, m.q_lora_rank);
    const T d_q_raw = of.kept("d q down", s.local * m.q_lora_rank);
    b.node(K::NormBackward, "norm of compressed q backward", {d_q, t.q_raw, t.st_q}, {d_q_raw})
        .parameter = P::QueryDownNorm;
    by_queries = of.down_backward(P::QueryDown, "gemm d_q down input", "gemm d_q down weight, bias",
                                  d_q_raw, m.q_lora_rank, y1);
  } else {
    by_queries =
        of.up_backward(P::Query, "gemm d_q input", "gemm d_q weight", dq, of.queries, y1, s.hidden);
  }
  b.node(K::AddOutputs, "add gradients", {dy1, by_queries}, {dy1});
  return dy1;
}

}  // namespace rehearse::own
