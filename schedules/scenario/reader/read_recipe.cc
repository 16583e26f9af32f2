// SPDX-License-Identifier: Apache-2.0
// How the numbers are computed: precision, optimizer, attention and dropout.
#include <algorithm>
#include <array>

#include "schedules/model/layer_mix.h"
#include "schedules/scenario/keys/precision_rows.h"
#include "schedules/scenario/memory/optimizer_state.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {

void read_precision(const GivenKeys& keys, Plan& plan) {
  const JsonValue* given_precision = keys.given(&Plan::precision);
  Precision& to = plan.precision;
  if (given_precision != nullptr && given_precision->is(JsonKind::Object)) {
    to.name = "custom";
    to.optimizer = 4 + counted_bytes(row_of(plan.optimizer));
    for (const PrecisionRow& row : precision_rows()) {
      const JsonValue* member = given_precision->given(row.key.name);
      if (member == nullptr) continue;
      if (row.bytes != nullptr) {
        to.*row.bytes = static_cast<std::int32_t>(member->integer);
      } else {
        to.compute = enum_of<ComputeType>(member->text, kComputeTypeNames);
      }
    }
    return;
  }
  to = precision_named(given_precision == nullptr ? to.name : given_precision->text, plan);
}

namespace {

// The rate of a place of which neither plan nor model file says anything: the runtime's, priced
// where attention is no one kernel; else it stays open (-1, see plan.h), unless nothing is dropped.
// Classes with RMS norms (Llama and its kin) drop in attention alone: of them a file that says one
// rate has said all, and nothing stays open. A runtime may drop of every model alike.
double unsaid_rate(const Transformer& model, const Plan& plan) {
  const DropoutRates& said = model.dropouts;
  const bool says_one = std::max({said.residual, said.attention, said.embedding}) >= 0;
  const bool rms = model.norm == NormKind::RmsNorm;
  const double unsaid = plan.runtime.performer().unsaid_dropout;
  if (plan.runtime.dropout_by_default) return unsaid;
  if (unsaid <= 0 || (rms && (says_one || plan.flash_attention))) return 0;
  return plan.flash_attention ? -1 : unsaid;
}

// The plan's one rate for every place, else for each place what the model file says, 0 too.
void read_dropout(const GivenKeys& keys, Plan& plan) {
  const Transformer* model = keys.context.model;
  if (const JsonValue* dropout = keys.given(&Plan::dropout)) {
    plan.dropouts = {dropout->number, dropout->number, dropout->number};
    if (dropout->number >= 1) keys.fail(&Plan::dropout, "must be less than 1");
  } else if (model != nullptr) {
    const double unsaid = unsaid_rate(*model, plan);
    const auto rate = [unsaid](double said) { return said >= 0 ? said : unsaid; };
    plan.dropouts = {.residual = rate(model->dropouts.residual),
                     .attention = rate(model->dropouts.attention),
                     .embedding = rate(model->dropouts.embedding)};
  }
  plan.dropout = std::max(plan.dropouts.residual, 0.0);
}

// What R ranks must divide that exchange heads, of layers whose attention is alike; empty: nothing.
std::string unfit_heads(const Transformer& model, const Plan& plan, std::int64_t ranks) {
  if (!model.has_attention) return {};
  const std::int64_t t = plan.tensor_parallel;
  const std::int64_t kv = std::max<std::int64_t>(model.kv_heads / t, 1);
  const bool all = ranks == plan.context_parallel;
  const std::string text = std::string(all ? "all_to_all: tensor x context parallel = "
                                           : "a2a+p2p: tensor parallel x head_exchange_group = ") +
                           product({t, ranks}) + " = " + number(t * ranks);
  if (model.heads % (t * ranks) != 0) {
    return text + " does not divide num_attention_heads " + number(model.heads);
  }
  if (kv % ranks != 0 && ranks % kv != 0) {
    return text + " neither divides num_key_value_heads " + number(model.kv_heads) +
           " nor is a multiple of it";
  }
  return {};
}
std::string unfit_heads(const GivenKeys& keys, const Plan& plan, std::int64_t ranks) {
  const Transformer* model = keys.context.model;
  if (model == nullptr) return {};
  for (std::int32_t i = variants(*model) > 0 ? 0 : -1; i < variants(*model); ++i) {
    if (std::string unfit = unfit_heads(variant(*model, i), plan, ranks); !unfit.empty())
      return unfit;
  }
  return {};
}

// Whether every rank gets key heads of its own, none of them twice.
bool repeats_no_key_head(const GivenKeys& keys, const Plan& plan, std::int64_t ranks) {
  const Transformer* model = keys.context.model;
  if (model == nullptr) return true;
  for (std::int32_t i = variants(*model) > 0 ? 0 : -1; i < variants(*model); ++i) {
    const Transformer& one = variant(*model, i);
    if (one.has_attention && one.kv_heads % (plan.tensor_parallel * ranks) != 0) return false;
  }
  return true;
}

// Ranks of a context group that a node holds: those of the axes that vary faster lie between two.
std::int32_t context_in_node(const GivenKeys& keys, const Plan& plan) {
  std::int64_t between = 1;
  for (const Axis axis : plan.rank_order) {
    if (axis == Axis::Context) break;
    between *= axis == Axis::Tensor     ? plan.tensor_parallel
               : axis == Axis::Data     ? plan.data_parallel
               : axis == Axis::Pipeline ? plan.pipeline_parallel
                                        : 1;
  }
  return static_cast<std::int32_t>(keys.context.gpus_per_node / between);
}

// Neighbours that exchange heads inside a ring, where the plan does not say: the most that have
// whole heads, of a node if there are such, and without a key head twice if there are such; 0: none
// have.
std::int32_t usual_head_exchange(const GivenKeys& keys, const Plan& plan) {
  const std::int32_t in_node = context_in_node(keys, plan);
  std::int32_t found = 0;
  std::array<bool, 2> best{};  // in a node, no key head twice
  for (std::int32_t ranks = plan.context_parallel / 2; ranks > 1; --ranks) {
    if (plan.context_parallel % ranks != 0 || !unfit_heads(keys, plan, ranks).empty()) continue;
    const std::array<bool, 2> is{ranks <= in_node, repeats_no_key_head(keys, plan, ranks)};
    if (found > 0 && is <= best) continue;
    found = ranks;
    best = is;
  }
  return found;
}

void read_head_exchange_group(const GivenKeys& keys, Plan& plan) {
  const bool said = keys.given(&Plan::head_exchange_group) != nullptr;
  if (plan.context_parallel == 1 ||
      plan.context_parallel_algorithm != ContextParallelAlgorithm::AllToAllAndRing) {
    plan.head_exchange_group = 0;
    return;
  }
  if (!said) plan.head_exchange_group = usual_head_exchange(keys, plan);
  const std::int32_t ranks = plan.head_exchange_group, c = plan.context_parallel;
  if (ranks == 0) {
    return keys.fail(
        &Plan::context_parallel_algorithm,
        "a2a+p2p: no part of " + number(c) + " ranks has whole heads and leaves a ring across");
  }
  if (ranks == c) {
    return keys.fail(&Plan::head_exchange_group,
                     number(c) + " is context_parallel: no ring is left across (all_to_all)");
  }
  keys.divides(&Plan::head_exchange_group, ranks, "context_parallel", c);
}

// How ranks that share a sequence meet its keys.
void read_context_parallel(const GivenKeys& keys, Plan& plan) {
  if (keys.given(&Plan::context_parallel_algorithm) == nullptr) {
    plan.context_parallel_algorithm = plan.runtime.context_parallel_algorithm;
  }
  read_head_exchange_group(keys, plan);
  const std::int32_t ranks = plan.exchanging_ranks();
  if (!keys.report.ok() || ranks == 1) return;
  if (plan.sequence_slices > 1) {
    return keys.fail(&Plan::context_parallel_algorithm,
                     std::string(name_of(plan.context_parallel_algorithm)) +
                         " brings whole sequences: none of slices",
                     true);
  }
  if (const std::string unfit = unfit_heads(keys, plan, ranks); !unfit.empty()) {
    keys.fail(&Plan::context_parallel_algorithm, unfit);
  }
}

}  // namespace

