// SPDX-License-Identifier: Apache-2.0
// A part is one entry of a list: a made-up one, added there and nowhere else, is counted,
// multiplied with, cut, put into a bucket, named in files and orthogonalized.
// docs/add_a_layer.md is the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "exec/weights/hugging_face.h"
#include "exec/weights/parameters.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/pricing/muon_cost.h"
#include "tests/schedules/model/made_up_part.h"

namespace rehearse {
namespace {

constexpr std::int64_t kHidden = 4096, kLayers = 32, kElements = 2 * kHidden * kHidden;

// Llama 3 8B over 2 positions of 2 tensor-parallel ranks, twice.
const Scenario& scenario() {
  static const Scenario kScenario =
      parse_scenario(R"({"model": "llama3-8b", "cluster": "dgx-h100", "gpus": 8,
        "plan": {"tensor_parallel": 2, "pipeline_parallel": 2, "zero_stage": 1, "micro_batch": 1,
                 "global_batch": 8, "sequence_length": 1024, "runtime": "rehearse"}})",
                     "test", 1, {})
          .value();
  return kScenario;
}

// What `of` says with the part, less what it says without.
template <class Number>
Number more(Number (*of)()) {
  made_up_part = false;
  const Number without = of();
  made_up_part = true;
  return of() - without;
}

Schedule lowered() {
  Plan plan = scenario().plan;
  const Result<Schedule> order = order_of(scenario().model, plan);
  EXPECT_TRUE(order);
  Result<Schedule> made = lower(order.value(), {scenario().model, plan});
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return std::move(made).value();
}

TEST(MadeUpPart, IsCountedAndMultipliedWith) {
  EXPECT_EQ(more<std::int64_t>([] { return total_parameters(scenario().model); }),
            kLayers * kElements);
  EXPECT_EQ(more<std::int64_t>([] { return active_parameters(scenario().model); }),
            kLayers * kElements);
  // Forward and backward of a product: 6 FLOPs per weight and token.
  const double flops = more<double>(
      [] { return model_flops(scenario().model, 1, 1024, FlopsConvention::Megatron); });
  EXPECT_DOUBLE_EQ(flops, 6.0 * 1024 * static_cast<double>(kLayers * kElements));
}

TEST(MadeUpPart, IsCutAndLiesInABucket) {
  const auto elements_of_rank = [] {
    std::int64_t sum = 0;
    for (const ParameterTensor& tensor :
         segment_parameters({scenario().model, scenario().plan}, SegmentKind::Layer, 0)) {
      sum += tensor.elements;
    }
    return sum;
  };
  EXPECT_EQ(more<std::int64_t>(elements_of_rank), kElements / 2);
  const auto elements_of_buckets = [] {
    std::int64_t sum = 0;
    for (const Bucket& bucket : lowered().buckets) sum += bucket.elements;
    return sum;
  };
  EXPECT_EQ(more<std::int64_t>(elements_of_buckets), kLayers * kElements / 2);
}

TEST(MadeUpPart, HasItsPlaceInFilesAndForMuon) {
  made_up_part = true;
  const Layout layout(scenario().model, scenario().plan);
  const std::vector<exec::TensorPlace> places = exec::place_tensors(layout, lowered());
  std::int64_t found = 0;
  for (const exec::TensorPlace& place : places) {
    if (place.what.name != "made_up.weight") continue;
    ++found;
    const std::vector<exec::FileTensor> files = exec::file_tensors(layout, place);
    ASSERT_EQ(files.size(), 1u);
    EXPECT_EQ(files[0].name, "model.layers." + std::to_string(place.layer) + ".made_up.weight");
    EXPECT_EQ(files[0].shape, (std::vector<std::int64_t>{2 * kHidden, kHidden}));
    EXPECT_TRUE(place.what.matrix);  // takes weight decay
    for (const std::int32_t rank : {0, 1}) {
      EXPECT_EQ(exec::whole_element(layout, place, rank, 7), rank * kElements / 2 + 7);
      EXPECT_EQ(exec::counted_elements(layout, place, rank), kElements / 2);
    }
    const std::vector<sim::MuonMatrix> matrices = sim::muon_matrices(layout, place.part);
    ASSERT_EQ(matrices.size(), 1u);
    EXPECT_EQ(matrices[0].rows, 2 * kHidden);
    EXPECT_EQ(matrices[0].columns, kHidden);
  }
  EXPECT_EQ(found, kLayers);
}

}  // namespace
}  // namespace rehearse
