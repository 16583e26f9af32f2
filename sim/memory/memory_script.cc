// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_script.h"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <string>
#include <string_view>

#include "schedules/body/head_share.h"
#include "schedules/body/kind_plan.h"
#include "schedules/body/sizes.h"
#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"
#include "schedules/model/parts.h"
#include "schedules/scenario/expert_plan.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "sim/formulas/expert_routing.h"

namespace rehearse::sim {
namespace {

constexpr std::int64_t& at(SizeLetters& letters, SizeLetter letter) {
  return letters.value[static_cast<std::size_t>(letter)];
}

// A product that casts its input keeps the cast alone (Transformer Engine, pytorch/module/linear.py
// and layernorm_linear.py: save_for_backward of ln_out and inputmat in fp8); torchao, which casts
// for every product again, keeps the input.
bool keeps_fp8_operands(const Plan& plan) {
  const Fp8Casts casts = plan.runtime.fp8_casts;
  return is_quantized(plan.precision.compute) && casts != Fp8Casts::EachProduct &&
         casts != Fp8Casts::EachRow;
}

// What the backward of a script makes again: nothing, the tensors that its rows mark as dropped, or
// the whole forward.
enum class Remade : std::uint8_t { Nothing, Dropped, Everything };

// How much of a program somebody asks for. A forward does not depend on its backward. Apart: the
// backward in two as well.
enum class Extent : std::uint8_t { Forward, Whole, Apart };

// A script's rows, those of a layer's kinds among them.
struct ScriptRows {
  std::vector<const ScriptRow*> forward, backward;
  std::deque<ScriptRow> of_kinds;  // which stand in no profile
};

// The slots of names. A segment has few, and asks for one at every row.
class SlotNames {
 public:
  SlotNames() { first_.fill(-1); }

  std::size_t size() const { return names_.size(); }
  std::string_view operator[](std::size_t slot) const { return names_[slot]; }
  // The slot of a name, a new one where it has none.
  std::size_t slot(std::string_view name) {
    std::int16_t& first = first_[bucket(name)];
    for (std::int16_t s = first; s >= 0; s = next_[static_cast<std::size_t>(s)]) {
      if (names_[static_cast<std::size_t>(s)] == name) return static_cast<std::size_t>(s);
    }
    next_.push_back(first);
    first = static_cast<std::int16_t>(names_.size());
    names_.push_back(name);
    return names_.size() - 1;
  }

 private:
  static constexpr std::size_t kBuckets = 64;
  static std::size_t bucket(std::string_view name) {
    if (name.empty()) return 0;
    const auto letter = [&](std::size_t i) { return static_cast<unsigned char>(name[i]); };
    return (5 * name.size() + 3 * letter(0) + 7 * letter(name.size() / 2) +
            letter(name.size() - 1)) %
           kBuckets;
  }

  std::vector<std::string_view> names_;
  std::vector<std::int16_t> next_;  // of the same bucket; -1: none
  std::array<std::int16_t, kBuckets> first_{};
};

// Names to slots, and which of them hold a tensor at the present row.
class Compiler {
 public:
  Compiler(const ScriptRows& script, const SizeLetters& letters, Flags flags)
      : script_(script), letters_(letters), flags_(flags) {
    for (const char* name : {"input", "output", "output_gradient", "input_gradient"}) slot(name);
  }

  // What is kept of streams is noted: it is computed again, in blocks of layers.
  void note_streams() { notes_streams_ = true; }
  // What streams are is that kind's (ModelPart::block).
  void hold_streams(std::uint8_t kind) { streams_ = kind; }
  // Of a head whose loss is the root's: there it is of all replicas' tokens.
  void through_root(ReplicaRole role, std::int64_t replicas) {
    role_ = role;
    replicas_ = replicas;
  }

  SegmentProgram compile(Remade remade, bool compiled, Extent extent) {
    remade_ = remade;
    remakes_ = compiled && remade == Remade::Nothing;
    run_forward(program_.forward, Run::First);
    end_forward();
    std::vector<bool> left;
    if (extent == Extent::Apart) left = alive_;
    if (extent != Extent::Forward) run_backward();
    if (extent == Extent::Apart) {
      alive_ = std::move(left);
      alive_.resize(names_.size(), false);
      run_again();
      run_apart();
    }
    program_.slots = static_cast<std::int16_t>(names_.size());
    return std::move(program_);
  }

 private:
  enum class Run { First, Again, DroppedAlone };

