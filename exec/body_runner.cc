#include "exec/body_runner.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string>
#include <utility>

#include "schedules/body_rehearse.h"
#include "schedules/sizes.h"

namespace rehearse::exec {
namespace {

constexpr std::size_t kDirections = 4;

// Index of every role in the parameter lists of a segment; -1: the model has none.
struct Roles {
  int norm1 = -1, norm1_bias = -1, qkv = -1, qkv_bias = -1, projection = -1, projection_bias = -1;
  int norm2 = -1, norm2_bias = -1, up = -1, up_bias = -1, down = -1, down_bias = -1;
  int final_norm = -1, final_bias = -1, table = -1, positions = -1;
};

Roles roles_of(const std::vector<ParameterTensor>& tensors) {
  Roles roles;
  const std::pair<std::string_view, int Roles::*> names[] = {
      {"norm1.weight", &Roles::norm1},
      {"norm1.bias", &Roles::norm1_bias},
      {"qkv.weight", &Roles::qkv},
      {"qkv.bias", &Roles::qkv_bias},
      {"projection.weight", &Roles::projection},
      {"projection.bias", &Roles::projection_bias},
      {"norm2.weight", &Roles::norm2},
      {"norm2.bias", &Roles::norm2_bias},
      {"up.weight", &Roles::up},
      {"up.bias", &Roles::up_bias},
      {"down.weight", &Roles::down},
      {"down.bias", &Roles::down_bias},
      {"final_norm.weight", &Roles::final_norm},
      {"final_norm.bias", &Roles::final_bias},
      {"table.weight", &Roles::table},
      {"head.weight", &Roles::table},
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
  std::vector<std::array<std::array<Body, kDirections>, 3>> bodies;  // by slice of the sequence
  std::array<Roles, 3> roles;

  const Body& body(SegmentKind kind, Direction direction, std::int32_t slice) const {
    return bodies[static_cast<std::size_t>(std::max(slice, 0))][static_cast<std::size_t>(kind)]
                 [static_cast<std::size_t>(direction)];
  }
  // Has the body a collective?
  bool meets(SegmentKind kind, Direction direction, std::int32_t slice) const {
    return std::ranges::any_of(body(kind, direction, slice).nodes, [](const Node& node) {
      return collective_kind(node.kind) != OpKind::Forward;
    });
  }
};

BodyRunner::BodyRunner(const Transformer& model, const Plan& plan)
    : shared_(std::make_unique<Shared>(Shared{.model = model, .plan = plan})) {
  Shared& s = *shared_;
  s.shape = rank_shape(model, plan);
  s.attention = {.tokens = s.shape.tokens,
                 .sequence = plan.sequence_length / plan.context_parallel / plan.sequence_slices,
                 .heads = s.shape.heads,
                 .kv_heads = s.shape.kv_heads,
                 .head_dim = s.shape.head_dim};
  s.activation = aligned(activation_bytes(model, plan));
  s.bodies.resize(static_cast<std::size_t>(plan.sequence_slices));
  for (std::size_t k = 0; k < 3; ++k) {
    const auto kind = static_cast<SegmentKind>(k);
    for (std::size_t slice = 0; slice < s.bodies.size(); ++slice) {
      for (std::size_t d = 0; d < kDirections; ++d) {
        s.bodies[slice][k][d] = make_rehearse_body({.segment = kind,
                                                    .direction = static_cast<Direction>(d),
                                                    .slice = static_cast<std::int32_t>(slice),
                                                    .model = &model,
                                                    .plan = &plan});
      }
    }
    auto tensors = segment_parameters(model, plan, kind, 0);
    // A tied head reads the table as its last parameter (OpAddresses).
    if (kind == SegmentKind::Head && model.tied_embedding)
      tensors.push_back({.name = "table.weight"});
    s.roles[k] = roles_of(tensors);
  }
}
BodyRunner::~BodyRunner() = default;

bool BodyRunner::alone(const ComputeOp& op) const {
  return std::ranges::none_of(op.segments, [&](const SegmentInfo& segment) {
    return shared_->meets(segment.kind, direction_of(op.kind), op.slice);
  });
}

struct OpCursor::State {
  const BodyRunner::Shared& shared;
  Backend& device;
  Lane lane;
  std::int32_t coordinate;  // on tp
  std::int32_t context;     // on cp
  float scale;
  const ComputeOp* op = nullptr;

  std::size_t visited = 0;  // segments done
  std::size_t node = 0;     // of the current segment's body
  bool inside = false;      // the current segment's addresses are set
  std::int64_t chunk = 0;   // head: tokens of the chunks done
  const Body* body = nullptr;
  std::size_t segment = 0;
  std::vector<std::byte*> tensors;  // of the body
  SumNorm sum;                      // whose norm is the next node; rows 0: there is none

  // ---- addresses ------------------------------------------------------------
  const OpAddresses& at() const { return op->at; }
  std::span<const SegmentInfo> segments() const { return op->segments; }
  OpKind kind() const { return op->kind; }
  bool forward() const { return kind() == OpKind::Forward; }
  bool split() const { return kind() == OpKind::InputGradient || kind() == OpKind::WeightGradient; }

  const Body& body_of(std::size_t k, Direction direction) const {
    return shared.body(segments()[k].kind, direction, op->slice);
  }
  // Bytes before a segment's own part in the op's slabs.
  std::int64_t before(std::int64_t Body::*slab, std::size_t until, bool with_boundaries) const {
    const Direction direction = slab == &Body::left_for_weight      ? Direction::InputGradient
                                : slab == &Body::key_value_gradient ? direction_of(kind())
                                                                    : Direction::Forward;
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < until; ++k) {
      bytes += body_of(k, direction).*slab;
      if (with_boundaries) bytes += shared.activation;
    }
    return bytes;
  }
  std::byte* input_of(std::size_t k) const {
    if (k == 0) return at().x_in;
    return at().slab_input + before(&Body::saved_for_input, k, true) - shared.activation;
  }
  // Gradient at the boundary after segment k.
  std::byte* gradient_after(std::size_t k) const {
    if (k + 1 == segments().size()) return at().d_in;
    if (split()) {
      const std::int64_t own = body_of(k, Direction::InputGradient).left_for_weight;
      return at().left + before(&Body::left_for_weight, k, true) + own;
    }
    if (at().d_out != nullptr) return at().d_out;
    if (at().d_in != nullptr) return at().d_in;
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < segments().size(); ++i) {
      largest = std::max(largest, body_of(i, Direction::Backward).workspace);
    }
    return at().workspace + largest;
  }

