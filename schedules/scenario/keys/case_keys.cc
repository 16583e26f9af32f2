// SPDX-License-Identifier: Apache-2.0
// The keys of a file of measured cases, and of what a case may be.
#include <array>

#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace keys {
namespace {

constexpr KeySpec measured(std::string_view name) {
  return {.name = name, .types = kNumber, .min = 0};
}
constexpr KeySpec text(std::string_view name) {
  return {.name = name, .types = kString};
}

constexpr std::array kRankKeys{
    KeySpec{.name = "rank", .types = kInteger, .min = 0, .max = kMaxRanks, .required = true},
    measured("peak_allocated_bytes"),
    measured("peak_reserved_bytes"),
    measured("peak_device_bytes"),
    measured("steady_allocated_bytes"),
};
constexpr KeyTable kRank{.title = "rank", .keys = kRankKeys};
constexpr std::array kMeasuredKeys{
    measured("step_time_s"),
    measured("peak_allocated_bytes"),
    measured("peak_reserved_bytes"),
    measured("peak_device_bytes"),
    measured("steady_allocated_bytes"),
    measured("model_state_bytes"),
    measured("activation_bytes"),
    measured("parameter_gradient_optimizer_bytes"),
    measured("activation_fraction_of_tp_baseline"),
    measured("bubble_ratio"),
    measured("forward_s"),
    measured("backward_s"),
    measured("forward_backward_s"),
    measured("input_gradient_s"),
    measured("weight_gradient_s"),
    measured("parameters"),
    KeySpec{.name = "fits", .types = kBool},
    KeySpec{.name = "ranks", .types = kArray, .items = &kRank, .item_types = kObject},
};
// Open: a source may measure what the report has under another key (mfu, tokens_per_s, ...).
constexpr KeyTable kMeasured{.title = "measured", .keys = kMeasuredKeys, .open = true};

constexpr std::array kTimesKeys{measured("F"), measured("I"), measured("W"), measured("comm"),
                                measured("FB")};
constexpr KeyTable kTimes{.title = "times", .keys = kTimesKeys};
constexpr std::array kScheduleKeys{
    KeySpec{.name = "name", .types = kString, .required = true},
    KeySpec{.name = "stages", .types = kInteger, .min = 1, .max = 65536, .required = true},
    KeySpec{.name = "microbatches",
            .types = kInteger,
            .min = 1,
            .max = kMaxMicrobatch,
            .required = true},
    KeySpec{.name = "chunks", .types = kInteger, .min = 1, .max = 65536},
    KeySpec{.name = "group_size", .types = kInteger, .min = 1, .max = kMaxMicrobatch},
    KeySpec{.name = "extra_warmup", .types = kInteger, .min = 0, .max = kMaxMicrobatch},
    KeySpec{.name = "slices", .types = kInteger, .min = 1, .max = 127},
    KeySpec{.name = "memory_limit", .types = kNumber, .min = 0, .above_min = true},
    KeySpec{.name = "times", .types = kObject, .members = &kTimes},
};
constexpr KeyTable kSchedule{.title = "schedule", .keys = kScheduleKeys};

constexpr std::array kStatesKeys{
    KeySpec{.name = "parameters", .types = kInteger, .min = 1, .max = 1e15, .required = true},
    KeySpec{.name = "data_parallel", .types = kInteger, .min = 1, .max = kMaxRanks},
    KeySpec{.name = "zero_stage", .types = kInteger, .min = 0, .max = 3},
    KeySpec{.name = "precision",
            .types = kString | kObject,
            .choices = kComputeTypeNames,
            .members = &kPrecision},
};
constexpr KeyTable kStates{.title = "states", .keys = kStatesKeys};

constexpr std::array kStageKeys{
    KeySpec{.name = "scenario", .types = kObject, .required = true, .about = "a scenario, inline"},
    KeySpec{.name = "position",
            .types = kInteger,
            .min = 0,
            .max = 65535,
            .required = true,
            .about = "of the pipeline"},
};
constexpr KeyTable kStage{.title = "stage", .keys = kStageKeys};

constexpr std::array<std::string_view, 2> kKinds{"measurement", "formula"};
constexpr std::array<std::string_view, 3> kMeasures{"bubble_ratio", "bubble_overhead",
                                                    "span_bubble_ratio"};
constexpr std::array kCaseKeys{
    KeySpec{.name = "id", .types = kString, .required = true},
    KeySpec{.name = "group",
            .types = kString,
            .about = "the same for plans that compete: of one model, GPUs, batch and sequence"},
    KeySpec{.name = "scenario", .types = kObject, .about = "a scenario, inline"},
    KeySpec{.name = "layer", .types = kObject, .about = "a scenario of which one layer is timed"},
    KeySpec{.name = "stage",
            .types = kObject,
            .members = &kStage,
            .about = "one stage of a scenario's pipeline is timed for one micro-batch"},
    KeySpec{.name = "moe_layer",
            .types = kObject,
            .members = &kMoeLayer,
            .about = "one layer of experts is timed, router to combine"},
    KeySpec{.name = "schedule",
            .types = kObject,
            .members = &kSchedule,
            .about = "only a schedule is timed"},
    KeySpec{.name = "states",
            .types = kObject,
            .members = &kStates,
            .about = "bytes of the model states of one rank"},
    KeySpec{.name = "measured", .types = kObject, .members = &kMeasured, .required = true},
    KeySpec{.name = "reported", .types = kObject, .about = "what the source printed; not scored"},
    KeySpec{.name = "tolerance",
            .types = kObject,
            .members = &kMeasured,
            .about = "absolute, per measured key"},
    KeySpec{.name = "measure", .types = kString, .choices = kMeasures},
    KeySpec{.name = "kind", .types = kString, .choices = kKinds},
    KeySpec{.name = "uncertain", .types = kArray, .item_types = kString},
    text("note"),
    text("source"),
};
constexpr KeyTable kCase{.title = "case", .keys = kCaseKeys};
constexpr std::array kCaseFileKeys{
    text("source"),
    text("about"),
    text("noise_floor"),
    text("note"),
    KeySpec{
        .name = "cases", .types = kArray, .items = &kCase, .item_types = kObject, .required = true},
};
constexpr KeyTable kCaseFile{.title = "Measured cases: what `rehearse validate` reads",
                             .keys = kCaseFileKeys};

}  // namespace
}  // namespace keys

const KeyTable& case_file_key_table() {
  return keys::kCaseFile;
}

}  // namespace rehearse
