// SPDX-License-Identifier: Apache-2.0
// Private to body_*.cc: what the ops of a run share, and one op half done.
//
// A method of State performs one node of a body: it finds where the arrays lie and calls
// its kernel. Above the methods stands the file that defines them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/body/body_runner.h"
#include "schedules/body/own/body_experts.h"
#include "schedules/body/own/body_rehearse.h"
#include "schedules/body/sizes.h"

namespace rehearse::exec {

constexpr std::size_t kDirections = 4;

// Index of every role's weight and bias in the parameter lists of a segment; -1: the model has
// none.
struct Roles {
  Roles() {
    weight.fill(-1);
    bias.fill(-1);
  }
  std::array<int, kParameterRoles> weight{}, bias{};
};

struct BodyRunner::Shared {
  Layout layout;
  const Transformer& model;  // of the layout
  const Plan& plan;
  RankShape shape;
  AttentionShape attention;
  std::array<Rotary, 2> rotary;  // of layers without a window, with one
  std::int64_t activation = 0;   // aligned bytes of (local, hidden)
  ExpertRoom room;
  ExpertLimits limits;
  bool sends_copies = false;  // to the ranks of their experts, where these sort what came
  // by slice of the sequence
  std::vector<std::array<std::array<Body, kDirections>, kNumSegmentShapes>> bodies;
  std::array<Roles, kNumSegmentShapes> roles;

  std::size_t shape_of(const SegmentInfo& segment) const {
    return static_cast<std::size_t>(segment_shape(model, segment));
  }
  const Body& body(const SegmentInfo& segment, Direction direction, std::int32_t slice) const {
    return bodies[static_cast<std::size_t>(std::max(slice, 0))][shape_of(segment)]
                 [static_cast<std::size_t>(direction)];
  }
  // Has the body a collective?
  bool meets(const SegmentInfo& segment, Direction direction, std::int32_t slice) const {
    return std::ranges::any_of(body(segment, direction, slice).nodes, [](const Node& node) {
      return collective_kind(node.kind()) != OpKind::Forward;
    });
  }
};

struct OpCursor::State {
  const BodyRunner::Shared& shared;
  Device& device;
  Kernels& kernels;
  Lane lane;
  std::int32_t coordinate;  // on tp
  std::int32_t context;     // on cp
  Folded folded;            // among the experts
  float scale;
  const ComputeOp* op = nullptr;
  std::int64_t seed = 0, step = 0;  // what is dropped follows from them

  std::size_t visited = 0;  // segments done
  std::size_t node = 0;     // of the current segment's body
  bool inside = false;      // the current segment's addresses are set
  bool beside = false;      // another cursor goes on while this one waits
  bool meets = false;       // the collective that was asked for last is under way,
  std::size_t wait_at = 0;  // and the nodes before this one may run
  Lane sent_on;             // its lane: the own one where nothing goes on beside it
  std::int64_t chunk = 0;   // head: tokens of the chunks done
  const Body* body = nullptr;
  std::size_t segment = 0;
  std::vector<std::byte*> tensors;  // of the body
  SumNorm sum;                      // whose norm is the next node; rows 0: there is none
  RouterLosses losses;
  ExpertCounts counts;
  const float* correction = nullptr;
  std::vector<std::int64_t> sends, receives;  // of the collective that was asked for last
  std::string failure;

  // ---- the op ---------------------------------------------------------------
  const OpAddresses& at() const { return op->at; }
  std::span<const SegmentInfo> segments() const { return op->segments; }
  OpKind kind() const { return op->kind; }
  bool forward() const { return kind() == OpKind::Forward; }
  bool split() const { return kind() == OpKind::InputGradient || kind() == OpKind::WeightGradient; }
  const Body& body_of(std::size_t k, Direction direction) const {
    return shared.body(segments()[k], direction, op->slice);
  }

  // ---- addresses: body_addresses.cc -----------------------------------------
  // Begins the next segment.
  void enter();
  std::byte* address(const BodyTensor& tensor) const;
  // Bytes before a segment's own part in the op's slabs.
  std::int64_t before(std::int64_t Body::*slab, std::size_t until, bool with_boundaries) const;
  std::byte* input_of(std::size_t k) const;
  // Gradient at the boundary after segment k.
  std::byte* gradient_after(std::size_t k) const;
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
  // The same with the number of the run's first row among the tokens of the step's batch.
  template <class Use>
  void for_tokens(std::int64_t first, std::int64_t count, const Use& use) const {
    const std::int64_t sequence = shared.plan.sequence_length;
    for_runs(first, count, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
      const std::int64_t sample = op->first_sample + (first + row) / shared.attention.sequence;
      use(row, rows, sample * sequence + position % sequence);
    });
  }
  // The first of the rank's own rows: under sequence parallelism it has a part of the tokens.
  std::int64_t first_row() const;