void read_attention(const GivenKeys& keys, Plan& plan) {
  const JsonValue* flash = keys.given(&Plan::flash_attention);
  const JsonValue* kernel = keys.given(&Plan::attention_kernel);
  plan.attention_kernel = plan.runtime.attention_kernel;
  if (flash != nullptr && flash->boolean != is_fused(plan.attention_kernel)) {
    plan.attention_kernel = flash->boolean ? AttentionKernel::Flash2 : AttentionKernel::Unfused;
  }
  if (kernel != nullptr) {
    plan.attention_kernel = enum_of<AttentionKernel>(kernel->text, kAttentionKernelNames);
  }
  plan.flash_attention = is_fused(plan.attention_kernel);
  if (plan.indexer_loss != IndexerLoss::None && keys.context.model != nullptr &&
      !has_indexer(*keys.context.model)) {
    keys.warnings.push_back("plan." + path_of(&Plan::indexer_loss) +
                            " changes nothing: the model has no indexer that picks the keys of "
                            "attention");
  }
  if (flash != nullptr && kernel != nullptr && flash->boolean != plan.flash_attention) {
    keys.fail(&Plan::attention_kernel,
              kernel->text + " contradicts flash_attention " + (flash->boolean ? "true" : "false"));
  }
  read_dropout(keys, plan);
  read_context_parallel(keys, plan);
}