  std::byte* address(const BodyTensor& tensor) const {
    const auto in = [&](std::byte* base, std::int64_t begin) {
      return base == nullptr ? nullptr : base + begin + tensor.offset;
    };
    switch (tensor.home) {
      case TensorHome::Input:
        return input_of(segment);
      case TensorHome::Output:
        return segment + 1 == segments().size() ? at().x_out : input_of(segment + 1);
      case TensorHome::OutputGradient:
        return gradient_after(segment);
      case TensorHome::InputGradient:
        return segment == 0 ? at().d_out : gradient_after(segment - 1);
      case TensorHome::SavedForInput:
        return in(of_slice(at().earlier_input, tensor.slice, at().slab_input),
                  before(&Body::saved_for_input, segment, true));
      case TensorHome::KeyValueGradient:
        return in(of_slice(at().dkv, tensor.slice < 0 ? op->slice : tensor.slice, nullptr),
                  before(&Body::key_value_gradient, segment, false));
      case TensorHome::SavedForWeight:
        return in(at().slab_weight, before(&Body::saved_for_weight, segment, false));
      case TensorHome::LeftForWeight:
        return in(at().left, before(&Body::left_for_weight, segment, true));
      case TensorHome::Workspace:
        return in(at().workspace, 0);
      case TensorHome::Loss:
      case TensorHome::Tokens:
      case TensorHome::Parameter:
      case TensorHome::Gradient:
        return nullptr;
    }
    return nullptr;
  }
  // A weight gradient has no slabs of other slices, though its body's other half names them.
  static std::byte* of_slice(const std::vector<std::byte*>& slabs, std::int32_t slice,
                             std::byte* own) {
    if (slice < 0) return own;
    const auto k = static_cast<std::size_t>(slice);
    return k < slabs.size() ? slabs[k] : nullptr;
  }

