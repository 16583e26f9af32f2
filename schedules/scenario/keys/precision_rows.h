// SPDX-License-Identifier: Apache-2.0
// The members of `plan.precision` where it is an object, a row each.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/base/json_keys.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

struct PrecisionRow {
  KeySpec key;
  std::int32_t Precision::*bytes = nullptr;  // per parameter; null: the type of products
};

std::span<const PrecisionRow> precision_rows();

}  // namespace rehearse