namespace {

std::string optimizers_run() {
  std::vector<std::string_view> run;
  for (const OptimizerRow& row : kOptimizers) {
    if (row.run()) run.push_back(row.name);
  }
  std::string names;
  for (std::size_t i = 0; i < run.size(); ++i) {
    if (i > 0) names += i + 1 == run.size() ? " and " : ", ";
    names += run[i];
  }
  return names;
}

void read_documents(const GivenKeys& keys, Plan& plan) {
  const JsonValue* given = keys.given(&Plan::document_length);
  if (given == nullptr) return;
  plan.document_length = given->number;
  if (given->is(JsonKind::Object)) {
    plan.document_length = given->given("mean")->number;
    plan.document_maximum = given->given("maximum")->integer;
    if (static_cast<double>(plan.document_maximum) < plan.document_length) {
      return keys.fail(&Plan::document_length, "the maximum is below the mean");
    }
  }
  if (!plan.flash_attention) {
    keys.fail(&Plan::document_length, "attention inside documents needs a fused kernel");
  }
}

}  // namespace

// What trains today beside AdamW in 16 and 8 bit.
void read_recipe(const GivenKeys& keys, Plan& plan) {
  const bool own = plan.runtime.own_executor;
  const OptimizerRow& row = row_of(plan.optimizer);
  const std::string name(row.name);
  if (own && !row.run()) {
    if (keys.names_runtime()) {
      return keys.fail(&Plan::optimizer, "runtime " + plan.runtime.name + " has " +
                                             optimizers_run() + " alone, not " + name);
    }
    plan.optimizer = {};  // `run` refuses the key
  }
  if (plan.offload.optimizer && !row.on_host && !(own && row.run())) {
    return keys.fail(&Plan::optimizer, name + " is not priced with its states in host memory");
  }
  if (row.form != MomentForm::Whole && plan.precision.optimizer < 8) {
    return keys.fail(&Plan::optimizer,
                     name + " needs 8 bytes per parameter of precision.optimizer, or more");
  }
  if (is_block_scaled(plan.precision.compute) && own) {
    return keys.fail(&Plan::precision, "runtime " + plan.runtime.name + " has no products in " +
                                           std::string(name_of(plan.precision.compute)));
  }
  read_documents(keys, plan);
}

}  // namespace rehearse