  void enter() {
    segment = forward() ? visited : segments().size() - 1 - visited;
    body = &body_of(segment, direction_of(kind()));
    tensors.resize(body->tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = address(body->tensors[i]);
    node = 0;
    chunk = 0;
    inside = true;
  }

  // ---- nodes ----------------------------------------------------------------
  const Roles& roles() const {
    return shared.roles[static_cast<std::size_t>(segments()[segment].kind)];
  }
  const std::byte* parameter(int role) const {
    return role < 0 ? nullptr : at().parameter[segment][static_cast<std::size_t>(role)];
  }
  float* gradient(int role) const {
    return role < 0 ? nullptr : at().gradient[segment][static_cast<std::size_t>(role)];
  }
  // Element `count` of an array of the compute type.
  std::byte* element(std::byte* array, std::int64_t count) const {
    return array + count * shared.shape.element;
  }
  // A row-parallel product summed over tp in place: under sequence parallelism the own tokens of
  // it.
  std::byte* own(std::byte* whole) const {
    return shared.shape.gather
               ? element(whole, coordinate * shared.shape.local * shared.shape.hidden)
               : whole;
  }
  std::byte* r(const Node& n, std::size_t i) const {
    return tensors[static_cast<std::size_t>(n.reads[i])];
  }
  std::byte* w(const Node& n, std::size_t i = 0) const {
    return tensors[static_cast<std::size_t>(n.writes[i])];
  }
  static float* floats(std::byte* data) { return reinterpret_cast<float*>(data); }
  VocabularyShape vocabulary() const {
    const std::int64_t columns = shared.shape.vocabulary, first = coordinate * columns;
    return {.columns = columns,
            .valid = std::clamp<std::int64_t>(shared.model.vocabulary - first, 0, columns),
            .first = first};
  }
  // Of the rank's own rows: under sequence parallelism its part of the tokens.
  std::int64_t first_row() const {
    return shared.shape.gather ? coordinate * shared.shape.local : 0;
  }

  // Calls use(row, rows, position) for runs of the rank's rows [first, first + count), counted over
  // the samples of its slice, whose positions follow one another (modulo the sequence).
  template <class Use>
  void for_runs(std::int64_t first, std::int64_t count, const Use& use) const {
    const std::int64_t ring = shared.plan.context_parallel;
    if (ring == 1 && op->slice < 0) return use(std::int64_t{0}, count, first);
    // A sample's rows: one slice of it, or chunks i and 2c - 1 - i of the slice's 2c; `earlier` is
    // the number of chunks of the slices before.
    const std::int64_t chunks = ring > 1 ? 2 : 1, run = shared.attention.sequence / chunks;
    const std::int64_t earlier = std::max(op->slice, 0) * chunks * ring;
    for (std::int64_t row = 0; row < count;) {
      const std::int64_t within = (first + row) % run;
      const std::int64_t rows = std::min(run - within, count - row);
      const bool late = (first + row) / run % chunks == 1;
      const std::int64_t number = late ? 2 * ring - 1 - context : context;
      use(row, rows, (earlier + number) * run + within);
      row += rows;
    }
  }

  // Is the next node the norm of the sum that `add` makes, so that both can be one pass? What it
  // writes must not lie where the sum's operands do: workspace is planned for one node at a time.
  bool norm_follows(const Node& add) const {
    const bool within = node < body->nodes.size();
    if (!within && (!forward() || visited + 1 >= segments().size())) return false;
    const Body& after = within ? *body : body_of(visited + 1, Direction::Forward);
    const Node& next = after.nodes[within ? node : 0];
    if (next.kind != NodeKind::Norm || (within && next.reads[0] != add.writes[0])) return false;
    const auto tensor = [](const Body& of, std::int16_t i) -> const BodyTensor& {
      return of.tensors[static_cast<std::size_t>(i)];
    };
    return std::ranges::none_of(next.writes, [&](std::int16_t written) {
      const BodyTensor& out = tensor(after, written);
      if (!within) return out.home == TensorHome::Workspace;
      return std::ranges::any_of(add.reads, [&](std::int16_t read) {
        const BodyTensor& in = tensor(*body, read);
        return in.home == out.home && in.offset < out.offset + out.bytes &&
               out.offset < in.offset + in.bytes;
      });
    });
  }
  void add_residual(const Node& n) {
    const RankShape& s = shared.shape;
    const bool attention = body->tensors[static_cast<std::size_t>(n.reads[1])].name == "z";
    const std::byte* bias = parameter(attention ? roles().projection_bias : roles().down_bias);
    sum = {
        .rows = s.local, .h = s.hidden, .x = r(n, 0), .y = own(r(n, 1)), .bias = bias, .sum = w(n)};
    if (norm_follows(n)) return;
    device.add_residual(lane, s.local, s.hidden, sum.x, sum.y, sum.bias, sum.sum);
    sum = {};
  }
  void norm(const Node& n, int weight, int bias) {
    const Transformer& m = shared.model;
    const RankShape& s = shared.shape;
    if (sum.rows > 0) {
      sum.weight = parameter(weight);
      sum.norm_bias = parameter(bias);
      sum.epsilon = m.norm_epsilon;
      sum.out = w(n, 0);
      sum.statistics = floats(w(n, 1));
      const SumNorm both = std::exchange(sum, {});
      return m.norm == NormKind::LayerNorm ? device.add_layer_norm(lane, both)
                                           : device.add_rms_norm(lane, both);
    }
    if (m.norm == NormKind::LayerNorm) {
      device.layer_norm(lane, s.local, s.hidden, r(n, 0), parameter(weight), parameter(bias),
                        m.norm_epsilon, w(n, 0), floats(w(n, 1)));
    } else {
      device.rms_norm(lane, s.local, s.hidden, r(n, 0), parameter(weight), m.norm_epsilon, w(n, 0),
                      floats(w(n, 1)));
    }
  }
  void norm_backward(const Node& n, const std::byte* dy, const std::byte* residual, int weight,
                     int bias) const {
    const RankShape& s = shared.shape;
    if (shared.model.norm == NormKind::LayerNorm) {
      device.layer_norm_backward(lane, s.local, s.hidden, dy, r(n, 1), floats(r(n, 2)),
                                 parameter(weight), residual, w(n), gradient(weight),
                                 gradient(bias));
    } else {
      device.rms_norm_backward(lane, s.local, s.hidden, dy, r(n, 1), floats(r(n, 2)),
                               parameter(weight), residual, w(n), gradient(weight));
    }
  }

  bool gated() const { return shared.model.mlp == MlpKind::Gated; }

  void gemm(const Node& n) {
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
      const auto follows = [](const Node& next) {
        return next.kind == NodeKind::ActivationBackward;
      };
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

  void elementwise(const Node& n) {
    const Roles& p = roles();
    const RankShape& s = shared.shape;
    if (n.name == "add residual + bias") {
      add_residual(n);
    } else if (n.name == "add positions") {
      const std::byte* positions = parameter(p.positions);
      for_runs(first_row(), s.local,
               [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
                 device.add_positions(lane, rows, s.hidden, position, shared.plan.sequence_length,
                                      element(own(r(n, 0)), row * s.hidden), positions,
                                      element(w(n), row * s.hidden));
               });
    } else if (n.name == "pack k, v") {
      device.copy_columns(lane, s.tokens, shared.attention.kv_columns(), keys(r(n, 0)), s.qkv, w(n),
                          shared.attention.kv_columns());
    } else if (n.name == "store o") {
      device.cast(lane, s.tokens * s.heads * s.head_dim, floats(r(n, 0)), w(n));
    } else if (n.name == "add dk, dv") {
      device.add(lane, s.tokens * shared.attention.kv_columns(), floats(r(n, 0)), floats(w(n)));
    } else if (n.name == "store dq, dk, dv") {
      device.cast_columns(lane, s.tokens, s.heads * s.head_dim, floats(r(n, 0)), w(n), s.qkv);
      device.cast_columns(lane, s.tokens, shared.attention.kv_columns(), floats(r(n, 1)),
                          keys(w(n)), s.qkv);
    } else if (n.name == "spread dk, dv") {
      device.clear(lane, w(n), body->tensors[static_cast<std::size_t>(n.writes[0])].bytes);
      for_shared_heads([&](std::int64_t own_column, std::int64_t column, std::int64_t own_stride,
                           std::int64_t stride) {
        device.copy_columns(lane, s.tokens, s.kv_heads * s.head_dim, element(r(n, 0), own_column),
                            own_stride, element(w(n), column), stride);
      });
    } else if (n.name == "take dk, dv") {
      for_shared_heads([&](std::int64_t own_column, std::int64_t column, std::int64_t own_stride,
                           std::int64_t stride) {
        device.copy_columns(lane, s.tokens, s.kv_heads * s.head_dim, element(r(n, 0), column),
                            stride, element(w(n), own_column), own_stride);
      });
    }  // "sort tokens": with the sums into the table
  }

  // Calls use(column in dqkv(tokens, qkv), column among all heads, stride, stride) for keys,
  // values.
  template <class Use>
  void for_shared_heads(const Use& use) const {
    const RankShape& s = shared.shape;
    const std::int64_t all = shared.model.kv_heads * s.head_dim;
    const std::int64_t head = coordinate / key_value_replicas(shared.model, shared.plan);
    for (const std::int64_t part : {0, 1}) {
      use((s.heads + part * s.kv_heads) * s.head_dim, part * all + head * s.head_dim, s.qkv,
          2 * all);
    }
  }

  void embedding_backward(const Node& n) {
    const Roles& p = roles();
    const RankShape& s = shared.shape;
    if (n.name == "position gradient") {
      for_runs(
          first_row(), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
            device.position_gradient(lane, rows, s.hidden, position, shared.plan.sequence_length,
                                     element(r(n, 0), row * s.hidden), gradient(p.positions));
          });
      return;
    }
    device.embed_backward(lane, s.tokens, s.hidden, at().tokens, r(n, 0), vocabulary(),
                          reinterpret_cast<std::int32_t*>(r(n, 1)), gradient(p.table));
  }

  void rope(const Node& n) const {
    AttentionShape shape = shared.attention;
    shape.sequence = shared.plan.sequence_length;
    for_runs(0, shared.shape.tokens,
             [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
               shape.tokens = rows;
               shape.first = position;
               device.rope(lane, shape, shared.model.rope_theta, n.name == "rope backward",
                           element(w(n), row * shared.shape.qkv));
             });
  }

  // The first key of qkv(tokens, columns).
  std::byte* keys(std::byte* qkv) const {
    return element(qkv, shared.shape.heads * shared.shape.head_dim);
  }
  // An earlier slice is before all queries, all of it. Of the own slice the own block is causal; at
  // step j of the ring it is what rank i - j holds: an earlier rank's first chunk is before all
  // queries and its second after, a later rank's both lie between.
  AttentionPart part_of(const Node& n) const {
    const std::int64_t rows = shared.attention.sequence;
    AttentionPart part{.shape = shared.attention, .query_end = rows, .key_end = rows};
    part.key_stride = n.step == 0 ? shared.shape.qkv : shared.attention.kv_columns();
    part.first = n.first;
    if (n.slice >= 0) return part;
    part.causal = n.step == 0;
    if (n.step > 0) (n.step <= context ? part.key_end : part.query_begin) = rows / 2;
    return part;
  }
  // Of a part: a rank's own lie in qkv, others' in a block of the ring.
  std::byte* keys_of(const Node& n) const {
    std::byte* block = r(n, n.reads.size() - 1);
    return n.step == 0 ? keys(block) : block;
  }
  void attention(const Node& n) const {
    if (n.step < 0)
      return device.attention(lane, shared.attention, r(n, 0), w(n, 0), floats(w(n, 1)));
    device.attention_part(lane, part_of(n), r(n, 0), keys_of(n), floats(w(n, 0)), floats(w(n, 1)));
  }
  void attention_backward(const Node& n) const {
    if (n.step < 0) {
      return device.attention_backward(lane, shared.attention, r(n, 0), r(n, 1), r(n, 2),
                                       floats(r(n, 3)), w(n, 0), floats(w(n, 1)));
    }
    if (n.step == 1) {  // gradients of a block set out
      device.clear(lane, w(n, 1), body->tensors[static_cast<std::size_t>(n.writes[1])].bytes);
    }
    device.attention_part_backward(lane, part_of(n), r(n, 0), r(n, 3), keys_of(n), r(n, 1),
                                   floats(r(n, 2)), floats(w(n, 0)), floats(w(n, 1)),
                                   floats(w(n, 2)));
  }

  void row_maxima(const Node& n) const {
    device.row_maxima(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(w(n)));
  }
  void row_sums(const Node& n) const {
    device.row_sums(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(r(n, 1)),
                    at().targets + chunk, floats(w(n)));
  }
  void cross_entropy(const Node& n) {
    if (n.name == "row maxima") {  // nobody else has logits: the next two nodes at once
      const Node &sums = body->nodes[node++], &loss = body->nodes[node++];
      device.cross_entropy(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), at().targets + chunk,
                           scale, floats(w(n)), floats(w(sums)), w(loss), at().loss);
    } else {
      device.loss_and_gradient(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(r(n, 1)),
                               floats(r(n, 2)), at().targets + chunk, scale, w(n), at().loss);
    }
  }
  // Rows of the chunk whose logits (fp32) the node reads first.
  std::int64_t chunk_rows(const Node& n) const {
    return body->tensors[static_cast<std::size_t>(n.reads[0])].bytes /
           (4 * shared.shape.vocabulary);
  }

