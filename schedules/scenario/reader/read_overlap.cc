// SPDX-License-Identifier: Apache-2.0
// What communication runs beside compute, in which portions.
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {

bool overlaps_transfers(const Plan& plan) {
  const PipelineOverlap overlap = plan.runtime.overlap_pipeline;
  return overlap == PipelineOverlap::Always ||
         (overlap == PipelineOverlap::Interleaved && plan.virtual_stages > 1);
}

void read_overlap(const GivenKeys& keys, Plan& plan) {
  const bool sharded = plan.zero_stage == 3;
  const RuntimeTraits& traits = plan.runtime;
  plan.overlap_gradient_reduce = plan.overlap_parameter_gather = sharded;
  plan.overlap_tensor_parallel =
      traits.overlap_tensor_parallel ? TensorOverlap::Default : TensorOverlap::Off;
  if (const JsonValue* overlap = keys.given("overlap")) {
    const JsonValue* reduce = overlap->given("gradient_reduce");
    const JsonValue* gather = overlap->given("parameter_gather");
    const JsonValue* tensor = overlap->given("tensor_parallel");
    if (reduce != nullptr) plan.overlap_gradient_reduce = reduce->boolean;
    const JsonValue* pipeline = overlap->given("pipeline");
    if (gather != nullptr) plan.overlap_parameter_gather = gather->boolean;
    if (pipeline != nullptr) {
      plan.runtime.overlap_pipeline =
          pipeline->boolean ? PipelineOverlap::Always : PipelineOverlap::Never;
    }
    if (tensor != nullptr) {
      plan.overlap_tensor_parallel = tensor->boolean ? TensorOverlap::Chunked : TensorOverlap::Off;
    }
  }
  if (traits.synchronous_launch) {  // nothing runs beside anything
    for (const char* what :
         {"gradient_reduce", "parameter_gather", "tensor_parallel", "pipeline"}) {
      const JsonValue* overlap = keys.given("overlap");
      const JsonValue* asked = overlap != nullptr ? overlap->given(what) : nullptr;
      if (asked == nullptr || !asked->boolean) continue;
      return keys.fail("overlap", std::string(what) +
                                      ": nothing overlaps under synchronous_launch; leave one out");
    }
    plan.overlap_gradient_reduce = plan.overlap_parameter_gather = false;
    plan.runtime.overlap_pipeline = PipelineOverlap::Never;
    plan.overlap_tensor_parallel = TensorOverlap::Off;
  }
  if (traits.own_executor && traits.overlap_pipeline != PipelineOverlap::Always) {
    if (keys.given("runtime") != nullptr) {
      return keys.fail("overlap",
                       "pipeline: runtime " + traits.name + " has true alone, not false");
    }
    keys.warnings.push_back("overlap.pipeline false is left out: runtime " + traits.name +
                            " has true alone");
    plan.runtime.overlap_pipeline = PipelineOverlap::Always;
  }
  plan.overlap_pipeline = overlaps_transfers(plan);
  plan.bucket_bytes = keys.integer("bucket_bytes", default_bucket_bytes(plan));
}

}  // namespace rehearse
