// SPDX-License-Identifier: Apache-2.0
// A kind of layer as its file says it (scenarios/layers/NAME.json): what one block inside a
// residual is made of, what it runs, what it keeps, and which plans may cut it.
//
// Sizes are expressions over the kind's symbols, what it derives from them (`let`), and the plan's
// numbers: T tokens of a micro-batch on a rank, `local` of them where sequence parallelism cuts
// what joins the residual, b samples, s positions, e bytes of an element, the ranks tp, cp, ep, and
// `index_loss`, over which keys an indexer is trained.
// The norm before the block, the residual sum behind it and dropout belong to the block. Attention,
// latent attention, MLP and experts have files too, for their tensors' names and shapes; what they
// run and keep is code (framework_layer.cc) and the runtimes' profiles.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/base/result.h"
#include "schedules/model/kinds/expression.h"
#include "schedules/model/layer_mix.h"
#include "schedules/model/parts.h"

namespace rehearse {

// What code of ours builds instead of a file's nodes.
enum class BuiltIn : std::uint8_t { No, Attention, Latent, Mlp, Experts };

struct KindTensor {
  std::string name;         // in files, "{router}" a symbol that stands for a word
  std::string weight_name;  // for people: name.weight
  std::string bias_name;
  std::vector<Expression> shape, blocks;
  Cut cut = Cut::None;
  PartUse use = PartUse::Product;
  Expression when, bias;         // not given: always; never
  bool parameter = false;        // no `.weight` behind the name
  bool muon = true;              // Muon orthogonalizes it, where it is a product
  std::int32_t fused_with = -1;  // frameworks run the product of that tensor with this one's
};

// Parts of plan.recompute that a kind's file may name.
enum class KindAgain : std::uint8_t { None, DeltaNormOut, LatentUp, ResidualStreams };

struct KindNode {
  enum class Op : std::uint8_t { Product, ProductGradients, Kernel, Exchange, Attention };
  enum class Class : std::uint8_t { Elementwise, Norm, Scan, Convolution };
  enum class Collective : std::uint8_t { None, GatherSequence, ScatterSequence, Reduce };
  Op op{};
  std::int32_t tensor = -1;
  Collective collective = Collective::None;
  Class kernel_class = Class::Elementwise;
  std::string name;
  Expression when, flops, bytes, serial;
  Expression tiles;       // of attention: blocks of 128 queries of a head, which share the SMs
  bool gathers = false;   // an exchange that gives every rank all
  bool local = false;     // a product of the rank's shard of the sequence alone
  bool detached = false;  // gradients of a product that go no further than its tensor
  KindAgain again = KindAgain::None;  // which part's recomputation runs it in a backward
  std::int32_t kernels = 1;           // launches; of an exchange its calls
  double rate = 1;                    // share of the architecture's rate of scans that it reaches
};

// Bytes per token that the forward keeps for the backward.
struct KindRow {
  enum class Cut : std::uint8_t { None, Tensor, Sequence };
  std::string name;
  Expression bytes;
  Cut cut = Cut::None;
  KindAgain dropped_by = KindAgain::None;
};

struct LayerKind {
  std::string name, path;
  BuiltIn built_in = BuiltIn::No;
  std::vector<std::string> symbols;  // and the value of those that a mapping leaves out
  std::vector<Expression> otherwise;
  std::vector<std::string> lets;
  std::vector<Expression> let;
  std::vector<Expression> needs;
  std::vector<KindTensor> tensors;
  std::vector<KindNode> forward, backward;
  std::vector<KindRow> saved;
  Expression forward_workspace, backward_workspace;  // [B] that live while the kernels run

  std::int32_t symbol(std::string_view name) const;  // -1: none
};

// The plan's numbers that expressions may name, and their names there, in the same order.
struct KindPlan {
  std::int64_t tokens = 1, samples = 1, sequence = 1, element = 2;
  std::int64_t tensor = 1, context = 1, expert = 1;
  std::int64_t local = 1;
  std::int64_t index_loss = 0;  // of an indexer: 1 over the keys that it picked, 2 over all
};
inline constexpr std::array<std::string_view, 9> kKindPlanNames{
    "T", "b", "s", "e", "tp", "cp", "ep", "local", "index_loss"};

// Whether it stands for the residual sum and holds the streams between blocks (hyper-connections).
bool holds_streams(const LayerKind& kind);

// The shipped kind of that name, read once. Errors: one line, "FILE:LINE: KEY: what is wrong".
Result<const LayerKind*> layer_kind(const std::string& name);
// The same of one's own text, for tests.
Result<const LayerKind*> parse_layer_kind(const JsonValue& document, const std::string& path);
const KeyTable& layer_kind_key_table();

// --- A bound kind's numbers

// Symbols, lets and the plan's numbers in the order of the file's expressions.
std::vector<double> slots_of(const BoundKind& bound, const KindPlan& plan);
// Checks what a file's expressions give for these symbols: shapes in whole numbers, blocks that
// make the rows. Errors: one line that names the kind, the place and the values.
Result<> check_bound(const BoundKind& bound);
// The condition of the plan that does not hold, with its numbers; empty: all do.
std::string unmet_need(const BoundKind& bound, const KindPlan& plan);
// Its tensors, whole.
std::vector<ModelPart> parts_of(const BoundKind& bound);
// Whether a loss of its own trains what picks its keys: it has nodes for that.
bool trains_indexer(const BoundKind& bound);
// FLOPs of the kernels and products of one forward.
double forward_flops(const BoundKind& bound, const KindPlan& plan);

// The shape of a tensor, as files have it. `words`: what stands for the symbols in its name.
struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
};
using SymbolWords = std::vector<std::pair<std::string, std::string>>;
Result<std::vector<NamedShape>> tensor_shapes(const BoundKind& bound, const SymbolWords& words);

}  // namespace rehearse
