// SPDX-License-Identifier: Apache-2.0
// Libraries that communicate, told by the names of their kernels and ranges:
// scenarios/profiles/families.json, a row each with its source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse::viz {

struct Family {
  std::string name;
  std::vector<std::string> begins, holds;  // a name that begins with, or holds, one of these
};

class Families {
 public:
  static Result<Families> read();  // the shipped file
  // Index of the family that the name is of, -1: none communicates by that name. Of several the one
  // whose words are longest: ncclDevKernel_Generic is RCCL's, ncclDevKernel_AllReduce NCCL's.
  int of(std::string_view name) const;
  const Family& operator[](int index) const { return all_[static_cast<std::size_t>(index)]; }
  std::size_t size() const { return all_.size(); }

 private:
  std::vector<Family> all_;
};

}  // namespace rehearse::viz
