// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/precision_rows.h"

#include <algorithm>
#include <array>

#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace keys {
namespace {

constexpr std::array kPrecisionRows{
    PrecisionRow{.key = {.name = "parameters",
                         .types = kInteger,
                         .min = 1,
                         .max = 8,
                         .about = "bytes per parameter"},
                 .bytes = &Precision::parameters},
    PrecisionRow{.key = {.name = "gradients",
                         .types = kInteger,
                         .min = 1,
                         .max = 8,
                         .about = "bytes per parameter"},
                 .bytes = &Precision::gradients},
    PrecisionRow{.key = {.name = "optimizer",
                         .types = kInteger,
                         .min = 0,
                         .max = 64,
                         .about = "bytes per parameter, master copy included"},
                 .bytes = &Precision::optimizer},
    PrecisionRow{.key = {.name = "compute",
                         .types = kString,
                         .choices = kComputeTypeNames,
                         .about = "type of the matrix products; bf16 when left out"}},
};
constexpr auto kPrecisionKeys = [] {
  std::array<KeySpec, kPrecisionRows.size()> keys;
  std::ranges::transform(kPrecisionRows, keys.begin(), &PrecisionRow::key);
  return keys;
}();

}  // namespace

constinit const KeyTable kPrecision{.title = "precision", .keys = kPrecisionKeys};

}  // namespace keys

std::span<const PrecisionRow> precision_rows() {
  return keys::kPrecisionRows;
}

}  // namespace rehearse
