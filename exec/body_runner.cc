#include "exec/body_runner.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string>

#include "exec/kernels/gemm.h"
#include "exec/kernels/kernels.h"
#include "schedules/body_rehearse.h"
#include "schedules/sizes.h"

namespace rehearse::exec {
namespace {

constexpr std::size_t kDirections = 4;

Direction direction_of(OpKind kind) {
  switch (kind) {
    case OpKind::Backward: return Direction::Backward;
    case OpKind::InputGradient: return Direction::InputGradient;
    case OpKind::WeightGradient: return Direction::WeightGradient;
    default: return Direction::Forward;
  }
}

// Index of every role in the parameter lists of a segment; -1: the model has none.
struct Roles {
  int norm1 = -1, norm1_bias = -1, qkv = -1, qkv_bias = -1, projection = -1, projection_bias = -1;
  int norm2 = -1, norm2_bias = -1, up = -1, up_bias = -1, down = -1, down_bias = -1;
  int final_norm = -1, final_bias = -1, table = -1, positions = -1;
};

Roles roles_of(const std::vector<ParameterTensor>& tensors) {
  Roles roles;
  const std::pair<std::string_view, int Roles::*> names[] = {
      {"norm1.weight", &Roles::norm1},           {"norm1.bias", &Roles::norm1_bias},
      {"qkv.weight", &Roles::qkv},               {"qkv.bias", &Roles::qkv_bias},
      {"projection.weight", &Roles::projection}, {"projection.bias", &Roles::projection_bias},
      {"norm2.weight", &Roles::norm2},           {"norm2.bias", &Roles::norm2_bias},
      {"up.weight", &Roles::up},                 {"up.bias", &Roles::up_bias},
      {"down.weight", &Roles::down},             {"down.bias", &Roles::down_bias},
      {"final_norm.weight", &Roles::final_norm}, {"final_norm.bias", &Roles::final_bias},
      {"table.weight", &Roles::table},           {"head.weight", &Roles::table},
      {"positions.weight", &Roles::positions}};
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    for (const auto& [name, role] : names) {
      if (tensors[k].name == name) roles.*role = static_cast<int>(k);
    }
  }
  return roles;
}

}  // namespace

struct BodyRunner::Shared {
  const Transformer& model;
  const Plan& plan;
  RankShape shape;
  AttentionShape attention;
  std::int64_t activation = 0;  // aligned bytes of (local, hidden)
  std::array<std::array<Body, kDirections>, 3> bodies;
  std::array<Roles, 3> roles;

  const Body& body(SegmentKind kind, Direction direction) const {
    return bodies[static_cast<std::size_t>(kind)][static_cast<std::size_t>(direction)];
  }
};

BodyRunner::BodyRunner(const Transformer& model, const Plan& plan)
    : shared_(std::make_unique<Shared>(Shared{.model = model, .plan = plan})) {
  Shared& s = *shared_;
  s.shape = rank_shape(model, plan);
  s.attention = {.tokens = s.shape.tokens, .sequence = plan.sequence_length,
                 .heads = s.shape.heads, .kv_heads = s.shape.kv_heads,
                 .head_dim = s.shape.head_dim};
  s.activation = aligned(activation_bytes(model, plan));
  for (std::size_t k = 0; k < 3; ++k) {
    const auto kind = static_cast<SegmentKind>(k);
    for (std::size_t d = 0; d < kDirections; ++d) {
      s.bodies[k][d] = make_rehearse_body({.segment = kind, .direction = static_cast<Direction>(d),
                                           .model = &model, .plan = &plan});
    }
    auto tensors = segment_parameters(model, plan, kind, 0);
    // A tied head reads the table as its last parameter (OpAddresses).
    if (kind == SegmentKind::Head && model.tied_embedding) tensors.push_back({.name = "table.weight"});
    s.roles[k] = roles_of(tensors);
  }
}
BodyRunner::~BodyRunner() = default;