  void run_backward() {
    if (remade_ == Remade::Everything) run_forward(program_.backward, Run::Again);
    for (const ScriptRow* at : script_.backward) {
      const ScriptRow& row = *at;
      if (!row.condition.holds(flags_)) continue;
      if (row.act != ScriptRow::Act::Recompute) {
        run_backward(program_.backward, row);
      } else if (remade_ == Remade::Dropped) {
        run_forward(program_.backward, row.whole_forward ? Run::Again : Run::DroppedAlone);
      }
    }
    end_backward(program_.backward);
  }
  // Kinds are spelled out before (with_kinds).
  void run_backward(std::vector<ScriptStep>& steps, const ScriptRow& row) {
    if (row.act == ScriptRow::Act::Allocate) {
      allocate(steps, row, /*kept=*/row.tensor == "input_gradient");
    } else if (row.act == ScriptRow::Act::Free) {
      remake(steps, row.tensor);
      free(steps, row.tensor, row.weight_phase);
    }
  }

  static bool makes_again(const ScriptRow& row) {
    return row.act == ScriptRow::Act::Allocate &&
           (row.again || (row.condition.all & kMakesAgain) != 0);
  }
  // What an R makes: what the backward would have made at its begin or where it needs it. Of a
  // profile's rows that stand in the backward, a tensor that the next row frees is a temporary.
  void run_again() {
    std::vector<ScriptStep>& steps = program_.again;
    if (remade_ == Remade::Everything) run_forward(steps, Run::Again);
    const ScriptRow* made = nullptr;
    for (const ScriptRow* at : script_.backward) {
      if (at->act != ScriptRow::Act::Recompute || !at->condition.holds(flags_)) continue;
      if (remade_ != Remade::Dropped) break;
      run_forward(steps, at->whole_forward ? Run::Again : Run::DroppedAlone);
    }
    for (const ScriptRow* at : script_.backward) {
      if (!at->condition.holds(flags_)) continue;
      if (makes_again(*at)) {
        allocate(steps, *at, true);
      } else if (made != nullptr && at->act == ScriptRow::Act::Free && at->tensor == made->tensor) {
        free(steps, at->tensor);
      }
      made = makes_again(*at) && !at->again ? at : nullptr;  // a kind's lives to its backward
    }
    for (ScriptStep& step : steps) {
      if (step.bytes > 0) step.kept = alive(step.slot);
    }
  }
  void run_apart() {
    for (const ScriptRow* at : script_.backward) {
      if (!at->condition.holds(flags_) || makes_again(*at)) continue;
      run_backward(program_.apart, *at);
    }
    end_backward(program_.apart);
  }

  std::int16_t slot(std::string_view name) {
    const std::size_t found = names_.slot(name);
    if (found == alive_.size()) {
      alive_.push_back(false);
      keep_.push_back(Keep::No);
      bytes_.push_back(0);
    }
    return static_cast<std::int16_t>(found);
  }
  bool alive(std::int16_t s) const { return alive_[static_cast<std::size_t>(s)]; }

  void allocate(std::vector<ScriptStep>& steps, const ScriptRow& row, bool kept) {
    const std::int64_t bytes = letters_.bytes(row.size);
    kind_ = streams_ != 0 && has(row.size, SizeLetter::Streams) ? streams_ : row.block;
    const bool of_loss = role_ != ReplicaRole::Alike && is_of_loss(row.size);
    if (!of_loss) return allocate(steps, row.tensor, bytes, kept);
    const bool forward = &steps == &program_.forward;
    const bool outputs = forward && has(row.size, SizeLetter::Vocabulary) && !outputs_;
    const std::int64_t own = letters_.bytes(kOutputs);
    if (outputs) allocate(steps, "outputs", own, false);  // the replica's, which the root gathers
    outputs_ |= outputs;
    if (role_ == ReplicaRole::Root) {
      allocate(steps, row.tensor, replicas_ * bytes, kept);
    } else if (!forward && has(row.size, SizeLetter::Element)) {
      allocate(steps, row.tensor, own, kept);  // the gradients that come back
    }
    if (outputs) free(steps, "outputs");
  }
  void allocate(std::vector<ScriptStep>& steps, std::string_view tensor, std::int64_t bytes,
                bool kept) {
    const std::int16_t s = slot(tensor);
    if (alive(s) || bytes <= 0) return;
    alive_[static_cast<std::size_t>(s)] = true;
    bytes_[static_cast<std::size_t>(s)] = bytes;
    steps.push_back({.bytes = bytes, .slot = s, .kept = kept, .kind = kind_});
  }
  // A head's tensors of the loss are of tokens and words, not of the hidden columns.
  static bool has(const SizeFormula& size, SizeLetter letter) {
    return std::ranges::any_of(size, [&](const SizeTerm& term) {
      return term.power[static_cast<std::size_t>(letter)] > 0;
    });
  }
  static bool is_of_loss(const SizeFormula& size) {
    return has(size, SizeLetter::Tokens) && !has(size, SizeLetter::Hidden);
  }
  // A cheap tensor of a compiled program, which its last use makes again.
  void remake(std::vector<ScriptStep>& steps, std::string_view name) {
    const std::int16_t s = slot(name);
    const auto at = static_cast<std::size_t>(s);
    if (!remakes_ || keep_[at] != Keep::Cheap || alive(s) || bytes_[at] == 0) return;
    alive_[at] = true;
    steps.push_back({.bytes = bytes_[at], .slot = s, .kind = kind_});
  }
  void free(std::vector<ScriptStep>& steps, std::string_view name, bool weight_phase = false) {
    const std::int16_t s = slot(name);
    const bool handed_over = s == kOutputGradientSlot;  // the neighbour has allocated it
    if (!alive(s) && !handed_over) return;
    alive_[static_cast<std::size_t>(s)] = false;
    steps.push_back({.bytes = 0, .slot = s, .weight_phase = weight_phase});
  }