  // ---- of a node ------------------------------------------------------------
  // Its weight and bias, and their gradients; null: it has none.
  const std::byte* parameter(const Node& n) const { return parameter_at(role(&Roles::weight, n)); }
  const std::byte* bias(const Node& n) const { return parameter_at(role(&Roles::bias, n)); }
  float* gradient(const Node& n) const { return gradient_at(role(&Roles::weight, n)); }
  float* bias_gradient(const Node& n) const { return gradient_at(role(&Roles::bias, n)); }
  int role(std::array<int, kParameterRoles> Roles::*list, const Node& n) const {
    return role(list, n.parameter);
  }
  int role(std::array<int, kParameterRoles> Roles::*list, ParameterRole parameter) const {
    if (parameter == ParameterRole::None) return -1;
    const Roles& roles = shared.roles[shared.shape_of(segments()[segment])];
    return (roles.*list)[static_cast<std::size_t>(parameter)];
  }
  const std::byte* parameter_at(int index) const {
    return index < 0 ? nullptr : at().parameter[segment][static_cast<std::size_t>(index)];
  }
  float* gradient_at(int index) const {
    return index < 0 ? nullptr : at().gradient[segment][static_cast<std::size_t>(index)];
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
    const bool whole = tensor(n, i).bytes > local * shared.shape.element;
    return whole ? element(r(n, i), coordinate * local) : r(n, i);
  }
  const BodyTensor& tensor(const Node& n, std::size_t i) const {
    return body->tensors[static_cast<std::size_t>(n.reads[i])];
  }
  // What the node reads, and writes.
  std::byte* r(const Node& n, std::size_t i) const {
    return tensors[static_cast<std::size_t>(n.reads[i])];
  }
  std::byte* w(const Node& n, std::size_t i = 0) const {
    return tensors[static_cast<std::size_t>(n.writes[i])];
  }
  static float* floats(std::byte* data) { return reinterpret_cast<float*>(data); }
  // Counted over the model; the ends of the model count as the first.
  std::int64_t layer() const { return std::max(segments()[segment].layer, 0); }
  static std::int32_t* ints(std::byte* data) { return reinterpret_cast<std::int32_t*>(data); }

  // ---- the walk: body_runner.cc ---------------------------------------------
  void run(const Node& n);
  // A collective: computes what this rank brings, then asks for it.
  void prepare(const Node& n, CollectiveRequest* request);

  // ---- body_products.cc -----------------------------------------------------
  void linear(const Node& n);
  void linear_input(const Node& n) const;
  void linear_weight(const Node& n) const;
  void logits(const Node& n);  // and its gradients

  // ---- body_norms.cc --------------------------------------------------------
  void add_residual(const Node& n);
  void norm(const Node& n);
  // Columns of a row, and the epsilon.
  std::pair<std::int64_t, double> norm_form(const Node& n) const;
  void norm_backward(const Node& n) const;
  // What the node drops of rows that begin at token `first` of the step's batch.
  DropoutShape dropout_shape(const Node& n, std::int64_t first) const;
  void dropout(const Node& n) const;
  // A rank's rows lie in the batch one behind the other.
  bool one_run() const { return shared.plan.context_parallel == 1 && op->slice < 0; }
  // Is the next node the norm of the sum that `add` makes, so that both can be one pass? What it
  // writes must not lie where the sum's operands do: workspace is planned for one node at a time.
  bool norm_follows(const Node& add) const;

  // ---- body_attention.cc ----------------------------------------------------
  void rope(const Node& n) const;
  void temper(const Node& n, AttentionShape shape) const;  // where the layer does not rotate
  AttentionShape whole_shape() const;                      // of attention that is no part
  AttentionShape attention_shape() const;                  // of this op and layer
  void attention(const Node& n) const;
  void attention_backward(const Node& n) const;
  void store_gradients(const Node& n) const;
  void spread_heads(const Node& n) const;
  void take_heads(const Node& n) const;
  // The first of this rank's key heads where ranks share them: it has one.
  std::int64_t key_head() const { return coordinate / shared.layout.key_value_replicas(); }
  // The first key of qkv(tokens, columns).
  std::byte* keys(std::byte* qkv) const {
    return element(qkv, shared.shape.heads * shared.shape.head_dim);
  }
  // The first key that a part of attention meets: a rank's own keys lie in qkv, others' in a block
  // of the ring.
  std::byte* keys_of(const Node& n) const;
  // An earlier slice is before all queries, all of it. Of the own slice the own block is causal; at
  // step j of the ring it is what rank i - j holds: an earlier rank's first chunk is before all
  // queries and its second after, a later rank's both lie between.
  AttentionPart part_of(const Node& n) const;
  // Rows of a sample of this rank's block of keys or queries that follow one another: a slice, a
  // ring's chunk of it, or what an attention chunk cuts off.
  struct Run {
    std::int64_t row, rows, position;
  };
  std::vector<Run> runs_of(std::int64_t slice, std::int64_t rank) const;
  // Positions that a query of the layer does not look beyond; 0: it may look at all.
  std::int64_t attention_chunk() const;
  // Calls use(part) for what the node's kernels do one after the other: its one part, or, where
  // positions matter, one for each pair of runs.
  template <class Use>
  void for_parts(const Node& n, const Use& use) const;
  // Calls use(column in dqkv(tokens, qkv), column among all heads, stride, stride) for keys,
  // values.
  template <class Use>
  void for_shared_heads(const Use& use) const;