struct OpCursor::State {
  const BodyRunner::Shared& shared;
  OpKind kind;
  std::span<const SegmentInfo> segments;
  OpAddresses at;
  std::int32_t coordinate;
  float scale;

  std::size_t visited = 0;         // segments done
  std::size_t node = 0;            // of the current segment's body
  bool inside = false;             // the current segment's addresses are set
  std::int64_t chunk = 0;          // head: tokens of the chunks done
  const Body* body = nullptr;
  std::size_t segment = 0;
  std::vector<float*> tensors;     // of the body

  // ---- addresses --------------------------------------------------------------------------------
  bool forward() const { return kind == OpKind::Forward; }
  bool split() const { return kind == OpKind::InputGradient || kind == OpKind::WeightGradient; }

  // Bytes before a segment's own part in the op's slabs.
  std::int64_t before(std::int64_t Body::*slab, std::size_t until, bool with_boundaries) const {
    const Direction direction =
        slab == &Body::left_for_weight ? Direction::InputGradient : Direction::Forward;
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < until; ++k) {
      bytes += shared.body(segments[k].kind, direction).*slab;
      if (with_boundaries) bytes += shared.activation;
    }
    return bytes;
  }
  float* input_of(std::size_t k) const {
    if (k == 0) return at.x_in;
    return reinterpret_cast<float*>(at.slab_input + before(&Body::saved_for_input, k, true) -
                                    shared.activation);
  }
  // Gradient at the boundary after segment k.
  float* gradient_after(std::size_t k) const {
    if (k + 1 == segments.size()) return at.d_in;
    if (split()) {
      const std::int64_t own = shared.body(segments[k].kind, Direction::InputGradient).left_for_weight;
      return reinterpret_cast<float*>(at.left + before(&Body::left_for_weight, k, true) + own);
    }
    if (at.d_out != nullptr) return at.d_out;
    if (at.d_in != nullptr) return at.d_in;
    std::int64_t largest = 0;
    for (const SegmentInfo& s : segments) {
      largest = std::max(largest, shared.body(s.kind, Direction::Backward).workspace);
    }
    return reinterpret_cast<float*>(at.workspace + largest);
  }

  float* address(const BodyTensor& tensor) const {
    const auto in = [&](std::byte* base, std::int64_t begin) {
      return base == nullptr ? nullptr : reinterpret_cast<float*>(base + begin + tensor.offset);
    };
    switch (tensor.home) {
      case TensorHome::Input: return input_of(segment);
      case TensorHome::Output:
        return segment + 1 == segments.size() ? at.x_out : input_of(segment + 1);
      case TensorHome::OutputGradient: return gradient_after(segment);
      case TensorHome::InputGradient: return segment == 0 ? at.d_out : gradient_after(segment - 1);
      case TensorHome::SavedForInput:
        return in(at.slab_input, before(&Body::saved_for_input, segment, true));
      case TensorHome::SavedForWeight:
        return in(at.slab_weight, before(&Body::saved_for_weight, segment, false));
      case TensorHome::LeftForWeight:
        return in(at.left, before(&Body::left_for_weight, segment, true));
      case TensorHome::Workspace: return in(at.workspace, 0);
      case TensorHome::Loss: return at.loss;
      case TensorHome::Tokens:
      case TensorHome::Parameter:
      case TensorHome::Gradient: return nullptr;
    }
    return nullptr;
  }

  void enter() {
    segment = forward() ? visited : segments.size() - 1 - visited;
    body = &shared.body(segments[segment].kind, direction_of(kind));
    tensors.resize(body->tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = address(body->tensors[i]);
    node = 0;
    chunk = 0;
    inside = true;
  }

  // ---- nodes ------------------------------------------------------------------------------------
  const Roles& roles() const { return shared.roles[static_cast<std::size_t>(segments[segment].kind)]; }
  const float* parameter(int role) const {
    return role < 0 ? nullptr : at.parameter[segment][static_cast<std::size_t>(role)];
  }
  float* gradient(int role) const {
    return role < 0 ? nullptr : at.gradient[segment][static_cast<std::size_t>(role)];
  }
  // A row-parallel product summed over tp in place: under sequence parallelism the own tokens of it.
  float* own(float* whole) const {
    return shared.shape.gather ? whole + coordinate * shared.shape.local * shared.shape.hidden : whole;
  }
  float* r(const Node& n, std::size_t i) const { return tensors[static_cast<std::size_t>(n.reads[i])]; }
  float* w(const Node& n, std::size_t i = 0) const { return tensors[static_cast<std::size_t>(n.writes[i])]; }
  std::int64_t vocabulary_first() const { return coordinate * shared.shape.vocabulary; }
  std::int64_t vocabulary_valid() const {  // columns of the own part that are no padding
    return std::clamp<std::int64_t>(shared.model.vocabulary - vocabulary_first(), 0,
                                    shared.shape.vocabulary);
  }

  void norm(const Node& n, int weight, int bias) const {
    const Transformer& m = shared.model;
    const RankShape& s = shared.shape;
    if (m.norm == NormKind::LayerNorm) {
      layer_norm(s.local, s.hidden, r(n, 0), parameter(weight), parameter(bias), m.norm_epsilon,
                 w(n, 0), w(n, 1));
    } else {
      rms_norm(s.local, s.hidden, r(n, 0), parameter(weight), m.norm_epsilon, w(n, 0), w(n, 1));
    }
  }
  void norm_backward(const Node& n, const float* dy, const float* residual, int weight, int bias) const {
    const RankShape& s = shared.shape;
    if (shared.model.norm == NormKind::LayerNorm) {
      layer_norm_backward(s.local, s.hidden, dy, r(n, 1), r(n, 2), parameter(weight), residual, w(n),
                          gradient(weight), gradient(bias));
    } else {
      rms_norm_backward(s.local, s.hidden, dy, r(n, 1), r(n, 2), parameter(weight), residual, w(n),
                        gradient(weight));
    }
  }
  void rotate(float* qkv, bool inverse) const {
    const AttentionShape& a = shared.attention;
    rope(a.tokens, a.sequence, a.heads + a.kv_heads, a.head_dim, a.columns(), shared.model.rope_theta,
         inverse, qkv);
  }

  void gemm(const Node& n) {
    const Roles& p = roles();
    const std::string_view name = n.name;
    if (n.role == GemmRole::Forward) {
      const int role = name.starts_with("gemm qkv") ? p.qkv : name.starts_with("gemm fc1") ? p.up
                       : name == "gemm proj"        ? p.projection
                       : name == "gemm fc2"         ? p.down
                                                    : p.table;
      const float* x = r(n, 0);
      if (name == "gemm logits") x += chunk * n.k;
      linear(n.m, n.n, n.k, x, parameter(role), w(n));
      const int bias = name.starts_with("gemm qkv") ? p.qkv_bias
                       : name.starts_with("gemm fc1") ? p.up_bias
                                                      : -1;
      if (bias >= 0) add_bias(n.m, n.n, parameter(bias), w(n));
    } else if (n.role == GemmRole::InputGradient) {
      const int role = name == "gemm d_fc2 input"    ? p.down
                       : name == "gemm d_fc1 input"  ? p.up
                       : name == "gemm d_proj input" ? p.projection
                       : name == "gemm d_qkv input"  ? p.qkv
                                                     : p.table;
      float* to = w(n);
      if (name == "gemm d_input") to += chunk * n.n;
      linear_input(n.m, n.k, n.n, r(n, 0), parameter(role), to);
    } else if (name == "gemm d_table") {  // ends the chunk
      linear_weight(n.k, n.m, n.n, r(n, 0), r(n, 1) + chunk * n.n, gradient(p.table));
      chunk += n.k;
    } else if (name.starts_with("gemm d_fc2") || name.starts_with("gemm d_proj")) {
      // y = x w^T is row-parallel: reads (gathered dy, x, own dy); its bias is added after the sum.
      const bool down = name.starts_with("gemm d_fc2");
      linear_weight(n.k, n.n, n.m, r(n, 0), r(n, 1), gradient(down ? p.down : p.projection));
      const int bias = down ? p.down_bias : p.projection_bias;
      if (bias >= 0) add_column_sums(shared.shape.local, n.n, r(n, 2), gradient(bias));
    } else {  // column-parallel: (dy, gathered x)
      const bool up = name.starts_with("gemm d_fc1");
      linear_weight(n.k, n.n, n.m, r(n, 0), r(n, 1), gradient(up ? p.up : p.qkv));
      const int bias = up ? p.up_bias : p.qkv_bias;
      if (bias >= 0) add_column_sums(n.k, n.n, r(n, 0), gradient(bias));
    }
  }

  void elementwise(const Node& n) {
    const Roles& p = roles();
    const RankShape& s = shared.shape;
    if (n.name == "add residual + bias") {
      const bool attention = body->tensors[static_cast<std::size_t>(n.reads[1])].name == "z";
      add_residual(s.local, s.hidden, r(n, 0), own(r(n, 1)),
                   parameter(attention ? p.projection_bias : p.down_bias), w(n));
    } else if (n.name == "add positions") {
      const float* rows = own(r(n, 0));
      const float* positions = parameter(p.positions);
      const std::int64_t first = s.gather ? coordinate * s.local : 0;
      for (std::int64_t t = 0; t < s.local; ++t) {
        const std::int64_t position = (first + t) % shared.plan.sequence_length;
        if (positions == nullptr) {
          std::copy_n(rows + t * s.hidden, s.hidden, w(n) + t * s.hidden);
        } else {
          add_residual(1, s.hidden, rows + t * s.hidden, positions + position * s.hidden, nullptr,
                       w(n) + t * s.hidden);
        }
      }
    }  // "sort tokens": with the sums into the table
  }

  void embedding_backward(const Node& n) {
    const Roles& p = roles();
    const RankShape& s = shared.shape;
    if (n.name == "position gradient") {
      float* to = gradient(p.positions);
      const std::int64_t first = s.gather ? coordinate * s.local : 0;
      for (std::int64_t t = 0; t < s.local; ++t) {
        const std::int64_t position = (first + t) % shared.plan.sequence_length;
        add_column_sums(1, s.hidden, r(n, 0) + t * s.hidden, to + position * s.hidden);
      }
      return;
    }
    embed_backward(s.tokens, s.hidden, at.tokens, r(n, 0), vocabulary_first(), s.vocabulary,
                   reinterpret_cast<std::int32_t*>(r(n, 1)), gradient(p.table));
  }

  void cross_entropy(const Node& n) {
    const std::int64_t columns = shared.shape.vocabulary;
    const std::int32_t* targets = at.targets + chunk;
    if (n.name == "row maxima") {
      row_maxima(chunk_rows(n), columns, vocabulary_valid(), r(n, 0), w(n));
    } else if (n.name == "row sums, targets") {
      row_sums(chunk_rows(n), columns, vocabulary_valid(), vocabulary_first(), r(n, 0), r(n, 1),
               targets, w(n));
    } else {
      loss_and_gradient(chunk_rows(n), columns, vocabulary_valid(), vocabulary_first(), r(n, 0),
                        r(n, 1), r(n, 2), targets, scale, w(n), at.loss);
    }
  }
  // Rows of the chunk whose logits the node reads first.
  std::int64_t chunk_rows(const Node& n) const {
    return body->tensors[static_cast<std::size_t>(n.reads[0])].bytes / (4 * shared.shape.vocabulary);
  }

  // A collective: computes what this rank brings, then asks for it.
  void prepare(const Node& n, CollectiveRequest* request) {
    *request = {.kind = n.kind, .in = r(n, 0), .out = w(n), .elements = n.bytes / 4};
    if (n.name.starts_with("row maxima")) {
      row_maxima(chunk_rows(n), shared.shape.vocabulary, vocabulary_valid(), r(n, 0), w(n));
      request->maximum = true;
      request->in = w(n);
    } else if (n.name.starts_with("row sums")) {
      row_sums(chunk_rows(n), shared.shape.vocabulary, vocabulary_valid(), vocabulary_first(), r(n, 0),
               r(n, 1), at.targets + chunk, w(n));
      request->in = w(n);
    }
  }

  void run(const Node& n) {
    const Roles& p = roles();
    const RankShape& s = shared.shape;
    switch (n.kind) {
      case NodeKind::Gemm: return gemm(n);
      case NodeKind::Norm:
        return n.name == "norm1"   ? norm(n, p.norm1, p.norm1_bias)
               : n.name == "norm2" ? norm(n, p.norm2, p.norm2_bias)
                                   : norm(n, p.final_norm, p.final_bias);
      case NodeKind::NormBackward:
        if (n.name == "final norm backward") {
          return norm_backward(n, r(n, 0), nullptr, p.final_norm, p.final_bias);
        }
        return n.name.starts_with("norm1")
                   ? norm_backward(n, own(r(n, 0)), r(n, 3), p.norm1, p.norm1_bias)
                   : norm_backward(n, own(r(n, 0)), r(n, 3), p.norm2, p.norm2_bias);
      case NodeKind::Activation:
        return shared.model.mlp == MlpKind::Gated ? swiglu(s.tokens, s.ffn, r(n, 0), w(n))
                                                  : gelu(s.tokens * s.ffn, r(n, 0), w(n));
      case NodeKind::ActivationBackward:
        return shared.model.mlp == MlpKind::Gated
                   ? swiglu_backward(s.tokens, s.ffn, r(n, 0), r(n, 1), w(n))
                   : gelu_backward(s.tokens * s.ffn, r(n, 0), r(n, 1), w(n));
      case NodeKind::Rope: return rotate(w(n), n.name == "rope backward");
      case NodeKind::Attention: return attention(shared.attention, r(n, 0), w(n, 0), w(n, 1));
      case NodeKind::AttentionBackward:
        return attention_backward(shared.attention, r(n, 0), r(n, 1), r(n, 2), r(n, 3), w(n, 0), w(n, 1));
      case NodeKind::Elementwise: return elementwise(n);
      case NodeKind::Embedding:
        return embed(s.tokens, s.hidden, at.tokens, parameter(p.table), vocabulary_first(),
                     s.vocabulary, w(n));
      case NodeKind::EmbeddingBackward: return embedding_backward(n);
      case NodeKind::CrossEntropy: return cross_entropy(n);
      case NodeKind::Dropout:
      case NodeKind::Softmax:
      case NodeKind::AllReduce:
      case NodeKind::AllGather:
      case NodeKind::ReduceScatter:
      case NodeKind::AllToAll:
      case NodeKind::RingExchange: assert(false && "no node of a body that is run here");
    }
  }
};

OpCursor::OpCursor(const BodyRunner& runner, OpKind kind, std::span<const SegmentInfo> segments,
                   const OpAddresses& at, std::int32_t coordinate, float scale)
    : state_(std::make_unique<State>(State{.shared = runner.shared(), .kind = kind,
                                           .segments = segments, .at = at,
                                           .coordinate = coordinate, .scale = scale})) {}
OpCursor::~OpCursor() = default;
OpCursor::OpCursor(OpCursor&&) noexcept = default;
OpCursor& OpCursor::operator=(OpCursor&&) noexcept = default;

Progress OpCursor::run(CollectiveRequest* request) {
  State& s = *state_;
  for (; s.visited < s.segments.size(); ++s.visited, s.inside = false) {
    if (!s.inside) s.enter();
    while (s.node < s.body->nodes.size()) {
      const Node& node = s.body->nodes[s.node++];
      const bool collective = node.kind == NodeKind::AllReduce || node.kind == NodeKind::AllGather ||
                              node.kind == NodeKind::ReduceScatter;
      if (collective) {
        s.prepare(node, request);
        return Progress::Collective;
      }
      s.run(node);
    }
  }
  return Progress::Done;
}

}  // namespace rehearse::exec