  bool survives(Keep keep) const {
    switch (remade_) {
      case Remade::Nothing:
        return keep == Keep::Always || keep == Keep::Drop || keep == Keep::Streams ||
               (keep == Keep::Cheap && !remakes_);
      case Remade::Dropped:
        return keep == Keep::Always || keep == Keep::Saved || keep == Keep::Streams;
      case Remade::Everything:
        return false;
    }
    return false;
  }

  bool needed_again(Keep keep) const {
    return keep == Keep::Always || keep == Keep::Drop || keep == Keep::Cheap ||
           keep == Keep::Streams || (keep == Keep::Saved && remade_ == Remade::Dropped);
  }

  // The forward, or its repetition inside the backward: then what is still there is not made again,
  // the output is not handed on, and nothing outlives the op.
  void run_forward(std::vector<ScriptStep>& steps, Run run) {
    const bool again = run != Run::First;
    for (const ScriptRow* at : script_.forward) {
      const ScriptRow& row = *at;
      if (!row.condition.holds(flags_)) continue;
      const bool dropped = row.keep == Keep::Drop || row.keep == Keep::Cheap;
      if (run == Run::DroppedAlone && !dropped) continue;
      if (row.act == ScriptRow::Act::Allocate) {
        if (again && row.tensor == "output") continue;
        const bool kept = !again && (row.tensor == "output" || survives(row.keep));
        keep_[static_cast<std::size_t>(slot(row.tensor))] = row.keep;
        const std::size_t before = steps.size();
        allocate(steps, row, kept);
        if (again || steps.size() == before) continue;
        if (row.tensor == "output") program_.output = steps.back().bytes;
        if (notes_streams_ && row.keep == Keep::Streams) program_.streams.push_back(steps.back());
      } else if (row.act == ScriptRow::Act::Free) {
        // The last use in the forward: autograd (or the repetition) may still hold the tensor.
        const Keep keep = keep_[static_cast<std::size_t>(slot(row.tensor))];
        if (again ? needed_again(keep) : survives(keep)) continue;
        free(steps, row.tensor);
      }
    }
    if (!again) return;
    for (std::size_t s = 0; s < names_.size(); ++s) {  // temporaries without a row of their own
      if (alive_[s] && keep_[s] == Keep::No && s > kInputGradientSlot) free(steps, names_[s]);
    }
  }

  void end_forward() {
    for (std::size_t s = kInputGradientSlot + 1; s < names_.size(); ++s) {
      if (alive_[s] && !survives(keep_[s])) free(program_.forward, names_[s]);
    }
    alive_[kOutputSlot] = false;  // the next segment's
  }

  // Whatever a script forgot to free: the op ends, and autograd has dropped it.
  void end_backward(std::vector<ScriptStep>& steps) {
    for (std::size_t s = kInputGradientSlot + 1; s < names_.size(); ++s) {
      if (alive_[s]) free(steps, names_[s], /*weight_phase=*/true);
    }
  }

  // Logits: e n V.
  inline static const SizeFormula kOutputs = [] {
    SizeTerm term;
    for (const SizeLetter letter :
         {SizeLetter::Element, SizeLetter::Tokens, SizeLetter::Vocabulary}) {
      term.power[static_cast<std::size_t>(letter)] = 1;
    }
    return SizeFormula{term};
  }();

