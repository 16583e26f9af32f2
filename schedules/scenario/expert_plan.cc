// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/expert_plan.h"

#include <algorithm>
#include <optional>

#include "schedules/base/files.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace {

std::string number(std::int64_t value) {
  return std::to_string(value);
}

// What a run wrote. A model without experts has no rows to hold against the file's.
Result<MeasuredRouting> routing_of(const std::string& name, const ExpertContext& context) {
  if (context.model == nullptr || context.model->experts.count == 0) {
    return Error{"the model has no experts"};
  }
  const std::optional<std::string> path = find_file(name, context.from, "");
  if (!path) return Error{"no such file: " + json_excerpt(name)};
  const auto known = std::ranges::find(context.known, *path, &MeasuredRouting::path);
  if (known != context.known.end()) return *known;
  return read_routing(*path, *context.model);
}

class ExpertPlanReader {
 public:
  ExpertPlanReader(const JsonValue& json, const ExpertContext& context, Plan& plan,
                   const PlanFailure& fail)
      : json_(json), context_(context), model_(context.model), plan_(plan), fail_(fail) {}

  void read() {
    for (const auto step :
         {&ExpertPlanReader::sizes, &ExpertPlanReader::of_model, &ExpertPlanReader::folding,
          &ExpertPlanReader::traffic, &ExpertPlanReader::overlap, &ExpertPlanReader::performed}) {
      if (!failed_) (this->*step)();
    }
  }

 private:
  void fail(const PlanField& key, const std::string& what, bool unsupported = false) {
    failed_ = true;
    fail_(path_of(key), what, unsupported);
  }
  const Experts& experts() const {
    static const Experts kNone;
    return model_ == nullptr ? kNone : model_->experts;
  }

  // q e r = t c d, r derived.
  void sizes() {
    const std::int64_t e = plan_.expert_parallel, t = plan_.tensor_parallel;
    const std::int64_t replicas = plan_.replicas();
    const bool spread = replicas % e != 0 && replicas * t % e == 0;
    const JsonValue* given = given_in(json_, &Plan::expert_tensor_parallel);
    const std::int64_t q = given != nullptr ? given->integer : spread ? 1 : t;
    plan_.expert_tensor_parallel = static_cast<std::int32_t>(q);
    if (replicas * t % q != 0) {
      return fail(&Plan::expert_tensor_parallel,
                  number(q) + " does not divide data x context x tensor parallel = " +
                      number(plan_.data_parallel) + " x " + number(plan_.context_parallel) + " x " +
                      number(t));
    }
    if (replicas * t / q % e != 0) {
      fail(&Plan::expert_parallel,
           number(e) + " does not divide data x context x tensor / expert tensor parallel = " +
               number(replicas * t / q));
    }
  }

  void of_model() {
    const std::int64_t e = plan_.expert_parallel, q = plan_.expert_tensor_parallel;
    if (experts().count == 0) {
      if (e > 1 && model_ != nullptr) {
        fail(&Plan::expert_parallel, number(e) + " > 1, but the model has no experts");
      }
      return;
    }
    if (experts().count % e != 0) {
      return fail(&Plan::expert_parallel,
                  number(e) + " does not divide the number of experts " + number(experts().count));
    }
    if (experts().ffn_hidden % q != 0) {
      return fail(
          &Plan::expert_tensor_parallel,
          number(q) + " does not divide the width of an expert " + number(experts().ffn_hidden));
    }
    if (experts().bias && q > 1 && plan_.folds_experts() &&
        !plan_.runtime.performer().splits_expert_biases) {
      fail(&Plan::expert_tensor_parallel, number(q) + " > 1, but experts of runtime " +
                                              plan_.runtime.name + " that have biases are whole");
    }
  }

  // What experts need that lie otherwise than the dense matrices.
  void folding() {
    if (!plan_.folds_experts() || experts().count == 0) return;
    const std::string_view key =
        key_of(plan_.expert_parallel > 1 ? &Plan::expert_parallel : &Plan::expert_tensor_parallel);
    if (plan_.tensor_parallel > 1 && !plan_.sequence_parallel) {
      return fail(&Plan::sequence_parallel,
                  "must be true: else each token goes to its experts from all " +
                      number(plan_.tensor_parallel) + " tensor-parallel ranks");
    }
    if (plan_.has_parameter_server()) {
      return fail(&Plan::data_parallel_algorithm,
                  "parameter_server has one owner of all parameters; " + std::string(key) +
                      " spreads experts over replicas");
    }
    if (plan_.expert_replicas() != plan_.data_parallel) ranks_stand_together();
  }

