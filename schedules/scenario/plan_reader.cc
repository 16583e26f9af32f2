// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/plan_reader.h"

#include <algorithm>
#include <array>

#include "schedules/base/counted.h"
#include "schedules/order/registry.h"
#include "schedules/runtime/runtime_file.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/expert_plan.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/plan_notes.h"
#include "schedules/scenario/recompute_parts.h"
#include "schedules/scenario/scenario.h"
#include "schedules/scenario/stage_layers.h"

namespace rehearse {
namespace {

constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr double kMaxScores = 0x1p58;  // attention probabilities of a micro-batch

std::string number(std::int64_t value) {
  return std::to_string(value);
}

// "4 x 2 x 1" and the like, for messages about products.
std::string product(std::initializer_list<std::int64_t> factors) {
  std::string text;
  for (const std::int64_t factor : factors) text += (text.empty() ? "" : " x ") + number(factor);
  return text;
}

template <class Enum, std::size_t N>
Enum enum_of(std::string_view text, const std::array<std::string_view, N>& names) {
  const auto found = std::ranges::find(names, text);
  return static_cast<Enum>(found - names.begin());
}

class PlanReader {
 public:
  PlanReader(const JsonValue& plan, const PlanContext& context, JsonReport& report,
             std::vector<std::string>& warnings)
      : json_(plan), context_(context), report_(report), warnings_(warnings) {}

  Plan read() {
    // Each step needs the ones before it, so the first error ends the reading.
    for (const auto step :
         {&PlanReader::tensor_fits, &PlanReader::sizes, &PlanReader::schedule, &PlanReader::batches,
          &PlanReader::layers, &PlanReader::memory, &PlanReader::attention, &PlanReader::recipe,
          &PlanReader::overlap, &PlanReader::order, &PlanReader::experts}) {
      (this->*step)();
      if (!report_.ok()) break;
    }
    return plan_;
  }

 private:
  const JsonValue* given(std::string_view key) const { return json_.given(key); }
  void fail(std::string_view key, const std::string& what, bool unsupported = false) {
    const std::size_t dot = key.find('.');  // "overlap.expert_parallel": of an object's member
    const JsonMember* member = json_.find(key.substr(0, dot));
    if (dot != std::string_view::npos && member != nullptr) {
      member = member->value.find(key.substr(dot + 1));
    }
    report_.fail(member == nullptr ? json_.line : member->line, "plan." + std::string(key), what,
                 unsupported);
  }
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const {
    const JsonValue* value = given(key);
    return value == nullptr ? otherwise : value->integer;
  }
  std::int32_t size(std::string_view key, std::int32_t otherwise) const {
    return static_cast<std::int32_t>(integer(key, otherwise));
  }
  bool flag(std::string_view key, bool otherwise) const {
    const JsonValue* value = given(key);
    return value == nullptr ? otherwise : value->boolean;
  }
  template <class Enum, std::size_t N>
  void choose(std::string_view key, const std::array<std::string_view, N>& names, Enum& to) const {
    if (const JsonValue* value = given(key)) to = enum_of<Enum>(value->text, names);
  }

  void tensor_fits();
  void sizes();
  void shard_group();
  void schedule();
  void named_schedule(const std::string& name);
  void batches();
  void layers();
  void place_predictions(const StageLayout& layout);
  void memory();
  void recompute();
  void runtime();
  void profile();
  void precision();
  void attention();
  void recipe();
  void overlap();
  void order();
  void experts();
  void divides(std::string_view key, std::int64_t size, std::string_view what, std::int64_t value);

