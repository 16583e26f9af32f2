// SPDX-License-Identifier: Apache-2.0
// The `flags` of `plan` and `search --framework`.
#pragma once

#include <string>

#include "schedules/frameworks/launch_flags.h"
#include "sim/cluster/cluster.h"

namespace rehearse::cli {

// launch_flags() where the framework, by its name or its profile's, runs on the cluster's GPUs;
// else "none: Megatron-LM runs on no GPU of aws, ...". Errors: a framework's file cannot be read.
Result<std::string> flags_on(const sim::Cluster& cluster, const Scenario& scenario,
                             const std::string& framework, const std::string& model_json);

}  // namespace rehearse::cli