  const ScriptRows& script_;
  const SizeLetters& letters_;
  Flags flags_;
  bool notes_streams_ = false;
  std::uint8_t streams_ = 0;  // 0: nobody's
  std::uint8_t kind_ = 0;     // of the row
  ReplicaRole role_ = ReplicaRole::Alike;
  std::int64_t replicas_ = 1;
  bool outputs_ = false;  // have been there
  Remade remade_ = Remade::Nothing;
  bool remakes_ = false;  // cheap tensors in the backward, with nothing recomputed
  SegmentProgram program_;
  SlotNames names_;
  std::vector<bool> alive_;
  std::vector<Keep> keep_;
  std::vector<std::int64_t> bytes_;  // when last allocated
};

}  // namespace

std::int64_t SizeLetters::bytes(const SizeFormula& formula) const {
  std::int64_t sum = 0;
  for (const SizeTerm& term : formula) {
    std::int64_t product = term.factor;
    for (std::size_t i = 0; i < kNumSizeLetters; ++i) {
      for (int p = 0; p < term.power[i]; ++p) product *= value[i];
    }
    sum += product;
  }
  return sum;
}

namespace {

// y: of n tokens on each of e ranks, D e of which reach a rank where tokens travel once per rank
// that they visit (expert_routing.h); else x. q ranks that share each expert gather theirs.
std::int64_t travelled_rows(const Layout& layout, std::int64_t rows) {
  const ExpertShape& x = layout.shape.experts;
  if (!x.sends_once) return rows;
  const double visits =
      expected_parts(x.routing, layout.plan.expert_parallel) / x.routing.per_token;
  return static_cast<std::int64_t>(static_cast<double>(rows) * visits);
}

}  // namespace

SizeLetters size_letters(const Layout& layout, bool experts) {
  const auto& [model, plan, shape] = layout;
  SizeLetters letters;
  at(letters, SizeLetter::Element) = shape.element;
  at(letters, SizeLetter::Operand) = keeps_fp8_operands(plan) ? 1 : shape.element;
  at(letters, SizeLetter::Tokens) = shape.tokens;
  at(letters, SizeLetter::Local) = shape.local;
  at(letters, SizeLetter::Hidden) = shape.hidden;
  at(letters, SizeLetter::Query) = shape.heads * shape.head_dim;
  at(letters, SizeLetter::KeyValue) = shape.kv_heads * shape.head_dim;
  at(letters, SizeLetter::Qkv) = shape.qkv;
  at(letters, SizeLetter::Ffn) = shape.ffn;
  const bool gathered = plan.runtime.cross_entropy == CrossEntropy::Gathered;
  at(letters, SizeLetter::Vocabulary) = shape.vocabulary * (gathered ? shape.tensor : 1);
  at(letters, SizeLetter::Heads) = shape.heads;
  at(letters, SizeLetter::Scores) = shape.tokens * shape.heads * plan.sequence_length;
  if (const LatentAttention& mla = model.latent; mla.used()) {
    const std::int64_t query = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
    at(letters, SizeLetter::Query) = shape.heads * mla.v_head_dim;
    at(letters, SizeLetter::KeyValue) = shape.heads * query;
    at(letters, SizeLetter::Qkv) = shape.heads * (2 * query + mla.v_head_dim);
    at(letters, SizeLetter::Latent) = 2 * compressed_columns(model) + mla.qk_rope_head_dim;
  }
  if (experts) {
    // R (f/q) of the routed experts and n (fs/t) of the shared ones, per token of n.
    const double limit = row_limit(plan), capacity = limit > 0 ? limit : 1;
    const auto rows = static_cast<std::int64_t>(capacity * static_cast<double>(shape.experts.rows));
    at(letters, SizeLetter::Ffn) = rows * shape.experts.width / shape.tokens + shape.experts.shared;
    at(letters, SizeLetter::ExpertTokens) = rows;
    at(letters, SizeLetter::TravelledRows) = travelled_rows(layout, rows);
    at(letters, SizeLetter::GroupTokens) = shape.experts.block * shape.experts.tokens;
  }
  const HeadShare share = head_share(layout);
  at(letters, SizeLetter::LossTokens) = shape.loss_chunk;
  at(letters, SizeLetter::ContextRanks) = plan.context_parallel;
  at(letters, SizeLetter::ExchangedKeys) =
      at(letters, SizeLetter::KeyValue) / shape.kv_heads * share.kv_heads * share.ranks;
  at(letters, SizeLetter::RowWidth) = experts ? shape.experts.row : shape.hidden;
  at(letters, SizeLetter::GateColumns) = shape.gate;
  at(letters, SizeLetter::Streams) = shape.streams;
  at(letters, SizeLetter::ExpertWidth) = experts ? shape.experts.width : 0;
  at(letters, SizeLetter::Shared) = experts ? shape.experts.shared : 0;
  at(letters, SizeLetter::Up) = matrices_up(model) * at(letters, SizeLetter::Ffn);
  return letters;
}

Flags script_flags(const MemoryProfile& profile, const Layout& layout, bool experts, bool rotates) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  Flags flags = 0;
  const auto set = [&flags](Flag flag, bool on) {
    if (on) flags |= Flags{1} << static_cast<unsigned>(flag);
  };
  const RuntimeTraits& runtime = plan.runtime;
  const bool unfused = !is_fused(plan.attention_kernel);
  const DropoutRates& rates = plan.dropouts;
  const auto drops = [&](double rate) {
    return rate > 0 || (rate < 0 && profile.default_dropout > 0);  // below 0: open, see plan.h
  };
  set(Flag::Dropout, drops(rates.residual));
  set(Flag::AttentionDropout, drops(rates.attention));
  set(Flag::EmbeddingDropout, drops(rates.embedding));
  set(Flag::Flash, !unfused);
  set(Flag::Unfused, unfused);
  set(Flag::Gated, model.mlp == MlpKind::Gated);
  set(Flag::Rope, model.positions == PositionKind::Rope && rotates);
  set(Flag::Learned, model.positions == PositionKind::Learned);
  set(Flag::LayerNorm, model.norm == NormKind::LayerNorm);
  set(Flag::SequenceParallel, plan.sequence_parallel && plan.tensor_parallel > 1);
  set(Flag::Experts, experts);
  set(Flag::Latent, model.latent.used());
  set(Flag::TensorParallel, plan.tensor_parallel > 1);
  set(Flag::FusedLoss, plan.attention_kernel == AttentionKernel::Flash1 ||
                           runtime.cross_entropy == CrossEntropy::Fused);
  set(Flag::KeptGathers, runtime.sequence_gather == SequenceGather::Kept);
  set(Flag::EagerRope, runtime.eager_kernels.rope && !runtime.compiled);
  set(Flag::EagerActivation, runtime.eager_kernels.activation && !runtime.compiled);
  set(Flag::EagerAttention, plan.attention_kernel == AttentionKernel::Eager);
  set(Flag::GroupedExperts, model.experts.count > 0 && runtime.grouped_experts);
  set(Flag::EagerNorm, runtime.eager_kernels.norm && !runtime.compiled);
  set(Flag::NormBefore, model.norm_placement != NormPlacement::After);
  set(Flag::NormBehind, model.norm_placement != NormPlacement::Before);
  set(Flag::ParallelResidual, model.parallel_residual);
  set(Flag::QueryKeyNorm,
      model.query_key_norm || model.query_key_norm_whole || (model.query_key_unit_norm && rotates));
  set(Flag::SoftCap, model.final_softcap > 0);
  set(Flag::AttentionSoftCap, model.attention_softcap > 0);
  set(Flag::GathersTokens, experts && layout.shape.experts.gathers_tokens);
  set(Flag::Fp8Operands, keeps_fp8_operands(plan));
  using R = RecomputePart;
  // Full recomputation runs the whole forward again, so that no row drops anything by itself.
  const auto alone = [&](R part) { return !plan.recompute.is_full() && plan.recomputes(part); };
  // Norms of blocks that read streams are made again with them.
  set(Flag::NormAgain, alone(R::Norm) && !recomputes_streams(model, plan));
  set(Flag::LatentAgain, alone(R::LatentUp));
  set(Flag::ActivationAgain, alone(experts ? R::ExpertActivation : R::MlpActivation));
  set(Flag::MlpAgain, alone(experts ? R::Experts : R::Mlp));
  set(Flag::SharedAgain, experts && alone(R::SharedExperts));
  set(Flag::Fp8Dispatch, experts && plan.fp8_dispatch);
  set(Flag::NoAttention, !model.has_attention);
  set(Flag::NoMixer, !has_mixer(model));
  set(Flag::NoMlp, !model.has_mlp);
  set(Flag::OneNorm, model.one_norm);
  set(Flag::ChunkedLoss, plan.loss_chunks > 1);
  set(Flag::ContextGather, gathers_keys(plan));
  set(Flag::ContextExchange, exchanges_heads(plan));
  return flags;
}