  // What our bodies and kernels lack.
  void performed() {
    if (!plan_.runtime.performer().own_kernels || experts().count == 0) return;
    const std::string runtime = "runtime " + plan_.runtime.name;
    if (plan_.has_parameter_server()) {
      return fail(&Plan::data_parallel_algorithm,
                  runtime + " has no parameter_server of models with experts", true);
    }
    if (plan_.expert_capacity > 0 && plan_.expert_capacity < 1 && !plan_.folds_experts()) {
      return fail(&Plan::expert_capacity,
                  runtime +
                      " drops no rows but by {\"drop\": factor}, and every rank has all that "
                      "come: at least 1",
                  true);
    }
  }

  // Where an expert group takes a part of dp, its ranks are neighbours but for tp, cp and dp.
  void ranks_stand_together() {
    const auto place = [&](Axis axis) {
      return std::ranges::find(plan_.rank_order, axis) - plan_.rank_order.begin();
    };
    const auto [low, high] =
        std::minmax({place(Axis::Context), place(Axis::Expert), place(Axis::Data)});
    if (high - low != 2 && plan_.expert_parallel > 1) {
      return fail(&Plan::rank_order,
                  "cp, ep and dp must stand together: experts lie within cp x dp");
    }
    if (plan_.rank_order.back() != Axis::Pipeline && plan_.pipeline_parallel > 1) {
      fail(&Plan::rank_order, "pp must come last where experts are folded over tp, cp and dp");
    }
  }

  void traffic() {
    if (const JsonValue* given = given_in(json_, &Plan::expert_routing)) {
      const Result<> good = read_expert_routing(*given, context_, plan_);
      if (!good) return fail(&Plan::expert_routing, good.error().message);
    }
    if (const JsonValue* given = given_in(json_, &Plan::expert_capacity)) {
      if (model_ != nullptr && experts().count == 0) {
        return fail(&Plan::expert_capacity, "the model has no experts");
      }
      if (given->is(JsonKind::Object)) {
        plan_.expert_drop = given->given("drop")->number;
      } else if (given->is(JsonKind::String)) {
        plan_.expert_drop = 1.25;
      } else {
        plan_.expert_capacity = given->number;
      }
    }
    if (plan_.expert_dispatch == ExpertDispatch::Deduplicated && experts().count > 0 &&
        plan_.expert_tensor_parallel > 1) {
      return fail(&Plan::expert_dispatch,
                  "deduplicated with expert_tensor_parallel > 1 is not built yet", true);
    }
    slots();
    if (!failed_) eight_bit_dispatch();
  }

  void slots() {
    if (!plan_.expert_slots) return;
    if (plan_.expert_parallel == 1) {
      return fail(&Plan::expert_slots, "nothing is dispatched: expert_parallel is 1");
    }
    if (plan_.expert_dispatch == ExpertDispatch::AllGather) {
      return fail(&Plan::expert_slots, "expert_dispatch all_gather has parts of equal size anyway");
    }
    if (!plan_.runtime.performer().has_expert_slots) {
      fail(&Plan::expert_slots,
           "runtime " + plan_.runtime.name + " exchanges as many rows as are routed", true);
    }
  }

  void eight_bit_dispatch() {
    if (!plan_.fp8_dispatch) return;
    if (plan_.expert_parallel == 1) {
      return fail(&Plan::fp8_dispatch, "nothing is dispatched: expert_parallel is 1");
    }
    if (plan_.expert_dispatch != ExpertDispatch::Deduplicated) {
      return fail(&Plan::fp8_dispatch, "tokens go in 8 bit by expert_dispatch deduplicated alone");
    }
    if (!is_quantized(plan_.precision.compute)) {
      fail(&Plan::fp8_dispatch, "the products run in " +
                                    std::string(name_of(plan_.precision.compute)) +
                                    ": what arrives in 8 bit is multiplied in 8 bit");
    }
  }

  void overlap() {
    const JsonValue* beside = given_in(json_, &Plan::overlap_expert_parallel);
    if (beside == nullptr || (beside->is(JsonKind::Bool) && !beside->boolean)) return;
    std::string why;
    if (!beside->is(JsonKind::String)) {
      why = R"(must be false, "shared" or "pair", not true)";
    } else if (plan_.expert_parallel == 1) {
      why = "nothing is dispatched: expert_parallel is 1";
    } else {
      const auto found = std::ranges::find(kExpertOverlapNames, beside->text);
      plan_.overlap_expert_parallel =
          static_cast<ExpertOverlap>(found - kExpertOverlapNames.begin());
      why = plan_.overlap_expert_parallel == ExpertOverlap::Pair ? unfit_pair() : unfit_shared();
    }
    if (!why.empty()) fail(&Plan::overlap_expert_parallel, why);
  }

