// SPDX-License-Identifier: Apache-2.0
// Where a cluster stands: what its building, its grid and its network add. Three figures, each with
// its source; those of an average site are shipped (scenarios/site/average.json).
#pragma once

#include <string>

#include "schedules/base/result.h"

namespace rehearse::sim {

struct SourcedFigure {
  double value = 0;
  std::string source;  // or "assumed ..."
};

struct Site {
  SourcedFigure pue;                // all energy of the building over that of its machines
  SourcedFigure co2_g_per_kwh;      // of the grid
  SourcedFigure network_w_per_nic;  // switches and optics of the fabric
};

Result<Site> average_site();

}  // namespace rehearse::sim