namespace {

// Scripts mark as dropped what the runtime's selective recomputation drops: the attention core's
// outputs, or those of operators.
Remade remade_by(const Plan& plan) {
  if (plan.recompute.is_full()) return Remade::Everything;
  const bool dropped =
      plan.recomputes(RecomputePart::AttentionCore) || plan.recomputes(RecomputePart::Operators);
  return dropped ? Remade::Dropped : Remade::Nothing;
}

// --- Rows of layer kinds

// Whether the backward makes rows again that say so. Full recomputation runs the whole forward
// again, so that no row drops anything by itself.
bool drops(const Plan& plan, KindAgain part) {
  const bool alone = part == KindAgain::DeltaNormOut || part == KindAgain::LatentUp;
  if (!alone || plan.recompute.is_full()) return false;
  return plan.recomputes(part == KindAgain::DeltaNormOut ? RecomputePart::DeltaNormOut
                                                         : RecomputePart::LatentUp);
}

SizeFormula bytes_formula(double bytes) {
  return {SizeTerm{.factor = static_cast<std::int64_t>(bytes)}};
}

// The rows of a forward or a backward where the kinds of a segment stand in the place that the
// script has for them. What a kind saves lives from the forward's place to the backward's; what its
// kernels work in, while they run. `own`: where the kinds' rows are kept.
std::vector<const ScriptRow*> with_kinds(const std::vector<ScriptRow>& rows,
                                         const std::vector<BoundKind>& kinds, const Layout& layout,
                                         bool forward, std::deque<ScriptRow>& own) {
  std::vector<const ScriptRow*> all;
  all.reserve(rows.size());
  for (const ScriptRow& row : rows) {
    if (row.act != ScriptRow::Act::Mixer) {
      all.push_back(&row);
      continue;
    }
    std::int32_t number = 0;
    for (const BoundKind& mixer : kinds) {
      const auto block = static_cast<std::uint8_t>(kFirstKind + number);
      const std::string prefix = mixer.kind->name + std::to_string(number++) + ".";
      const KindPlan plan = kind_plan(layout);
      const std::vector<double> slots = slots_of(mixer, plan);
      const auto bytes = [&](const Expression& of) { return of.given() ? of.number(slots) : 0; };
      const auto act = [&](ScriptRow::Act what, const std::string& name, double size, Keep keep,
                           bool again = false) {
        all.push_back(&own.emplace_back(ScriptRow{.act = what,
                                                  .tensor = prefix + name,
                                                  .size = bytes_formula(size),
                                                  .keep = keep,
                                                  .condition = {},
                                                  .block = block,
                                                  .again = again}));
      };
      using Act = ScriptRow::Act;
      const double workspace =
          bytes(forward ? mixer.kind->forward_workspace : mixer.kind->backward_workspace);
      act(Act::Allocate, "workspace", workspace, Keep::No);
      for (const KindRow& saved : mixer.kind->saved) {
        const RankShape& s = layout.shape;
        const std::int64_t share = saved.cut == KindRow::Cut::Tensor     ? s.tensor
                                   : saved.cut == KindRow::Cut::Sequence ? s.tokens / s.local
                                                                         : 1;
        const double size =
            bytes(saved.bytes) * static_cast<double>(s.tokens) / static_cast<double>(share);
        const bool dropped = drops(layout.plan, saved.dropped_by);
        const Keep keep = dropped                                          ? Keep::No
                          : saved.dropped_by == KindAgain::ResidualStreams ? Keep::Streams
                                                                           : Keep::Always;
        if (forward || dropped) act(Act::Allocate, saved.name, size, keep, !forward);
        if (forward && dropped) act(Act::Free, saved.name, 0, Keep::No);
        if (!forward) act(Act::Free, saved.name, 0, Keep::No);
      }
      act(Act::Free, "workspace", 0, Keep::No);
    }
  }
  return all;
}

// The last kind of a layer that holds its streams; 0: none does.
std::uint8_t streams_kind(const Transformer& model) {
  const std::vector<BoundKind>& mixers = mixers_of(model);
  for (std::size_t i = mixers.size(); i-- > 0;) {
    if (holds_streams(*mixers[i].kind)) return static_cast<std::uint8_t>(kFirstKind + i);
  }
  return 0;
}

SegmentProgram compiled(const SegmentScript& script, const std::vector<BoundKind>& kinds,
                        const MemoryProfile& profile, const Layout& layout, bool experts,
                        bool rotates, Remade remade, Extent extent,
                        ReplicaRole role = ReplicaRole::Alike) {
  ScriptRows rows;
  rows.forward = with_kinds(script.forward, kinds, layout, /*forward=*/true, rows.of_kinds);
  if (extent != Extent::Forward) {
    rows.backward = with_kinds(script.backward, kinds, layout, /*forward=*/false, rows.of_kinds);
  }
  const SizeLetters letters = size_letters(layout, experts);
  Compiler compiler(rows, letters, script_flags(profile, layout, experts, rotates));
  compiler.through_root(role, layout.plan.replicas());
  if (recomputes_streams(layout.model, layout.plan)) compiler.note_streams();
  const std::uint8_t streams = streams_kind(layout.model);
  compiler.hold_streams(streams);
  SegmentProgram program = compiler.compile(remade, layout.plan.runtime.compiled, extent);
  program.input_kind = has_mixer(layout.model) ? kFirstBlock : kSecondBlock;
  if (streams > 0) program.input_kind = streams;
  return program;
}

SegmentProgram layer_program(const MemoryProfile& profile, const Layout& layout, std::int32_t index,
                             bool rotates, Extent extent);

SegmentProgram segment_program(const MemoryProfile& profile, const Layout& layout,
                               SegmentShape shape, bool rotates, Extent extent) {
  const auto layer = [&](bool experts) {
    return compiled(profile.layer, mixers_of(layout.model), profile, layout, experts, rotates,
                    remade_by(layout.plan), extent);
  };
  const auto other = [&](const SegmentScript& script, const std::vector<BoundKind>& kinds = {}) {
    return compiled(script, kinds, profile, layout, /*experts=*/false, rotates, Remade::Nothing,
                    extent);
  };
  switch (shape) {
    case SegmentShape::Embedding:
      return other(profile.embedding, kinds_at_embedding(layout.model));
    case SegmentShape::DenseLayer:
      return layer(false);
    case SegmentShape::ExpertLayer:
      return layer(true);
    case SegmentShape::PredictionLayer: {
      std::vector<SegmentProgram> parts;
      if (!profile.prediction.forward.empty()) parts.push_back(other(profile.prediction));
      const std::int32_t like = variant_of(layout.model, layout.model.layers);
      if (like >= 0) {
        parts.push_back(layer_program(profile, layout, like, rotates, extent));
      } else {
        parts.push_back(layer(layout.model.has_experts(layout.model.layers - 1)));
      }
      return chained(parts);
    }
    case SegmentShape::Head:
      break;
  }
  SegmentProgram head = other(profile.head, kinds_at_head(layout.model));
  if (layout.prediction_layers() == 0) return head;
  return chained(
      std::vector<SegmentProgram>(static_cast<std::size_t>(1 + layout.prediction_layers()), head));
}

SegmentProgram layer_program(const MemoryProfile& profile, const Layout& layout, std::int32_t index,
                             bool rotates, Extent extent) {
  const Transformer& of = variant(layout.model, index);
  return segment_program(
      profile, {of, layout.plan},
      of.experts.count > 0 ? SegmentShape::ExpertLayer : SegmentShape::DenseLayer, rotates, extent);
}

}  // namespace

