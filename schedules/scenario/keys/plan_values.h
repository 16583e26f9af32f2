// SPDX-License-Identifier: Apache-2.0
// Values of a plan's keys as JSON, where a key is more than one field.
#pragma once

#include <string>

#include "schedules/scenario/plan.h"

namespace rehearse::plan_values {

std::string stage_layers(const Plan& plan);
std::string rank_order(const Plan& plan);
std::string tensor_grid(const Plan& plan);
std::string precision(const Plan& plan);
std::string expert_routing(const Plan& plan);
std::string expert_capacity(const Plan& plan);
std::string dropout(const Plan& plan);
std::string document_length(const Plan& plan);
std::string overlap(const Plan& plan);

}  // namespace rehearse::plan_values