  const JsonValue& json_;
  const PlanContext& context_;
  JsonReport& report_;
  std::vector<std::string>& warnings_;
  Plan plan_;
};

// What t must divide: a wrong t is said before the product of sizes that follows from it.
void PlanReader::tensor_fits() {
  plan_.tensor_parallel = size("tensor_parallel", 1);
  if (context_.model == nullptr) return;
  const Transformer& model = *context_.model;
  const std::int64_t t = plan_.tensor_parallel;
  divides("tensor_parallel", t, "num_attention_heads", model.heads);
  const bool dense =
      model.experts.count == 0 || model.experts.first_layer > 0 || model.experts.layer_step > 1;
  if (dense) divides("tensor_parallel", t, "intermediate_size", model.ffn_hidden);
  if (model.experts.count > 0 && model.experts.shared_ffn_hidden > 0) {
    divides("tensor_parallel", t, "the width of the shared experts",
            model.experts.shared_ffn_hidden);
  }
  if (model.latent.kv_lora_rank == 0 && model.kv_heads % t != 0 && t % model.kv_heads != 0) {
    fail("tensor_parallel", number(t) + " neither divides num_key_value_heads " +
                                number(model.kv_heads) + " nor is a multiple of it");
  }
}

// The mesh: t p c d = gpus, the remaining one derived.
void PlanReader::sizes() {
  plan_.pipeline_parallel = size("pipeline_parallel", 1);
  plan_.context_parallel = size("context_parallel", 1);
  plan_.expert_parallel = size("expert_parallel", 1);
  plan_.zero_stage = size("zero_stage", 0);
  plan_.sequence_parallel = flag("sequence_parallel", false);
  choose("data_parallel_algorithm", kDataParallelNames, plan_.data_parallel_algorithm);
  if (plan_.data_parallel_algorithm == DataParallelAlgorithm::ParameterServer &&
      plan_.zero_stage > 0) {
    fail("data_parallel_algorithm", "parameter_server shards nothing: zero_stage must be 0");
  }
  const std::int64_t t = plan_.tensor_parallel, p = plan_.pipeline_parallel,
                     c = plan_.context_parallel;
  std::int64_t inner = t * p;  // each at most 2^20
  if (inner <= kMaxRanks) inner *= c;
  if (inner > kMaxRanks) {
    return fail("tensor_parallel", product({t, p, c}) + " GPUs of one replica are beyond 2^20");
  }
  const std::int64_t d = integer("data_parallel", 0);
  if (d * inner > kMaxRanks) {
    return fail("data_parallel", product({t, p, c, d}) + " GPUs are beyond 2^20");
  }
  const std::int64_t gpus = context_.gpus ? *context_.gpus
                            : d > 0       ? d * inner
                                          : context_.gpus_per_node;
  if (d > 0 && d * inner != gpus) {
    return fail("data_parallel",
                "tensor x pipeline x context x data parallel = " + product({t, p, c, d}) + " = " +
                    number(d * inner) + ", but there are " + number(gpus) + " gpus" +
                    (gpus % inner == 0 ? ": data_parallel " + number(gpus / inner) + " fits them"
                                       : std::string()));
  }
  if (gpus % inner != 0) {
    return report_.fail(
        context_.gpus ? context_.gpus_line : json_.line, context_.gpus ? "gpus" : "plan",
        std::string(context_.gpus ? "" : "gpus is left out, and one node's ") + number(gpus) +
            " gpus are not a multiple of tensor x pipeline x context parallel = " +
            product({t, p, c}) + " = " + number(inner));
  }
  plan_.data_parallel = static_cast<std::int32_t>(gpus / inner);
  shard_group();
}

// All replicas share one copy's shards unless the plan says a part of them does.
void PlanReader::shard_group() {
  if (given("shard_group") == nullptr) return;
  const std::int32_t shards = size("shard_group", 0);
  if (plan_.replicas() % shards != 0) {
    return fail("shard_group", number(shards) + " does not divide data x context parallel = " +
                                   product({plan_.data_parallel, plan_.context_parallel}) + " = " +
                                   number(plan_.replicas()));
  }
  plan_.shard_group = plan_.zero_stage == 0 || shards == plan_.replicas() ? 0 : shards;
}

void PlanReader::schedule() {
  const JsonValue* name = given("schedule");
  const std::int32_t p = plan_.pipeline_parallel;
  plan_.extra_warmup = size("extra_warmup", 0);
  plan_.microbatch_group_size = size("microbatch_group_size", 0);
  plan_.virtual_stages = size("virtual_stages", 1);
  if (const JsonValue* limit = given("memory_limit")) plan_.memory_limit = limit->number;
  if (name != nullptr && name->text.starts_with("file:")) {
    plan_.schedule = name->text;
    plan_.sequence_slices = size("sequence_slices", 1);
    return;
  }
  named_schedule(name != nullptr ? name->text
                 : p == 1        ? "none"
                                 : (plan_.virtual_stages > 1 ? "interleaved_1f1b" : "1f1b"));
}

void PlanReader::named_schedule(const std::string& name) {
  const std::int32_t p = plan_.pipeline_parallel;
  const ScheduleInfo* info = find_schedule(name);
  if (info == nullptr) {
    return fail("schedule", unknown_schedule(name, json_excerpt(name)), true);
  }
  plan_.schedule = info->name;
  const bool many = info->chunks == ChunkRule::Many, shaped_v = info->chunks == ChunkRule::V;
  const std::int32_t v = size("virtual_stages", many && p > 1 ? 2 : 1);
  if (info->one_stage && p > 1) {
    return fail("schedule",
                plan_.schedule + " has one stage, but pipeline_parallel is " + number(p));
  }
  const bool any = info->chunks == ChunkRule::Any;
  if (v > 1 && (many || any) && p == 1) {
    return fail("virtual_stages", number(v) + " chunks need pipeline_parallel > 1");
  }
  if (v > 1 && !many && !any && !(shaped_v && v == 2)) {
    return fail("virtual_stages", plan_.schedule + " has " + (shaped_v ? "2 chunks" : "one chunk") +
                                      " per position, not " + number(v));
  }
  plan_.virtual_stages = shaped_v ? 2 : v;
  plan_.chunks_open =
      any && p > 1 && given("virtual_stages") == nullptr && given("stage_layers") == nullptr;
  plan_.slices_open = any && given("sequence_slices") == nullptr;
  if (plan_.microbatch_group_size > 0 && !info->grouped) {
    return fail("microbatch_group_size", plan_.schedule + " has no groups of micro-batches");
  }
  if (plan_.extra_warmup > 0 && !info->extra_warmup) {
    return fail("extra_warmup", "only interleaved_1f1b takes it, not " + plan_.schedule);
  }
  plan_.sequence_slices = size("sequence_slices", info->sliced ? 4 : 1);
  if (plan_.sequence_slices > 1 && !info->sliced && !any) {
    return fail("sequence_slices", plan_.schedule + " does not slice sequences");
  }
  if (plan_.memory_limit > 0 && !info->planned) {
    return fail("memory_limit", plan_.schedule + " is not planned for a limit");
  }
  if (info->planned && plan_.memory_limit == 0 && !any) plan_.memory_limit = info->default_memory;
}

void PlanReader::batches() {
  const std::int64_t d = plan_.data_parallel;
  const JsonValue* micro_batch = given("micro_batch");
  if (micro_batch != nullptr && micro_batch->is(JsonKind::String) && micro_batch->text != "auto") {
    return fail("micro_batch",
                "must be an integer or \"auto\", not " + json_excerpt(micro_batch->text));
  }
  plan_.micro_batch_auto = micro_batch == nullptr || micro_batch->is(JsonKind::String);
  const std::int32_t samples =
      plan_.micro_batch_auto ? 1 : static_cast<std::int32_t>(micro_batch->integer);
  plan_.micro_batch = samples;
  plan_.global_batch =
      integer("global_batch", d * samples * (plan_.micro_batch_auto ? plan_.pipeline_parallel : 1));
  if (plan_.global_batch % (d * samples) != 0) {
    return fail("global_batch", number(plan_.global_batch) + " is not a multiple of " +
                                    (plan_.micro_batch_auto ? "data_parallel = " + number(d)
                                                            : "data_parallel x micro_batch = " +
                                                                  product({d, samples}) + " = " +
                                                                  number(d * samples)));
  }
  const std::int64_t positions = context_.model == nullptr ? 0 : context_.model->max_positions;
  plan_.sequence_length = integer("sequence_length", positions);
  const std::int64_t s = plan_.sequence_length, c = plan_.context_parallel,
                     t = plan_.tensor_parallel;
  if (context_.model != nullptr && context_.model->positions == PositionKind::Learned &&
      s > positions) {
    return fail("sequence_length", number(s) + " is more than the model's " + number(positions) +
                                       " learned positions (max_position_embeddings)");
  }
  if (c > 1 && s % (2 * c) != 0) {
    return fail("context_parallel",
                "2 x " + number(c) + " does not divide sequence_length " + number(s));
  }
  if (plan_.sequence_parallel && s % (t * c) != 0) {
    return fail("sequence_parallel", "tensor x context parallel = " + product({t, c}) +
                                         " does not divide sequence_length " + number(s));
  }
  const std::int64_t slices = plan_.sequence_slices;
  if (s > 0 && s % slices != 0) {
    return fail("sequence_slices",
                number(slices) + " does not divide sequence_length " + number(s));
  }
  if (c > 1 && slices > 1 && s / slices % (2 * c) != 0) {
    return fail("context_parallel", "2 x " + number(c) + " does not divide a slice of " +
                                        number(s / slices) + " tokens");
  }
  if (plan_.sequence_parallel && slices > 1 && s / slices % (t * c) != 0) {
    return fail("sequence_parallel", "tensor x context parallel = " + product({t, c}) +
                                         " does not divide a slice of " + number(s / slices) +
                                         " tokens");
  }
  if (context_.model != nullptr) {
    const double heads = static_cast<double>(context_.model->heads),
                 tokens = static_cast<double>(s);
    if (static_cast<double>(samples) * heads * tokens * tokens > kMaxScores) {
      return fail("sequence_length", "micro_batch x heads x sequence_length^2 is beyond 2^58");
    }
  }
  if (plan_.micro_batch_auto) return;
  Result<Plan> chosen = choose_micro_batch(plan_, plan_.micro_batch);
  if (chosen) {
    plan_ = std::move(chosen).value();
    return;
  }
  const std::string& what = chosen.error().message;  // "KEY: what"
  const std::size_t colon = what.find(": ");
  fail(what.substr(0, colon), what.substr(colon + 2));
}

void PlanReader::divides(std::string_view key, std::int64_t divisor, std::string_view what,
                         std::int64_t value) {
  if (value % divisor == 0) return;
  fail(key, number(divisor) + " does not divide " + std::string(what) + " " + number(value));
}

void PlanReader::layers() {
  if (context_.model == nullptr) return;
  const auto l = static_cast<std::int32_t>(context_.model->layers);
  const ScheduleInfo* info = find_schedule(plan_.schedule);
  const bool own = info == nullptr;  // file:PATH: the file says how many stages there are
  const std::int32_t p = plan_.pipeline_parallel;
  const bool one_each =
      !own && (info->chunks == ChunkRule::One || info->chunks == ChunkRule::Bidirectional);
  const std::int64_t chunks = one_each ? p : std::int64_t{p} * plan_.virtual_stages;
  if (chunks > l + 2) {
    return fail(
        plan_.virtual_stages > 1 && given("virtual_stages") != nullptr ? "virtual_stages"
                                                                       : "pipeline_parallel",
        number(chunks) + " chunks are more than the " + number(l) + " layers, embedding and head");
  }
  const JsonValue* layers = given("stage_layers");
  if (layers == nullptr) {
    if (!own) plan_.stage_layers = default_stage_layers(l, static_cast<std::int32_t>(chunks));
    return;
  }
  if (layers->is(JsonKind::String)) {
    Result<StageLayout> parsed = parse_layout(layers->text);
    if (!parsed) return fail("stage_layers", parsed.error().message);
    plan_.stage_layers = std::move(parsed.value().layers);
    place_predictions(parsed.value());
  } else {
    for (const JsonValue& item : layers->items) {
      plan_.stage_layers.push_back(static_cast<std::int32_t>(item.integer));
    }
  }
  const auto entries = static_cast<std::int64_t>(plan_.stage_layers.size());
  if (!own && entries != chunks) {
    return fail("stage_layers",
                number(entries) + " entries, but the pipeline has " + counted(chunks, "chunk"));
  }
  std::int64_t sum = 0;
  for (const std::int32_t share : plan_.stage_layers) sum += share;
  if (sum != l) {
    fail("stage_layers",
         "the entries add up to " + number(sum) + ", not to num_hidden_layers " + number(l));
  }
}

void PlanReader::memory() {
  runtime();
  recompute();
  choose("offload", kOffloadNames, plan_.offload);
  if (plan_.offload == OffloadMode::Activations && plan_.sequence_slices > 1) {
    return fail("offload",
                "activations of a sequence in slices stay on the device: later slices read them",
                true);
  }
  precision();
  plan_.pad_vocabulary_to =
      integer("pad_vocabulary_to", plan_.zero_stage == 3 ? 1 : plan_.runtime.pad_vocabulary_to);
  if (context_.model == nullptr) return;
  const std::int64_t multiple = plan_.pad_vocabulary_to * plan_.tensor_parallel;
  plan_.padded_vocabulary = (context_.model->vocabulary + multiple - 1) / multiple * multiple;
}

// A mode, or a list of parts of the model's layers that the backward computes again.
void PlanReader::recompute() {
  const JsonValue* value = given("recompute");
  if (value == nullptr || !value->is(JsonKind::Array)) {
    return choose("recompute", kRecomputeNames, plan_.recompute);
  }
  for (const JsonValue& item : value->items) {
    const auto part = enum_of<RecomputePart>(item.text, kRecomputePartNames);
    plan_.recompute_parts |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(part));
  }
  if (plan_.runtime.own_executor && given("runtime") == nullptr) {
    plan_.recompute_parts = 0;  // `run` refuses the key
    return;
  }
  const std::string why = context_.model == nullptr ? "" : unfit_parts(*context_.model, plan_);
  if (!why.empty()) fail("recompute", why);
}

void PlanReader::profile() {
  const JsonValue* named = given("runtime");
  const std::string usual(default_runtime(plan_.zero_stage));
  const std::string name = named != nullptr ? named->text : context_.runtime.value_or(usual);
  const auto known = std::ranges::find(context_.runtimes, name, &RuntimeTraits::name);
  if (known != context_.runtimes.end()) {
    plan_.runtime = *known;
    return;
  }
  Result<RuntimeTraits> read = read_runtime(name, report_.path());
  if (!read) return fail("runtime", read.error().message);
  plan_.runtime = std::move(read).value();
}

// The profile, and what the plan says over it. Our executor is what it is: a plan that asks it for
// something else is refused, here if it names the runtime, else by `run` (plan_use.cc); whoever
// else reads a plan for the executor is told what is left out.
void PlanReader::runtime() {
  profile();
  RuntimeTraits& traits = plan_.runtime;
  const RuntimeTraits of_profile = traits;
  for (const TraitRow& row : kTraitRows) {
    const JsonValue* value = row.of_plan ? given(row.key.name) : nullptr;
    if (value == nullptr) continue;
    take_trait(*value, row, traits);
    if (!traits.own_executor || traits == of_profile) continue;
    if (given("runtime") != nullptr) {
      return fail(row.key.name, "runtime " + traits.name + " has " + trait_json(row, of_profile) +
                                    " alone, not " + trait_json(row, traits));
    }
    warnings_.push_back(std::string(row.key.name) + " " + trait_json(row, traits) +
                        " is left out: runtime " + traits.name + " has " +
                        trait_json(row, of_profile) + " alone");
    traits = of_profile;
  }
  if (!traits.deterministic) return;
  if (given("cross_entropy") == nullptr && traits.cross_entropy == CrossEntropy::Fused &&
      !traits.own_executor) {
    traits.cross_entropy = CrossEntropy::Eager;
  }
  traits.attention_kernel = std::min(traits.attention_kernel, AttentionKernel::Flash2);
}

void PlanReader::precision() {
  const JsonValue* given_precision = given("precision");
  Precision& to = plan_.precision;
  if (given_precision != nullptr && given_precision->is(JsonKind::Object)) {
    to.name = "custom";
    const auto bytes = [&](std::string_view key, std::int32_t& value) {
      const JsonValue* member = given_precision->given(key);
      if (member != nullptr) value = static_cast<std::int32_t>(member->integer);
    };
    bytes("parameters", to.parameters);
    bytes("gradients", to.gradients);
    bytes("optimizer", to.optimizer);
    if (const JsonValue* compute = given_precision->given("compute")) {
      to.compute = enum_of<ComputeType>(compute->text, kComputeTypeNames);
    }
    return;
  }
  if (given_precision != nullptr) to.name = given_precision->text;
  to.compute = enum_of<ComputeType>(to.name, kComputeTypeNames);
  const bool whole = to.compute == ComputeType::Fp32 || plan_.zero_stage == 3;
  if (whole) {  // parameters are their own master copy
    to.parameters = to.gradients = 4;
    to.optimizer = 8;
  } else {
    to.parameters = 2;
    to.gradients = to.compute == ComputeType::Fp16 ? 2 : 4;
    to.optimizer = 12;
  }
}

// What trains today beside AdamW in 16 and 8 bit, priced for frameworks.
void PlanReader::recipe() {
  choose("optimizer", kOptimizerNames, plan_.optimizer);
  const bool own = plan_.runtime.own_executor;
  if (plan_.optimizer != Optimizer::AdamW) {
    const std::string name(name_of(plan_.optimizer));
    if (own && given("runtime") != nullptr) {
      return fail("optimizer", "runtime " + plan_.runtime.name + " has adamw alone, not " + name);
    }
    if (own) plan_.optimizer = Optimizer::AdamW;  // `run` refuses the key
    if (plan_.offload == OffloadMode::Optimizer) {
      return fail("optimizer", name + " is not priced with its states in host memory");
    }
    if (plan_.optimizer == Optimizer::Muon && context_.model != nullptr &&
        context_.model->experts.count > 0) {
      return fail("optimizer", name + " is not priced for models with experts yet");
    }
    if (plan_.precision.optimizer < 8) {
      return fail("optimizer",
                  name + " needs 8 bytes per parameter of precision.optimizer, or more");
    }
  }
  if (is_block_scaled(plan_.precision.compute) && own) {
    return fail("precision", "runtime " + plan_.runtime.name + " has no products in " +
                                 std::string(name_of(plan_.precision.compute)));
  }
  if (const JsonValue* length = given("document_length")) {
    plan_.document_length = length->number;
    if (!plan_.flash_attention) {
      fail("document_length", "attention inside documents needs a fused kernel");
    }
  }
}

void PlanReader::attention() {
  const JsonValue* flash = given("flash_attention");
  const JsonValue* kernel = given("attention_kernel");
  plan_.attention_kernel = plan_.runtime.attention_kernel;
  if (flash != nullptr && flash->boolean != is_fused(plan_.attention_kernel)) {
    plan_.attention_kernel = flash->boolean ? AttentionKernel::Flash2 : AttentionKernel::Unfused;
  }
  choose("attention_kernel", kAttentionKernelNames, plan_.attention_kernel);
  plan_.flash_attention = is_fused(plan_.attention_kernel);
  if (flash != nullptr && kernel != nullptr && flash->boolean != plan_.flash_attention) {
    fail("attention_kernel",
         kernel->text + " contradicts flash_attention " + (flash->boolean ? "true" : "false"));
  }
  const double of_model = context_.model == nullptr ? -1 : context_.model->dropout;
  plan_.dropout = of_model >= 0 ? of_model : (plan_.flash_attention ? 0.0 : 0.1);
  const JsonValue* dropout = given("dropout");
  if (dropout != nullptr) plan_.dropout = dropout->number;
  if (plan_.dropout >= 1) fail("dropout", "must be less than 1");
  if (!plan_.runtime.own_executor) return;
  if (dropout != nullptr) {
    plan_.dropouts = {plan_.dropout, plan_.dropout, plan_.dropout};
  } else if (context_.model != nullptr) {
    plan_.dropouts = context_.model->dropouts;
  }
  plan_.dropout = plan_.dropouts.residual;
}

void PlanReader::overlap() {
  const bool sharded = plan_.zero_stage == 3;
  const RuntimeTraits& traits = plan_.runtime;
  plan_.overlap_gradient_reduce = plan_.overlap_parameter_gather = sharded;
  plan_.overlap_tensor_parallel =
      traits.overlap_tensor_parallel ? TensorOverlap::Default : TensorOverlap::Off;
  if (const JsonValue* overlap = given("overlap")) {
    const JsonValue* reduce = overlap->given("gradient_reduce");
    const JsonValue* gather = overlap->given("parameter_gather");
    const JsonValue* tensor = overlap->given("tensor_parallel");
    if (reduce != nullptr) plan_.overlap_gradient_reduce = reduce->boolean;
    const JsonValue* pipeline = overlap->given("pipeline");
    if (gather != nullptr) plan_.overlap_parameter_gather = gather->boolean;
    if (pipeline != nullptr) {
      plan_.runtime.overlap_pipeline =
          pipeline->boolean ? PipelineOverlap::Always : PipelineOverlap::Never;
    }
    if (tensor != nullptr) {
      plan_.overlap_tensor_parallel = tensor->boolean ? TensorOverlap::Chunked : TensorOverlap::Off;
    }
  }
  if (traits.synchronous_launch) {  // nothing runs beside anything
    for (const char* what :
         {"gradient_reduce", "parameter_gather", "tensor_parallel", "pipeline"}) {
      const JsonValue* overlap = given("overlap");
      const JsonValue* asked = overlap != nullptr ? overlap->given(what) : nullptr;
      if (asked == nullptr || !asked->boolean) continue;
      return fail("overlap",
                  std::string(what) + ": nothing overlaps under synchronous_launch; leave one out");
    }
    plan_.overlap_gradient_reduce = plan_.overlap_parameter_gather = false;
    plan_.runtime.overlap_pipeline = PipelineOverlap::Never;
    plan_.overlap_tensor_parallel = TensorOverlap::Off;
  }
  if (traits.own_executor && traits.overlap_pipeline != PipelineOverlap::Always) {
    if (given("runtime") != nullptr) {
      return fail("overlap", "pipeline: runtime " + traits.name + " has true alone, not false");
    }
    warnings_.push_back("overlap.pipeline false is left out: runtime " + traits.name +
                        " has true alone");
    plan_.runtime.overlap_pipeline = PipelineOverlap::Always;
  }
  plan_.overlap_pipeline = overlaps_transfers(plan_);
  plan_.bucket_bytes = integer("bucket_bytes", default_bucket_bytes(plan_));
  plan_.prefetch = size("prefetch", 1);
}

// Where a layout says nothing of prediction layers they stand before the head.
void PlanReader::place_predictions(const StageLayout& layout) {
  const std::int64_t layers = context_.model->prediction_layers;
  if (layout.prediction_layers == 0) return;
  if (layout.prediction_layers != layers) {
    return fail("stage_layers", number(layout.prediction_layers) +
                                    " m, but num_nextn_predict_layers is " + number(layers));
  }
  if (layout.prediction_stage + 1 < static_cast<std::int32_t>(plan_.stage_layers.size())) {
    plan_.prediction_stage = layout.prediction_stage;
    plan_.prediction_layers = layout.prediction_layers;
  }
}

// Axes that the order leaves out must have size 1 and come last.
void PlanReader::order() {
  constexpr std::array kDefault{Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data,
                                Axis::Pipeline};
  plan_.rank_order.assign(kDefault.begin(), kDefault.end());
  const JsonValue* order = given("rank_order");
  if (order == nullptr) return;
  plan_.rank_order.clear();
  for (std::size_t at = 0; at <= order->text.size();) {
    const std::size_t end = std::min(order->text.find('-', at), order->text.size());
    const std::string word = order->text.substr(at, end - at);
    const auto found = std::ranges::find(kAxisNames, word);
    if (found == kAxisNames.end()) {
      return fail("rank_order",
                  json_excerpt(word) + " is not one of tp, cp, ep, dp, pp (as in tp-cp-ep-dp-pp)");
    }
    const auto axis = static_cast<Axis>(found - kAxisNames.begin());
    if (std::ranges::find(plan_.rank_order, axis) != plan_.rank_order.end()) {
      return fail("rank_order", word + " stands twice");
    }
    plan_.rank_order.push_back(axis);
    at = end + 1;
  }
  const std::array<std::int32_t, 5> size{plan_.tensor_parallel, plan_.context_parallel,
                                         plan_.expert_parallel, plan_.data_parallel,
                                         plan_.pipeline_parallel};
  for (const Axis axis : kDefault) {
    if (std::ranges::find(plan_.rank_order, axis) != plan_.rank_order.end()) continue;
    const std::int32_t ranks = size[static_cast<std::size_t>(axis)];
    if (ranks > 1) {
      return fail("rank_order",
                  std::string(name_of(axis)) + " is missing, and has " + number(ranks) + " ranks");
    }
    plan_.rank_order.push_back(axis);
  }
}

void PlanReader::experts() {
  read_expert_plan(json_,
                   {.from = report_.path(), .model = context_.model, .known = context_.routings},
                   plan_, [this](std::string_view key, const std::string& what, bool unsupported) {
                     fail(key, what, unsupported);
                   });
  if (plan_.shard_group > 0 && plan_.folds_experts()) {
    fail("shard_group", "is not priced together with folded experts", true);
  }
}

}  // namespace

bool overlaps_transfers(const Plan& plan) {
  const PipelineOverlap overlap = plan.runtime.overlap_pipeline;
  return overlap == PipelineOverlap::Always ||
         (overlap == PipelineOverlap::Interleaved && plan.virtual_stages > 1);
}

Plan resolve_plan(const JsonValue& plan, const PlanContext& context, JsonReport& report,
                  std::vector<std::string>& warnings) {
  Plan read = PlanReader(plan, context, report, warnings).read();
  if (report.ok()) {
    for (const IdleKey& idle : keys_without_effect(plan, read)) {
      warnings.push_back("plan." + idle.key + " changes nothing: " + idle.why);
    }
  }
  return read;
}

}  // namespace rehearse