SegmentProgram layer_program(const MemoryProfile& profile, const Layout& layout, std::int32_t index,
                             bool rotates) {
  return layer_program(profile, layout, index, rotates, Extent::Whole);
}

SegmentProgram segment_program(const MemoryProfile& profile, const Layout& layout,
                               SegmentShape shape, bool rotates) {
  return segment_program(profile, layout, shape, rotates, Extent::Whole);
}

ForwardBytes layer_forward_bytes(const MemoryProfile& profile, const Layout& layout,
                                 std::int32_t index, bool rotates) {
  return forward_bytes(layer_program(profile, layout, index, rotates, Extent::Forward));
}

ForwardBytes segment_forward_bytes(const MemoryProfile& profile, const Layout& layout,
                                   SegmentShape shape, bool rotates) {
  return forward_bytes(segment_program(profile, layout, shape, rotates, Extent::Forward));
}

SegmentPrograms segment_programs(const MemoryProfile& profile, const Layout& layout,
                                 ReplicaRole role, bool apart) {
  const Extent extent = apart ? Extent::Apart : Extent::Whole;
  SegmentPrograms programs;
  programs.rotating.resize(segment_classes(layout.model));
  programs.still.resize(programs.rotating.size());
  const bool mixed = variants(layout.model) > 0;
  for (std::size_t i = 0; i < kNumSegmentShapes; ++i) {
    const auto shape = static_cast<SegmentShape>(i);
    if (shape == SegmentShape::DenseLayer && mixed) continue;
    if (shape == SegmentShape::ExpertLayer && (mixed || layout.model.experts.count == 0)) continue;
    if (shape == SegmentShape::PredictionLayer && layout.prediction_layers() == 0) continue;
    programs.rotating[i] = segment_program(profile, layout, shape, /*rotates=*/true, extent);
    programs.still[i] = segment_program(profile, layout, shape, /*rotates=*/false, extent);
  }
  if (role != ReplicaRole::Alike) {
    const auto head = static_cast<std::size_t>(SegmentShape::Head);
    programs.rotating[head] = programs.still[head] =
        compiled(profile.head, {}, profile, layout, /*experts=*/false, /*rotates=*/true,
                 Remade::Nothing, extent, role);
  }
  for (std::int32_t i = 0; i < variants(layout.model); ++i) {
    const std::size_t at = kNumSegmentShapes + static_cast<std::size_t>(i);
    programs.rotating[at] = layer_program(profile, layout, i, /*rotates=*/true, extent);
    programs.still[at] = layer_program(profile, layout, i, /*rotates=*/false, extent);
  }
  if (layout.plan.recompute.any() && layout.plan.recompute_layers > 0) {
    const Plan plan = plan_of_kept_layers(layout.plan);
    programs.kept.push_back(
        segment_programs(profile, {layout.model, plan}, ReplicaRole::Alike, apart));
  }
  return programs;
}

