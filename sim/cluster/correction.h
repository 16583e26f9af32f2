// SPDX-License-Identifier: Apache-2.0
// What a measured step says of the rates of this very cluster: key `correction` of a cluster file,
// as `rehearse calibrate --from` writes it. Factors on predicted times, 1: as predicted.
#pragma once

#include <array>
#include <string_view>

namespace rehearse::sim {

struct Correction {
  double products = 1;      // matrix products
  double attention = 1;     // attention cores
  double memory_bound = 1;  // everything else that a device computes
  double collectives = 1;   // of every group, inside bodies too
  double transfers = 1;     // between stages
  double host = 1;          // the host's time to issue a kernel; a CPU's scheduler

  bool any() const { return *this != Correction{}; }
  bool operator==(const Correction&) const = default;
};

struct CorrectionRow {
  std::string_view name, about;
  double Correction::*field;
};
inline constexpr std::array kCorrections{
    CorrectionRow{"products", "matrix products", &Correction::products},
    CorrectionRow{"attention", "attention cores", &Correction::attention},
    CorrectionRow{"memory_bound", "other kernels", &Correction::memory_bound},
    CorrectionRow{"collectives", "collectives", &Correction::collectives},
    CorrectionRow{"transfers", "transfers between stages", &Correction::transfers},
    CorrectionRow{"host", "issuing a kernel", &Correction::host},
};

}  // namespace rehearse::sim
