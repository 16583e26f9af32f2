// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_letters.h"

#include "schedules/body/head_share.h"
#include "schedules/body/kind_plan.h"
#include "schedules/body/sizes.h"
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

}  // namespace rehearse::sim