const SegmentProgram& of_segment(const SegmentPrograms& programs, const Layout& layout,
                                 const SegmentInfo& segment) {
  const Transformer& model = layout.model;
  const bool keeps = !programs.kept.empty() && segment.kind == SegmentKind::Layer &&
                     keeps_layer(layout.plan, segment.layer);
  const SegmentPrograms& from = keeps ? programs.kept.front() : programs;
  const std::size_t of = segment_class(model, segment);
  return rotates(model, segment) ? from.rotating[of] : from.still[of];
}

// Between two programs lie an activation, which the second keeps as its input, and its gradient.
SegmentProgram chained(std::span<const SegmentProgram> programs) {
  SegmentProgram whole{.slots = kInputGradientSlot + 1};
  std::vector<std::vector<std::int16_t>> slots;  // of each program, in the whole
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const bool first = i == 0, last = i + 1 == programs.size();
    std::vector<std::int16_t> own(static_cast<std::size_t>(programs[i].slots));
    for (std::int16_t& slot : own) slot = whole.slots++;
    own[kInputSlot] = first ? std::int16_t{kInputSlot} : slots.back()[kOutputSlot];
    own[kInputGradientSlot] =
        first ? std::int16_t{kInputGradientSlot} : slots.back()[kOutputGradientSlot];
    if (last) {
      own[kOutputSlot] = kOutputSlot;
      own[kOutputGradientSlot] = kOutputGradientSlot;
    }
    slots.push_back(std::move(own));
  }
  const auto add = [](std::vector<ScriptStep>& to, const std::vector<ScriptStep>& steps,
                      const std::vector<std::int16_t>& own) {
    for (ScriptStep step : steps) {
      step.slot = own[static_cast<std::size_t>(step.slot)];
      to.push_back(step);
    }
  };
  for (std::size_t i = 0; i < programs.size(); ++i) {
    add(whole.forward, programs[i].forward, slots[i]);
  }
  for (std::size_t i = 0; i < programs.size(); ++i) {
    add(whole.streams, programs[i].streams, slots[i]);
  }
  whole.output = programs.empty() ? 0 : programs.back().output;
  whole.own_block = true;
  for (std::size_t i = 0; i < programs.size(); ++i) add(whole.again, programs[i].again, slots[i]);
  for (auto steps : {&SegmentProgram::backward, &SegmentProgram::apart}) {
    std::vector<ScriptStep>& to = whole.*steps;
    for (std::size_t i = programs.size(); i-- > 0;) {
      add(to, programs[i].*steps, slots[i]);
      if (i + 1 < programs.size()) to.push_back({.slot = slots[i][kOutputGradientSlot]});
      if (i > 0) to.push_back({.slot = slots[i][kInputSlot]});
    }
  }
  return whole;
}

