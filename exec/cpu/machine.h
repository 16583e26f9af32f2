// SPDX-License-Identifier: Apache-2.0
// The CPU that this process runs on, as calibrations and cluster files call it.
#pragma once

#include <cstdint>
#include <string>

namespace rehearse::exec {

std::string cpu_name();       // /proc/cpuinfo's model name; "unknown CPU" where it has none
std::int32_t usable_cores();  // that this process may run on

}  // namespace rehearse::exec