  // ---- body_head_norms.cc ---------------------------------------------------
  // Heads of queries or of keys: where they lie in a row, their share of the statistics, and of
  // the weight the first number that this rank's heads read.
  struct HeadNorm {
    ParameterRole role{};
    StridedNorm shape;
    std::int64_t column = 0, statistics = 0, weight = 0;
  };
  std::array<HeadNorm, 2> head_norms() const;
  const std::byte* norm_weight(const HeadNorm& one) const;  // null: it has none
  bool shares_query_norm() const {  // one norm of all heads, with other ranks
    return shared.model.query_key_norm_whole && shared.shape.tensor > 1;
  }
  bool norms_heads() const {  // of Llama 4, the layers that rotate
    return !shared.model.query_key_unit_norm || shared.model.rotates(layer());
  }
  void query_key_norm(const Node& n) const;
  void query_key_norm_backward(const Node& n) const;
  void query_key_squares(const Node& n, float* sums) const;
  void query_key_products(const Node& n, float* sums) const;
  // Clears the sums over keys, but at the first of the ranks that hold the same key head.
  void keep_one_holder(float* sums) const;

  // ---- body_latent.cc -------------------------------------------------------
  LatentShape latent_shape() const;
  void split_latent(const Node& n) const;
  void join_latent(const Node& n) const;

  // ---- body_experts.cc ------------------------------------------------------
  RouteShape route_shape() const;
  void route(const Node& n);
  void route_backward(const Node& n) const;
  void count_chosen(const Node& n) const;
  template <class Visit>
  void for_each_balanced(const Visit& visit) const;
  void drop_copies(const Node& n) const;
  void sort_copies(const Node& n);
  void sort_rows(const Node& n);
  void sort_visits(const Node& n);
  void gather_weights(const Node& n) const;
  void sum_copies(const Node& n) const;
  void grouped(const Node& n) const;
  // What every member of `ep` sends to every other, in rows of `width` elements.
  void split(const Node& n, std::int64_t width, CollectiveRequest* request);
  // Rows and width of an MLP's activation, dense, of shared experts, or of routed ones: these read
  // the experts' first rows as argument `begin`. Where the host cannot read them, all that there is
  // room for.
  std::pair<std::int64_t, std::int64_t> mlp_shape(const Node& n, std::size_t begin) const;
  ClampedGlu clamped_glu(std::int64_t rows, std::int64_t width) const;
  // The last number of an array of first rows: how many rows there are.
  std::int64_t last_of(const Node& n, std::size_t i) const {
    return ints(r(n, i))[tensor(n, i).bytes / 4 - 1];
  }
  // To the counts; begin: of the experts here.
  void count_rows(const std::int32_t* begin) const;
  // The most rows of one rank's experts, by what all ranks' tokens chose; the most of a slot, by
  // the rows that each of them sends before those for every expert, or every rank.
  void count_most_rows(std::int64_t copies, const std::int32_t* chosen) const;
  void count_most_of_slots(const CountShape& shape, const std::int32_t* begins) const;
  double* most(std::size_t limit) const {
    return counts.most + static_cast<std::int64_t>(limit) * shared.model.layers + layer();
  }
  // Fails where more came than there is room for, if the host can read it now.
  void check_room();

  // ---- body_ends.cc ---------------------------------------------------------
  void add_positions(const Node& n) const;
  void position_gradient(const Node& n) const;
  void whole_loss(const Node& n);
  void row_maxima(const Node& n) const;
  void row_sums(const Node& n) const;
  // The rank's part of it.
  VocabularyShape vocabulary() const;
  // Rows of the chunk whose logits (fp32) the node reads first.
  std::int64_t chunk_rows(const Node& n) const;
};

}  // namespace rehearse::exec