  std::string unfit_shared() const {
    if (experts().shared_ffn_hidden == 0) return "the model has no shared expert";
    if (!plan_.recompute.is_full() && plan_.recomputes(RecomputePart::SharedExperts)) {
      return "the shared expert cannot be computed again and run beside dispatch";
    }
    return "";
  }

  // A pair also needs one forward more before the first backward, which is its default here.
  std::string unfit_pair() {
    const ScheduleInfo* info = find_schedule(plan_.schedule);
    const Pairing pairing = info == nullptr ? Pairing::Never : info->pairing;
    if (pairing == Pairing::Never) {
      return "pair: schedule " + plan_.schedule +
             " has no steady pairs, interleaved_1f1b and dualpipe have";
    }
    if (plan_.pipeline_parallel == 1) return "pair: pipeline_parallel is 1";
    if (pairing == Pairing::Asked && plan_.virtual_stages == 1) {
      return "pair: needs virtual_stages > 1";
    }
    if (plan_.expert_dispatch == ExpertDispatch::AllGather) {
      return "pair: expert_dispatch must be all_to_all or deduplicated";
    }
    if (plan_.recomputes(RecomputePart::Experts)) {
      return "pair: dispatch cannot be computed again (recompute full, experts)";
    }
    if (plan_.runtime.synchronous_launch) return "pair: nothing overlaps under synchronous_launch";
    if (model_ != nullptr && model_->prediction_layers > 1 &&
        plan_.runtime.performer().predicts_further_tokens) {
      return "pair: at most one prediction layer, not " + number(model_->prediction_layers);
    }
    if (pairing == Pairing::Always) return "";
    const JsonValue* warmup = given_in(json_, &Plan::extra_warmup);
    if (warmup != nullptr && warmup->integer < 1) {
      return "pair: extra_warmup must be at least 1: else a backward waits for the forward beside "
             "it";
    }
    if (warmup == nullptr) plan_.extra_warmup = 1;
    return "";
  }

  const JsonValue& json_;
  const ExpertContext& context_;
  const Transformer* model_;
  Plan& plan_;
  const PlanFailure& fail_;
  bool failed_ = false;
};

}  // namespace

std::string expert_default_note(const JsonValue& json, const Transformer& model, const Plan& plan) {
  const bool open = given_in(json, &Plan::expert_tensor_parallel) == nullptr;
  if (!open || model.experts.count == 0 || plan.expert_parallel == 1 || plan.tensor_parallel == 1) {
    return "";
  }
  const bool spread = plan.expert_tensor_parallel != plan.tensor_parallel;
  return "plan.expert_tensor_parallel is left out: " + number(plan.expert_tensor_parallel) +
         (spread ? ", since expert_parallel " : ", as tensor_parallel, since expert_parallel ") +
         number(plan.expert_parallel) + (spread ? " does not divide" : " divides") +
         " data x context parallel = " + number(plan.replicas()) + " (else it is " +
         (spread ? number(plan.tensor_parallel) : std::string("1")) +
         "); say it where numbers of GPUs are compared";
}

double row_limit(const Plan& plan) {
  return plan.expert_drop > 0 ? plan.expert_drop : plan.expert_capacity;
}

Result<> read_expert_routing(const JsonValue& given, const ExpertContext& context, Plan& plan) {
  if (!given.is(JsonKind::String)) {
    plan.expert_routing = ExpertRouting::Factor;
    plan.expert_factor = given.number;
    return {};
  }
  constexpr std::string_view kFile = "file:";
  if (given.text.starts_with(kFile)) {
    Result<MeasuredRouting> measured = routing_of(given.text.substr(kFile.size()), context);
    if (!measured) return measured.error();
    plan.expert_routing = ExpertRouting::Measured;
    plan.expert_measured = std::move(measured).value();
    return {};
  }
  const auto found = std::ranges::find(kExpertRoutingNames, given.text);
  if (found == kExpertRoutingNames.end()) {
    return Error{json_excerpt(given.text) + " is not one of balanced, uniform, file:PATH"};
  }
  plan.expert_routing = static_cast<ExpertRouting>(found - kExpertRoutingNames.begin());
  return {};
}

void read_expert_plan(const JsonValue& json, const ExpertContext& context, Plan& plan,
                      const PlanFailure& fail) {
  ExpertPlanReader(json, context, plan, fail).read();
}

}  // namespace rehearse