// What a block of layers drops: the streams between blocks, the output among them, stay of its last
// layer alone.
ForwardBytes forward_bytes(const SegmentProgram& program) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(program.slots), 0);
  ForwardBytes bytes;
  for (const ScriptStep& step : program.forward) {
    std::int64_t& slot = held[static_cast<std::size_t>(step.slot)];
    bytes.kept += step.bytes - slot;
    slot = step.bytes;
    bytes.peak = std::max(bytes.peak, bytes.kept);
  }
  for (const ScriptStep& step : program.streams) bytes.kept -= step.bytes;
  if (!program.streams.empty()) bytes.kept -= program.output;
  return bytes;
}

std::int64_t kept_bytes(const SegmentProgram& program, std::int64_t handover) {
  std::vector<std::int64_t> held(
      std::max<std::size_t>(static_cast<std::size_t>(program.slots), kInputGradientSlot + 1), 0);
  held[kInputSlot] = handover;
  for (const ScriptStep& step : program.forward) {
    held[static_cast<std::size_t>(step.slot)] = step.bytes;
  }
  held[kOutputSlot] = 0;
  for (const ScriptStep& step : program.streams) held[static_cast<std::size_t>(step.slot)] = 0;
  return std::accumulate(held.begin(), held.end(), std::int64_t{0});
}

}  // namespace rehearse::sim