  // A collective: computes what this rank brings, then asks for it.
  void prepare(const Node& n, CollectiveRequest* request) const {
    const bool rows = n.name.starts_with("row ");  // statistics of the loss: fp32, in place
    if (n.name.starts_with("row maxima")) row_maxima(n);
    if (n.name.starts_with("row sums")) row_sums(n);
    const bool wide = rows || n.name == "ring exchange cp dk, dv" || shared.shape.element == 4;
    const ElementType type = wide ? ElementType::Float32 : ElementType::BFloat16;
    *request = {.axis = n.axis,
                .kind = collective_kind(n.kind),
                .type = type,
                .maximum = n.name.starts_with("row maxima"),
                .in = rows ? w(n) : r(n, 0),
                .out = w(n),
                .elements = n.bytes / bytes_of(type)};
  }

  void run(const Node& n) {
    const Roles& p = roles();
    const RankShape& s = shared.shape;
    switch (n.kind) {
      case NodeKind::Gemm:
        return gemm(n);
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
        return device.swiglu(lane, s.tokens, s.ffn, r(n, 0), w(n));  // GELU: in its product
      case NodeKind::ActivationBackward:
        if (!gated()) return;  // with its product
        return device.swiglu_backward(lane, s.tokens, s.ffn, r(n, 0), r(n, 1), w(n));
      case NodeKind::Rope:
        return rope(n);
      case NodeKind::Attention:
        return attention(n);
      case NodeKind::AttentionBackward:
        return attention_backward(n);
      case NodeKind::Elementwise:
        return elementwise(n);
      case NodeKind::Embedding:
        return device.embed(lane, s.tokens, s.hidden, at().tokens, parameter(p.table), vocabulary(),
                            w(n));
      case NodeKind::EmbeddingBackward:
        return embedding_backward(n);
      case NodeKind::CrossEntropy:
        return cross_entropy(n);
      case NodeKind::Dropout:
      case NodeKind::Softmax:
      case NodeKind::AllReduce:
      case NodeKind::AllGather:
      case NodeKind::ReduceScatter:
      case NodeKind::AllToAll:
      case NodeKind::RingExchange:
        assert(false && "no node of a body that is run here");
    }
  }
};

OpCursor::OpCursor(const BodyRunner& runner, Backend& backend, Lane lane, const Coordinates& at,
                   float scale)
    : state_(std::make_unique<State>(State{.shared = runner.shared(),
                                           .device = backend,
                                           .lane = lane,
                                           .coordinate = at.tensor,
                                           .context = at.context,
                                           .scale = scale})) {}
OpCursor::~OpCursor() = default;
OpCursor::OpCursor(OpCursor&&) noexcept = default;
OpCursor& OpCursor::operator=(OpCursor&&) noexcept = default;

void OpCursor::start(const ComputeOp& op) {
  state_->op = &op;
  state_->visited = 0;
  state_->inside = false;
}

Progress OpCursor::run(CollectiveRequest* request) {
  State& s = *state_;
  for (; s.visited < s.segments().size(); ++s.visited, s.inside = false) {
    if (!s.inside) s.enter();
    while (s.node < s.body->nodes.size()) {
      const Node& node = s.body->nodes[s.node++];
      if (collective_kind(node.kind) != OpKind::Forward) {
        s.prepare(node, request);
        return Progress::Collective;
      }
      s.run(node);
    }
  }
  return Progress::Done;
}

}  // namespace rehearse::exec
